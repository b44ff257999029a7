"""An owner in a process of its own, which a test kills or freezes: `python owner_process.py NAME ENDPOINT CLUSTER TTL MARGIN`."""

from __future__ import annotations

import signal
import sys
import threading
from datetime import timedelta

from changefeed.records.node import Role
from coordination.election import Candidate
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig
from coordination.layout import Layout
from coordination.mirror import Mirror
from coordination.session import open_session
from owner.connections import Connections
from owner.owner import Owner
from tests.described import described


def main(name: str, endpoint: str, cluster: str, ttl: float, margin: float) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    layout = Layout(cluster)
    with EtcdClient(EtcdConfig(endpoints=(endpoint,))) as etcd:
        session, _ = open_session(
            etcd, layout, name=name, describe=described(name, Role.OWNER), ttl=timedelta(seconds=ttl)
        )
        mirror = Mirror(etcd, layout.root, apart=layout.apart, end=layout.unmirrored)
        candidate = Candidate(etcd, layout, lease=session.lease, node=session.node)
        owner = Owner(candidate, session, mirror, layout, Connections, margin=timedelta(seconds=margin))
        session.start()
        mirror.start()
        owner.start()
        while not stopping.wait(0.2) and session.alive:
            pass
        owner.stop()
        mirror.stop()
        session.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
