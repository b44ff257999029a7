from __future__ import annotations

import pytest

from pyspark_sluice.reader_options import BatchLimits, ReaderOptions
from sluice_client.cluster_time import ClusterTime
from sluice_client.feed_errors import ConfigurationError
from sluice_client.feed_reader import NOTHING, Watermark
from sluice_client.position import Position

_PATH = {"path": "file:///srv/orders"}


def test_names_of_options_have_any_case() -> None:
    found = ReaderOptions.parse(
        _PATH | {"MAXROWSPERTRIGGER": "7", "Ordered": "TRUE", "ddl": "stop", "tables": "shop.a, shop.x*"}
    )
    assert (found.limits, found.ordered, found.stop_at_ddl) == (BatchLimits(rows=7), True, True)
    assert [found.wants(name) for name in ("shop.a", "shop.xy", "shop.ab")] == [True, True, False]


@pytest.mark.parametrize(
    ("start", "place"),
    [
        ("1795224774.9", Position(ClusterTime(1795224774, 9))),
        ("2026-11-29T12:00:00Z", Position(ClusterTime(1795953600, 0))),
        ("6B00F4C600000009.40000000000002", Position(ClusterTime(1795224774, 9), "00000002")),
        ("6B00F4C600000009.40000000000002.0001", Position(ClusterTime(1795224774, 9), "00000002.0001")),
    ],
)
def test_a_start_is_a_time_or_a_place(start: str, place: Position) -> None:
    assert ReaderOptions.parse(_PATH | {"start": start}).first(None) == Watermark(place)


def test_a_start_is_the_beginning_or_the_newest_watermark() -> None:
    newest = Watermark(Position(ClusterTime(9, 1)))
    assert ReaderOptions.parse(_PATH).first(newest) == NOTHING
    assert ReaderOptions.parse(_PATH | {"start": "newest"}).first(newest) == newest
    assert ReaderOptions.parse(_PATH | {"start": "newest"}).first(None) == NOTHING


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "path: is missing"),
        (_PATH | {"table": "shop.a"}, r"table: is no option of this source \(do you mean tables\?\)"),
        (_PATH | {"start": "yesterday"}, "start: found 'yesterday'; write earliest, newest"),
        (_PATH | {"start": "2026-11-29T12:00:00"}, "start: found"),
        (_PATH | {"start": "6B00F4C600000009.40"}, "start: found"),
        (_PATH | {"ddl": "rows"}, "ddl: found 'rows'; allowed are column, stop"),
        (_PATH | {"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger: found '0'; write a whole number of 1 or more"),
    ],
)
def test_a_mistake_is_told_with_what_to_write(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ReaderOptions.parse(options)


def test_a_table_that_was_never_there_is_told_with_what_is_like_it() -> None:
    options = ReaderOptions.parse(_PATH | {"tables": "shop.oders,shop.later*"})
    with pytest.raises(
        ConfigurationError, match=r"'shop.oders' is no table of this changefeed \(do you mean shop.orders\?\)"
    ):
        options.check_tables({"shop.orders", "shop.items"})
    ReaderOptions.parse(_PATH | {"tables": "shop.orders,shop.later*"}).check_tables({"shop.orders"})
