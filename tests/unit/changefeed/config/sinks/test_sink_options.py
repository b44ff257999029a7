"""What `sluice sink list` says of options is what a URI takes."""

from __future__ import annotations

import pytest

from changefeed.config.sinks.file_sink import OPTIONS, FileSinkOptions
from changefeed.config.sinks.sink_option import SinkOption
from changefeed.config.wording import Mistake


def test_the_defaults_that_are_told_are_those_that_are_taken() -> None:
    told = "&".join(f"{option.name}={option.default}" for option in OPTIONS)
    assert FileSinkOptions.parse(f"file:///a?{told}") == FileSinkOptions.parse("file:///a")


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_values_that_are_told_are_taken(option: SinkOption) -> None:
    for value in option.values.replace(" to ", ", ").split(", "):
        FileSinkOptions.parse(f"file:///a?{option.name}={value}")


def test_each_option_is_told() -> None:
    with pytest.raises(Mistake) as refused:
        FileSinkOptions.parse("file:///a?other=1")
    assert all(option.name in str(refused.value) for option in OPTIONS)
    assert str(refused.value).count(",") == len(OPTIONS) - 1
