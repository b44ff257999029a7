"""A configuration that cannot be stored, or that would take long to compare, is refused at once."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.config.configuration import Configuration
from changefeed.config.yaml_text import LARGEST, MOST_ENTRIES
from changefeed.errors import ConfigurationError

_PLAIN: dict[str, Any] = {"id": "f", "source": "mongodb://s", "sink": "mongodb://t"}


def names(number: int) -> list[str]:
    return [f"shop.table_{each}" for each in range(number)]


@pytest.mark.parametrize(
    "fields",
    [
        {"filter": {"tables": names(MOST_ENTRIES + 1)}},
        {"routes": [{"from": name, "to": f"dr_{name}"} for name in names(MOST_ENTRIES + 1)]},
        {"filter": {"events": [{"tables": names(MOST_ENTRIES), "ignore": ["delete"]}]}},
        {"columns": [{"tables": names(MOST_ENTRIES), "drop": ["a"]}]},
        {"pipeline": {"pre_images": names(MOST_ENTRIES + 1)}},
    ],
)
def test_too_many_patterns_are_refused_with_what_is_allowed(fields: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigurationError, match="more than 10,000 entries of lists; at most 512 KiB and 10,000 entries"
    ):
        Configuration.parse(_PLAIN | fields)


def test_too_much_text_is_refused_before_it_is_read_as_yaml() -> None:
    with pytest.raises(ConfigurationError, match=r"found [\d,]+ bytes; at most 512 KiB"):
        Configuration.from_yaml("]" + " " * LARGEST)


def test_a_value_that_grows_by_references_is_refused() -> None:
    lists = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lists += [
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    with pytest.raises(ConfigurationError, match="more than 10,000 entries of lists"):
        Configuration.from_yaml("\n".join(lists))


def test_as_many_as_are_allowed_are_taken() -> None:
    tables = names(4_000)
    routes = [{"from": name, "to": f"dr_{name}"} for name in tables]
    found = Configuration.parse(_PLAIN | {"filter": {"tables": tables}, "routes": routes})
    assert str(found.routes.root[-1].to) == "dr_shop.table_3999"
