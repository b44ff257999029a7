"""A processor in a process of its own, which a test kills or freezes: `python processor_process.py NAME ENDPOINT CLUSTER TTL`."""

from __future__ import annotations

import signal
import sys
import threading
from datetime import timedelta

from changefeed.records.node import Role
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig
from coordination.layout import Layout
from coordination.mirror import Mirror
from coordination.session import open_session
from processor.job_runs import JobSetup
from processor.lanes.windows import WindowLimits
from processor.processor import Processor
from processor.spark.pipeline import Pipeline
from processor.spark.runner import SparkRunner
from processor.spark.spark_watch import SparkWatch
from processor.spark.stays import Stays
from tests.described import described


def main(name: str, endpoint: str, cluster: str, ttl: float) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    layout, config, limits = Layout(cluster), EtcdConfig(endpoints=(endpoint,)), WindowLimits()
    with EtcdClient(config) as etcd, SparkRunner() as spark:
        stays = Stays(spark)
        while not stopping.is_set():
            session, store = open_session(
                etcd, layout, name=name, describe=described(name, Role.PROCESSOR), ttl=timedelta(seconds=ttl)
            )
            mirror = Mirror(etcd, layout.root, apart=layout.apart, end=layout.unmirrored)
            setup = JobSetup(jobs=Pipeline(spark, limits, SparkWatch(spark.probe), stays), windows=limits)
            processor = Processor(session, store, mirror, layout, config, setup)
            session.start()
            mirror.start()
            processor.start()
            while not stopping.wait(0.2) and session.alive:
                pass
            processor.stop()
            mirror.stop()
            session.close()
        stays.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
