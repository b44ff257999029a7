"""The handbook's SQL finds the newest state of a table, whatever became of its name, in the real DuckDB."""

from __future__ import annotations

import json
import re
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import bson
import duckdb
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlType
from changefeed.position import Window
from sink.ddl import BeginAgain, CreateTable, DropTables, RenameTable
from sink.messages.files.file_sink import FileDocumentLoader
from sink.receipt import Commit, CopyReceipt
from tests.component.sink.files.feed import Feed
from tests.component.sink.vocabulary import (
    NOTHING_SEEN,
    A,
    B,
    copy_end,
    described,
    entered,
    insert,
    moment,
    named,
    recorded,
    target,
)

_HANDBOOK = Path(__file__).parents[4] / "docs" / "reference" / "events.md"
[_SQL] = re.findall(
    r"(?:^    .*\n)+", _HANDBOOK.read_text()[_HANDBOOK.read_text().index("    WITH said AS") :], re.MULTILINE
)[:1]


def _state(feed: Feed, table: str) -> list[int]:
    """The keys of its rows."""
    with chdir(feed.path):
        found = duckdb.connect().execute(_SQL.replace("shop.orders", table)).fetchall()
    return sorted(int(json.loads(key)["_id"]["$numberInt"]) for key, _ in found)


def _committed(feed: Feed, at: int, rows: list[int], *, table: str = "a") -> None:
    id, since = (A, moment(at)) if table != "b" else (B, moment(at))
    files = feed.written([insert(id, at + 1, key, table if table != "b" else "a") for key in rows])
    schema = described(id, "a" if table == "b" else table)
    feed.committer().commit(Commit(ranges={id: Window(since, moment(at + 10))}, files=files, tables=(schema,)))


@pytest.mark.parametrize("layout", ["plain", "hive"])
def test_a_table_is_found_by_the_name_that_it_has_now(tmp_path: Path, layout: str) -> None:
    feed = Feed(f"file://{tmp_path}/orders?format=parquet&layout={layout}")
    _committed(feed, 100, [1, 2])
    feed.marks.mark(moment(110))
    assert _state(feed, "shop.a") == [1, 2]
    renamed = RenameTable(name=named("a"), to=named("z"), replaces=False)
    feed.ddl.apply(renamed, NOTHING_SEEN, recorded(DdlType.RENAME, 110))
    created = CreateTable(name=named("a"), options=Document.of({}))
    feed.ddl.apply(created, NOTHING_SEEN, recorded(DdlType.CREATE, 111, B))
    _committed(feed, 112, [7], table="b")
    feed.marks.mark(moment(122))
    assert (_state(feed, "shop.a"), _state(feed, "shop.z")) == ([7], [1, 2])
    feed.ddl.apply(DropTables(names=(named("z"),)), NOTHING_SEEN, recorded(DdlType.DROP, 125))
    feed.marks.mark(moment(130))
    assert (_state(feed, "shop.a"), _state(feed, "shop.z")) == ([7], [])


def test_rows_of_before_a_copy_anew_are_not_there(tmp_path: Path) -> None:
    feed = Feed(f"file://{tmp_path}/orders?format=parquet")
    _committed(feed, 100, [1, 2])
    begun = described(A, at=moment(110))[0]
    feed.ddl.apply(BeginAgain(name=named("a"), schema=begun), NOTHING_SEEN, entered(110))
    table, read_ts = replace(target(A), version=moment(110)), ClusterTime(113, 1)
    loader = FileDocumentLoader(feed.writer(), table)
    loader.load([bson.encode({"_id": key, "at": 113}) for key in (2, 3)], read_ts)
    receipt = CopyReceipt(table=A, start=moment(110), after=read_ts, until=read_ts, files=loader.finish())
    feed.committer().commit(Commit(ranges={}, copies=(receipt,)))
    feed.ddl.copied(copy_end(110))
    feed.marks.mark(moment(120))
    assert _state(feed, "shop.a") == [2, 3]
