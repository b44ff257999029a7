"""What `sluice sink list` says of options is what a URI takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from changefeed.config.options import Mistake
from changefeed.config.sinks.file_options import BUCKET_OPTIONS, OPTIONS, FileSinkOptions
from changefeed.config.sinks.message_options import SinkOption


def test_the_defaults_that_are_told_are_those_that_are_taken() -> None:
    told = "&".join(f"{option.name}={option.default}" for option in OPTIONS)
    assert FileSinkOptions.parse(f"file:///a?{told}") == FileSinkOptions.parse("file:///a")


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_values_that_are_told_are_taken(option: SinkOption) -> None:
    for value in option.values.replace(" to ", ", ").split(", "):
        FileSinkOptions.parse(f"file:///a?{option.name}={value}")


@pytest.mark.parametrize(
    ("uri", "options"), [("file:///a?other=1", OPTIONS), ("s3://abc?other=1", (*OPTIONS, *BUCKET_OPTIONS))]
)
def test_each_option_is_told(uri: str, options: Sequence[SinkOption]) -> None:
    with pytest.raises(Mistake) as refused:
        FileSinkOptions.parse(uri)
    assert all(option.name in str(refused.value) for option in options)
    assert str(refused.value).count(",") == len(options) - 1
