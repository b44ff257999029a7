"""What a supporter sees of a node."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, Gauge

from admin.diagnosis import Diagnosis
from changefeed.errors import ConfigurationError
from node.configuration import NodeConfiguration


def _diagnosis() -> Diagnosis:
    registry = CollectorRegistry()
    Gauge("some_figure", "A figure", registry=registry).set(7)
    configuration = {"spark": {"conf": {"spark.authenticate.secret": "hunter2", "spark.driver.memory": "2g"}}}
    return Diagnosis(version="0.1", configuration=NodeConfiguration.parse(configuration).shown(), registry=registry)


def test_a_node_tells_everything_but_secrets_and_values() -> None:
    released, value = threading.Event(), "hunter3"

    def waits_for_a_row(_: str) -> None:
        released.wait(60)

    thread = threading.Thread(target=waits_for_a_row, args=(value,), name="lane-7")
    thread.start()
    found = dict(_diagnosis().files(timedelta(seconds=0.2)))
    released.set()
    thread.join()
    assert b"some_figure 7.0" in found["metrics.txt"]
    assert b"spark.driver.memory: 2g" in found["configuration.yaml"]
    assert b"waits_for_a_row" in found["threads.txt"]
    assert any(b"lane-7;" in line and b"waits_for_a_row" in line for line in found["profile.txt"].splitlines())
    assert b"hunter" not in b"".join(found.values())


def test_a_profile_is_made_only_when_it_is_wanted_and_ends() -> None:
    assert "profile.txt" not in dict(_diagnosis().files(None))
    with pytest.raises(ConfigurationError, match="write up to 300 seconds"):
        list(_diagnosis().files(timedelta(hours=1)))
