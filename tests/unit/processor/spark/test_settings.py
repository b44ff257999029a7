from __future__ import annotations

import sys

import pytest

from changefeed.errors import ConfigurationError
from processor.spark.settings import SparkSettings


def test_what_correctness_needs_is_stronger_than_what_users_say() -> None:
    options = SparkSettings(options={"spark.task.maxFailures": "4", "spark.driver.memory": "2g"}).all()
    assert (options["spark.task.maxFailures"], options["spark.driver.memory"]) == ("1", "2g")


@pytest.mark.parametrize("port", ["", "x", "-1", "65536", "²"])
def test_a_port_for_hand_overs_that_is_none_is_told_at_once(port: str) -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.conf\.spark\.sluice\.handOver\.port"):
        SparkSettings(options={"spark.sluice.handOver.port": port})
    assert SparkSettings(options={"spark.sluice.handOver.port": "7080"}).hand_over_port == 7080


@pytest.mark.parametrize(
    ("master", "options", "python"),
    [
        ("local[2]", {}, sys.executable),
        ("spark://m:7077", {}, "python3"),
        ("local-cluster[1,1,512]", {}, "python3"),
        ("yarn", {"spark.pyspark.python": "/opt/sluice/bin/python"}, "/opt/sluice/bin/python"),
    ],
)
def test_executors_have_a_python_of_their_own(
    master: str, options: dict[str, str], python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert SparkSettings(master=master, options=options).python == python
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3.11")
    local_or_named = master == "local[2]" or options
    assert SparkSettings(master=master, options=options).python == (python if local_or_named else "/usr/bin/python3.11")


def test_one_node_does_not_take_a_whole_standalone_cluster() -> None:
    assert SparkSettings(master="spark://m:7077").all()["spark.cores.max"] == "4"
    assert SparkSettings(master="spark://m:7077", options={"spark.cores.max": "32"}).all()["spark.cores.max"] == "32"
    assert "spark.cores.max" not in SparkSettings(master="k8s://https://k").all()


def test_an_executor_may_take_longer_where_a_machine_has_to_start_first() -> None:
    assert SparkSettings(master="spark://m:7077").patience < SparkSettings(master="k8s://https://k").patience


def test_only_on_this_machine_spark_listens_on_the_loopback_address() -> None:
    assert SparkSettings(master="local[*]").all()["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in SparkSettings(master="spark://m:7077").all()


@pytest.mark.parametrize(
    ("master", "enabled", "grows"), [("yarn", "true", True), ("yarn", "false", False), ("local[*]", "true", False)]
)
def test_executors_come_with_the_load_where_spark_may_ask_for_them(master: str, enabled: str, grows: bool) -> None:
    assert SparkSettings(master=master, options={"spark.dynamicAllocation.enabled": enabled}).grows is grows
