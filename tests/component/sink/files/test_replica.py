"""A replica that is killed at any step goes on where it ended, and the target becomes what it becomes undisturbed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import FencedError, TargetOccupied
from changefeed.event import DdlEvent, DdlType, RowType
from changefeed.position import Position, Window
from changefeed.records import DdlRecord, Scope
from changefeed.table import TableId, TableName, TableSchema
from devstack.mongodb.server import Client
from sink.ddl import BeginAgain, CreateIndexes, CreateTable, DownstreamDdl, DropIndexes, DropTables, RenameTable
from sink.files.reading.feed_directory import FeedDirectory
from sink.files.reading.reader import Reader
from sink.mongodb.connection import connect
from sink.reading.replica import MongoReplica
from sink.receipt import Commit
from sink.row import RowChange
from tests.component.sink.files.feed import (
    IDENTITY,
    NOTHING_SEEN,
    A,
    B,
    Feed,
    copied,
    copy_end,
    moment,
    recorded,
    target,
)
from tests.component.sink.killed_reader import Death, goes_on_from_each_step, state

_ID = {"v": 2, "key": {"_id": 1}, "name": "_id_"}
_UNIQUE = {"v": 2, "key": {"u": 1}, "name": "u_1", "unique": True, "sparse": True}
_PLAIN = {"v": 2, "key": {"n": 1}, "name": "n_1"}


def _name(coll: str) -> TableName:
    return TableName("shop", coll)


def _change(type: RowType, table: TableId, at: int, index: int, key: int, name: str = "a", **update: Any) -> RowChange:
    described = {"updatedFields": update, "removedFields": [], "truncatedArrays": []}
    return RowChange(
        table=target(table, name),
        type=type,
        key=bson.encode({"_id": key}),
        document=bson.encode({"_id": key} | update) if type in (RowType.INSERT, RowType.REPLACE) else None,
        update=bson.encode(described) if type is RowType.UPDATE else None,
        time=ClusterTime(at, 1).to_int(),
        token=f"{index:08X}".encode(),
    )


def _ddl(feed: Feed, type: DdlType, at: int, ddl: DownstreamDdl, table: TableId = A, **more: Any) -> None:
    feed.ddl.apply(ddl, NOTHING_SEEN, recorded(type, at, table, **more))


def _copy(feed: Feed, start: int, at: int, documents: list[dict[str, Any]]) -> None:
    schema = _schema(_name("a"), moment(100))
    feed.committer().commit(
        Commit(ranges={}, copies=(copied(feed, start, at, documents),), tables=((schema, _name("a")),))
    )


def _schema(name: TableName, at: Position) -> TableSchema:
    return TableSchema(id=A, name=name, valid_from=at, indexes=(Document.of(_ID), Document.of(_UNIQUE)))


def _first_part(feed: Feed) -> None:
    """A table with a unique index is copied, emptied, and copied again, while its rows change."""
    update, delete = RowType.UPDATE, RowType.DELETE
    _copy(feed, 100, 102, [{"_id": n, "u": n} for n in range(1, 8)])
    rows = [_change(update, A, 101, n, n, x=1) for n in range(1, 10)]
    feed.window(100, 105, [*rows, _change(delete, A, 103, 1, 7)])
    feed.ddl.recopy(A, _name("a"), moment(105))
    _copy(feed, 105, 107, [{"_id": n, "u": n, "x": 1} for n in range(1, 7)])
    exchanged = [
        *(_change(update, A, 106, n, n, u=n) for n in range(1, 7)),
        *(_change(update, A, 108, n, n, u=n + 10) for n in range(1, 7)),
        *(_change(update, A, 109, n, n, u=7 - n) for n in range(1, 7)),
        _change(delete, A, 109, 8, 1),
        _change(RowType.INSERT, A, 109, 9, 8, u=6),
    ]
    feed.window(105, 110, exchanged)
    feed.marks.mark(moment(110))


def _second_part(feed: Feed) -> None:
    """DDL of each kind between rows of two tables, one of them behind."""
    update, new = RowType.UPDATE, RowType.INSERT
    feed.window(110, 115, [_change(update, A, 111, n, n, n=n) for n in range(2, 7)])
    _ddl(feed, DdlType.CREATE_INDEXES, 115, CreateIndexes(name=_name("a"), indexes=(Document.of(_PLAIN),)))
    _ddl(feed, DdlType.CREATE, 116, CreateTable(name=_name("b"), options=Document.of({})), B)
    feed.window(115, 130, [_change(update, A, 120, n, n, n=-n, u=20 + n) for n in range(2, 7)])
    in_b = TableSchema(id=B, name=_name("b"), valid_from=moment(116, 0))
    rows = feed.written([_change(new, B, 118, n, n, "b", by="create") for n in range(7)])
    ranges = {B: Window(moment(116, 0), moment(122, 0))}
    feed.committer(8).commit(Commit(ranges=ranges, files=rows, tables=((in_b, _name("b")),)))
    _ddl(feed, DdlType.RENAME, 122, RenameTable(name=_name("b"), to=_name("c"), replaces=False), B)
    _ddl(feed, DdlType.DROP_INDEXES, 125, DropIndexes(name=_name("a"), indexes=("n_1",)))
    feed.marks.mark(moment(130), {B: moment(120)})


def _third_part(feed: Feed) -> None:
    feed.ddl.copied(copy_end(105))
    rows = feed.written([_change(RowType.UPDATE, B, 124, n, n, "c", by="rename") for n in range(1, 7)])
    feed.committer(8).commit(Commit(ranges={B: Window(moment(122, 0), moment(140))}, files=rows))
    gone = TableId("cc" * 16)
    _ddl(feed, DdlType.CREATE, 127, CreateTable(name=_name("gone"), options=Document.of({})), gone)
    schema = TableSchema(id=gone, name=_name("gone"), valid_from=moment(127, 0))
    rows = feed.written([_change(RowType.INSERT, gone, 127, n, n, "gone") for n in range(1, 5)])
    ranges = {gone: Window(moment(127, 0), moment(128, 0))}
    feed.committer(8).commit(Commit(ranges=ranges, files=rows, tables=((schema, _name("gone")),)))
    _ddl(feed, DdlType.DROP, 128, DropTables(names=(_name("gone"),)), gone)
    feed.window(130, 140, [_change(RowType.REPLACE, A, 131, n, n, u=n) for n in range(2, 5)])
    feed.marks.mark(moment(140))


def _fourth_part(feed: Feed) -> None:
    """The first table had stood at 140, while it got another name and another index. It is copied anew."""
    event = DdlEvent(position=moment(145), type=DdlType.ENTER, db="shop", table=_name("d"), id=A)
    record = DdlRecord(event=event, scope=Scope(apart=frozenset({A})), seen_at=datetime.now(UTC))
    schema = replace(_schema(_name("d"), moment(145)), indexes=(Document.of(_ID), Document.of(_PLAIN)))
    feed.ddl.apply(BeginAgain(name=_name("d"), schema=schema, skipped_from=moment(140)), NOTHING_SEEN, record)
    rows = feed.written([_change(RowType.UPDATE, A, 146, n, n, "d", n=n) for n in range(1, 9)])
    copies = (copied(feed, 145, 147, [{"_id": n, "n": n} for n in range(3, 9)], name="d"),)
    feed.committer().commit(Commit(ranges={}, copies=copies, tables=((schema, _name("d")),)))
    feed.committer().commit(
        Commit(ranges={A: Window(moment(145), moment(150))}, files=rows, tables=((schema, _name("d")),))
    )
    feed.committer(8).commit(Commit(ranges={B: Window(moment(140), moment(150))}))
    feed.marks.mark(moment(149))
    feed.ddl.copied(copy_end(145))
    feed.marks.mark(moment(150))


_PARTS = (_first_part, _second_part, _third_part, _fourth_part)


def _read(feed: Feed, target_uri: str, *, from_start: bool = False) -> None:
    directory = FeedDirectory(feed.store)
    with closing(MongoReplica(connect(target_uri), Reader(directory), IDENTITY.feed, IDENTITY.life)) as reading:
        reading.begin(from_start=from_start)
        reading.follow()


def _grown(path: Path, parts: int) -> Feed:
    feed = Feed(f"file://{path}")
    for part in _PARTS[:parts]:
        part(feed)
    return feed


@pytest.mark.parametrize(
    ("parts", "every"), [(2, 17), *(pytest.param(parts, 1, marks=pytest.mark.soak) for parts in (1, 2, 3, 4))]
)
def test_a_reader_that_was_killed_goes_on(
    tmp_path: Path,
    parts: int,
    every: int,
    target_uri: str,
    target_client: Client,
    emptied: Callable[[], None],
    death: Death,
) -> None:
    def rest(feed: Feed) -> None:
        for part in _PARTS[parts:]:
            part(feed)

    goes_on_from_each_step(
        death,
        every,
        lambda number: _grown(tmp_path / str(number), parts),
        rest,
        lambda feed: _read(feed, target_uri),
        emptied,
        target_client,
        "cd",
    )


def test_a_table_that_is_copied_anew_has_its_new_name_and_indexes(
    tmp_path: Path, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    feed = _grown(tmp_path, 3)
    emptied()
    _read(feed, target_uri)
    before = state(target_client)
    assert [set(before[name][1]) for name in "ac"] == [{"_id_", "u_1"}, {"_id_"}]
    _fourth_part(feed)
    _read(feed, target_uri)
    found = state(target_client)
    assert list(found) == ["c", "d"]
    assert found["c"] == before["c"]
    assert found["d"][0] == [{"_id": n, "n": n} for n in range(3, 9)]
    assert set(found["d"][1]) == {"_id_", "n_1"}


def test_the_indexes_of_a_copy_anew_that_was_interrupted_at_once_wait_for_its_end(
    tmp_path: Path, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    """Documents of the copy were read at different times, so two of them may have a unique value that moved."""
    feed = Feed(f"file://{tmp_path}")
    emptied()
    event = DdlEvent(position=moment(110), type=DdlType.ENTER, db="shop", table=_name("a"), id=A)
    record = DdlRecord(event=event, scope=Scope(apart=frozenset({A})), seen_at=datetime.now(UTC))
    schema = _schema(_name("a"), moment(110))
    feed.ddl.apply(BeginAgain(name=_name("a"), schema=schema), NOTHING_SEEN, record)
    feed.ddl.recopy(A, _name("a"), moment(115))
    feed.marks.mark(moment(115))
    _read(feed, target_uri)
    assert set(state(target_client)["a"][1]) == {"_id_"}
    read = copied(feed, 115, 117, [{"_id": 1, "u": 1}, {"_id": 2, "u": 1}])
    copies = (replace(read, until=ClusterTime(119, 1)),)
    moved = feed.written([_change(RowType.UPDATE, A, 118, n, n, u=n) for n in (1, 2)])
    feed.committer().commit(Commit(ranges={}, copies=copies, tables=((schema, _name("a")),)))
    feed.committer().commit(Commit(ranges={A: Window(moment(115), moment(120))}, files=moved))
    feed.ddl.copied(copy_end(115))
    feed.marks.mark(moment(120))
    _read(feed, target_uri)
    found = state(target_client)["a"]
    assert found[0] == [{"_id": 1, "u": 1}, {"_id": 2, "u": 2}]
    assert set(found[1]) == {"_id_", "u_1"}


def test_a_table_that_is_in_the_way_is_refused_until_it_is_gone(
    tmp_path: Path, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    feed = _grown(tmp_path, 3)
    target_client["shop"]["b"].insert_one({"_id": "another's"})
    for _ in range(2):
        with pytest.raises(TargetOccupied, match=r"shop\.b"):
            _read(feed, target_uri)
    assert target_client["shop"]["b"].count_documents({}) == 1
    target_client["shop"]["b"].drop()
    _read(feed, target_uri)
    found = state(target_client)
    emptied()
    _read(feed, target_uri)
    assert found == state(target_client)


def test_from_the_start_it_makes_all_tables_again(
    tmp_path: Path, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    feed = _grown(tmp_path, 3)
    emptied()
    _read(feed, target_uri)
    found = state(target_client)
    target_client.drop_database("shop")
    _read(feed, target_uri)
    assert state(target_client) == {}
    _read(feed, target_uri, from_start=True)
    assert state(target_client) == found


def test_the_first_of_two_readers_ends(tmp_path: Path, target_uri: str, emptied: Callable[[], None]) -> None:
    feed = _grown(tmp_path, 1)
    emptied()
    directory = FeedDirectory(feed.store)
    with closing(MongoReplica(connect(target_uri), Reader(directory), IDENTITY.feed, IDENTITY.life)) as first:
        first.begin()
        _read(feed, target_uri)
        with pytest.raises(FencedError, match="let one of them run"):
            first.follow()
