from __future__ import annotations

import pytest

from changefeed.config.configuration import Configuration
from changefeed.config.live_options import alike
from changefeed.config.written_values import RateLimit
from changefeed.errors import ConfigurationError

FIELDS = {"id": "f", "source": "mongodb://a", "sink": "mongodb://b"}


@pytest.mark.parametrize(
    ("text", "limit", "again"),
    [
        ("20MB/s", RateLimit(bytes=20_000_000), "20MB/s"),
        ("1.5 MiB/s", RateLimit(bytes=3 << 19), "1536KiB/s"),
        ("5000/s", RateLimit(documents=5_000), "5000 docs/s"),
        ("5000 rows/s", RateLimit(documents=5_000), "5000 docs/s"),
        ("5000 docs/s,20MB/s", RateLimit(documents=5_000, bytes=20_000_000), "20MB/s, 5000 docs/s"),
    ],
)
def test_a_limit_comes_back_as_it_was_meant(text: str, limit: RateLimit, again: str) -> None:
    assert RateLimit.parse(text) == limit
    assert str(limit) == again
    assert RateLimit.parse(again) == limit
    stored = Configuration.parse(FIELDS | {"copy_limit": text}).model_dump(mode="json", exclude_unset=True)
    assert Configuration.model_validate(stored).copy_limit == limit


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("20", "write a rate such as 20MB/s"),
        ("20mb/s", "did you mean"),
        (20, "found 20; write a rate"),
        ("0/s", "pause the changefeed"),
        ("1kB/s", "allowed are 10kB/s"),
        ("1MB/s, 2MB/s", "found two limits for bytes"),
    ],
)
def test_a_mistake_is_named(value: object, told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Configuration.parse(FIELDS | {"apply_limit": value})
    assert told in raised.value.problems[0]


def test_only_limits_change_while_a_changefeed_runs() -> None:
    plain = Configuration.parse(FIELDS)
    assert alike(plain, Configuration.parse(FIELDS | {"copy_limit": "20MB/s", "apply_limit": "1/s"}))
    assert not alike(plain, Configuration.parse(FIELDS | {"copy_limit": "20MB/s", "on_divergence": "fail"}))
