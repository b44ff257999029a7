"""Long-lived tasks in executors that are separate processes and know only the address of their driver."""

from __future__ import annotations

import sys
from pathlib import Path

from devstack.mongodb.server import Client
from processor.spark.runner import Group, SparkRunner, SparkSettings
from tests.component.processor.spark.staying_lane import StayingLane
from tests.component.processor.windowing import Windowing


def test_executors_elsewhere_dial_their_driver(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client, database: str
) -> None:
    """Uses Spark's `local-cluster`."""
    for client, name in ((source_client, database), (target_client, f"{database}_to")):
        client[name].create_collection("orders")
    windowing = Windowing(etcd_endpoint, source_uri, target_uri, source_client, target_client, database)
    options = {
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[4]),
        "spark.executor.memory": "512m",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.pyspark.python": sys.executable,
    }
    with SparkRunner(SparkSettings(master="local-cluster[1,2,512]", options=options)) as spark:
        spark.run_one(Group("test", "warm"), int)
        lane = StayingLane(spark, windowing, follows=60.0, idle=60.0, longest=300.0)
        try:
            for _ in range(10):
                lane.step()
            assert len(lane.jobs) == 1
            assert lane.windowing.differences() == []
        finally:
            lane.close()
            target_client.drop_database(f"{database}_to")
