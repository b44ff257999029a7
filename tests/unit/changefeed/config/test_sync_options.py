from __future__ import annotations

from typing import Any

import pytest

from changefeed.config.configuration import Configuration
from changefeed.errors import ConfigurationError


def parsed(**fields: Any) -> Configuration:
    return Configuration.parse({"id": "f", "source": "mongodb://s", "sink": "mongodb://t", **fields})


def test_there_are_none_by_default() -> None:
    assert parsed().sync_points is None


def test_what_is_left_out_has_its_default() -> None:
    options = parsed(sync_points={"every": "10s"}).sync_points
    assert options is not None
    assert (str(options.every), str(options.keep)) == ("10s", "1h")
    assert Configuration.model_validate(parsed(sync_points={}).model_dump(mode="json")) == parsed(sync_points={})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sync_points": {"every": "9s"}}, "write at least 10s"),
        ({"sync_points": {"every": "60s", "keep": "30s"}}, "write at least 1m"),
        ({"sync_points": {"every": "10s", "keep": "30d"}}, "10000 times"),
        ({"sync_points": {}, "delay": "5m"}, "older than the history"),
        ({"sync_points": {}, "sink": "blackhole://"}, "no snapshots"),
        ({"verify": {"continuous": True}}, "without sync_points"),
        ({"sync_points": {}, "verify": {"continuous": True, "budget": "100 docs/s"}}, "a rate in bytes"),
        ({"sync_points": {}, "verify": {"continuous": True, "budget": "900kB/s"}}, "at least 1MB/s"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parsed(**fields)
