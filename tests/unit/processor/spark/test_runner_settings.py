from __future__ import annotations

import pytest

from changefeed.errors import ConfigurationError
from processor.spark.runner import SparkSettings


def test_what_correctness_needs_is_stronger_than_what_users_say() -> None:
    options = SparkSettings(options={"spark.task.maxFailures": "4", "spark.driver.memory": "2g"}).all()
    assert (options["spark.task.maxFailures"], options["spark.driver.memory"]) == ("1", "2g")


@pytest.mark.parametrize("port", ["", "x", "-1", "65536", "²"])
def test_a_port_for_hand_overs_that_is_none_is_told_at_once(port: str) -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.conf\.spark\.sluice\.handOver\.port"):
        SparkSettings(options={"spark.sluice.handOver.port": port})
    assert SparkSettings(options={"spark.sluice.handOver.port": "7080"}).hand_over_port == 7080
