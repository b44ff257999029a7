"""How a configuration that is kept elsewhere differs from the present one."""

from __future__ import annotations

from typing import Any

import pytest

from admin.desired.verbs import differences
from changefeed.config.configuration import Configuration

_KEPT: dict[str, Any] = {"id": "f", "source": "mongodb://u:p@a/?tls=true", "sink": "mongodb://b", "start": "initial"}


def between(kept: dict[str, Any], present: dict[str, Any]) -> list[str]:
    return differences(Configuration.parse({**_KEPT, **kept}), Configuration.parse({**_KEPT, **present}))


def test_what_is_written_out_does_not_differ_from_the_default() -> None:
    assert between({}, {"filter": {"tables": ["*.*"]}, "on_divergence": "repair", "pipeline": {"parallelism": 4}}) == []


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"filter": {"tables": ["shop.*"]}}, ["filter.tables"]),
        ({"pipeline": {"parallelism": 8}, "on_divergence": "fail"}, ["on_divergence", "pipeline.parallelism"]),
        ({"routes": [{"from": "a.*", "to": "b.*"}]}, ["routes"]),
        ({"sink": "mongodb://c"}, ["sink"]),
        ({"source": "mongodb://u:other@a/?tls=true"}, ["source"]),
        ({"source": "mongodb://u:p@a/"}, ["source"]),
        ({"target": "2026-12-01T00:00:00Z"}, ["target"]),
    ],
)
def test_each_changed_option_is_named_and_no_value(changed: dict[str, Any], named: list[str]) -> None:
    assert between(changed, {}) == named


def test_where_a_changefeed_has_started_and_a_target_of_a_cut_over_are_no_difference() -> None:
    assert between({"start": "now"}, {"target": "2026-12-01T00:00:00Z"}) == []
