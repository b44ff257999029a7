"""A replica that is killed at any step goes on where it ended, and the target becomes what it becomes undisturbed, from files and from topics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import FencedError, RowRejected, TargetOccupied
from changefeed.event import DdlType, RowType
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from sink.ddl import CreateIndexes, CreateTable, DropIndexes, DropTables, ModifyTable, RenameTable
from sink.messages.kafka import topic_reader
from sink.messages.replica import MongoReplica
from sink.mongodb.connection import connect
from sink.row import RowChange
from tests.component.sink.killed_reader import Death, goes_on_from_each_step, state
from tests.component.sink.messages import Messages, filed, in_topics
from tests.component.sink.vocabulary import LIFE, A, B, changed, described, moment, named

_ID = {"v": 2, "key": {"_id": 1}, "name": "_id_"}
_UNIQUE = {"v": 2, "key": {"u": 1}, "name": "u_1", "unique": True, "sparse": True}
_PLAIN = {"v": 2, "key": {"n": 1}, "name": "n_1"}
_GONE = TableId("cc" * 16)
_UPDATE, _NEW, _DELETE = RowType.UPDATE, RowType.INSERT, RowType.DELETE


def _schema(name: str, at: Position, *indexes: dict[str, Any]) -> tuple[TableSchema, TableName]:
    found = tuple(map(Document.of, indexes or (_ID, _UNIQUE)))
    return TableSchema(id=A, name=named(name), valid_from=at, indexes=found, copied=True), named(name)


_BEGUN = _schema("a", moment(100))


def _exchanged() -> list[RowChange]:
    return [
        *(changed(_UPDATE, A, 106, n, n, u=n) for n in range(1, 7)),
        *(changed(_UPDATE, A, 108, n, n, u=n + 10) for n in range(1, 7)),
        *(changed(_UPDATE, A, 109, n, n, u=7 - n) for n in range(1, 7)),
        changed(_DELETE, A, 109, 8, 1),
        changed(_NEW, A, 109, 9, 8, u=6),
    ]


def _first_part(messages: Messages) -> None:
    """A table with a unique index is copied, emptied, and copied again, while its rows change. A window is written twice."""
    messages.claim(_BEGUN)
    messages.copy(100, 102, [{"_id": n, "u": n} for n in range(1, 8)], tables=(_BEGUN,))
    rows = [*(changed(_UPDATE, A, 101, n, n, x=1) for n in range(1, 10)), changed(_DELETE, A, 103, 1, 7)]
    for _ in range(2):
        messages.window(100, 105, rows, _BEGUN)
    messages.ddl.emptied(A, named("a"), moment(105))
    messages.copy(105, 107, [{"_id": n, "u": n, "x": 1} for n in range(1, 7)], tables=(_BEGUN,))
    messages.window(105, 110, _exchanged(), _BEGUN)
    messages.mark(110)


def _second_part(messages: Messages) -> None:
    """DDL of each kind between rows of two tables, one of them behind. What a zombie writes again comes late."""
    rename = RenameTable(name=named("b"), to=named("c"), replaces=False)
    made = described(B, "b", moment(116, 0))
    messages.window(110, 115, [changed(_UPDATE, A, 111, n, n, n=n) for n in range(2, 7)], _BEGUN)
    messages.apply(CreateIndexes(name=named("a"), indexes=(Document.of(_PLAIN),)), DdlType.CREATE_INDEXES, 115)
    messages.apply(CreateTable(name=named("b"), options=Document.of({})), DdlType.CREATE, 116, B)
    messages.window(115, 130, [changed(_UPDATE, A, 120, n, n, n=-n, u=20 + n) for n in range(2, 7)], _BEGUN)
    messages.window(105, 110, _exchanged(), _BEGUN, epoch=9)
    rows = [changed(_NEW, B, 118, n, n, "b", by="create") for n in range(7)]
    messages.window(116, 122, rows, made, epoch=8, since=moment(116, 0))
    for _ in range(2):
        messages.apply(rename, DdlType.RENAME, 122, B)
    messages.apply(DropIndexes(name=named("a"), indexes=("n_1",)), DdlType.DROP_INDEXES, 125)
    messages.mark(130, b=120)


def _third_part(messages: Messages) -> None:
    in_c, gone = described(B, "b", moment(116, 0)), described(_GONE, "gone", moment(132, 0))
    messages.copied(105, 108)
    rows = [changed(_UPDATE, B, 124, n, n, "c", by="rename") for n in range(1, 7)]
    messages.window(122, 140, rows, in_c, epoch=8)
    messages.apply(CreateTable(name=named("gone"), options=Document.of({})), DdlType.CREATE, 132, _GONE)
    rows = [changed(_NEW, _GONE, 132, n, n, "gone") for n in range(1, 5)]
    messages.window(132, 133, rows, gone, epoch=8, since=moment(132, 0))
    messages.apply(DropTables(names=(named("gone"),)), DdlType.DROP, 133, _GONE)
    messages.window(130, 140, [changed(RowType.REPLACE, A, 131, n, n, u=n) for n in range(2, 5)], _BEGUN)
    messages.mark(140)


def _fourth_part(messages: Messages) -> None:
    """The first table had stood at 140, while it got another name and another index. It is copied anew."""
    anew = _schema("d", moment(145), _ID, _PLAIN)
    messages.begin_again(145, "d", schema=anew[0], skipped_from=moment(140))
    messages.copy(145, 147, [{"_id": n, "n": n} for n in range(3, 9)], name="d", tables=(anew,))
    messages.window(145, 150, [changed(_UPDATE, A, 146, n, n, "d", n=n) for n in range(1, 9)], anew)
    messages.window(140, 150, [], described(B, "c", moment(116, 0)), epoch=8)
    messages.mark(149)
    messages.copied(145, 148)
    messages.mark(150)


_PARTS = (_first_part, _second_part, _third_part, _fourth_part)


def _replica(messages: Messages, target_uri: str) -> MongoReplica:
    return MongoReplica(connect(target_uri), messages.reader(), "orders", LIFE)


def _read(messages: Messages, target_uri: str, *, from_start: bool = False) -> None:
    with closing(messages), closing(_replica(messages, target_uri)) as replica:
        replica.begin(from_start=from_start)
        while replica.follow() or messages.opened[-1].more:
            pass


def _grown(messages: Messages, parts: int) -> Messages:
    for part in _PARTS[:parts]:
        part(messages)
    return messages


def _in_folder(path: Path, parts: int) -> Messages:
    return _grown(filed(f"file://{path}"), parts)


_EACH = [pytest.param(where, n, 1, marks=pytest.mark.soak) for where in ("files", "topics") for n in (1, 2, 3, 4)]


@pytest.mark.parametrize(("where", "parts", "every"), [("files", 2, 17), ("topics", 4, 89), *_EACH])
def test_a_reader_that_was_killed_goes_on(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    *,
    where: str,
    parts: int,
    every: int,
    target_uri: str,
    target_client: Client,
    emptied: Callable[[], None],
    death: Death,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`parts`: what there is when it is killed for the first time. All of it is read from topics in many rounds, and from one topic, where each
    partition has all watermarks, whichever is read last.
    """
    much = where == "topics" and parts == 4
    if much:
        monkeypatch.setattr(topic_reader, "AT_ONCE", 3)
        monkeypatch.setattr(topic_reader, "MANY", 5)

    def grown(number: int) -> Messages:
        if where == "files":
            return _in_folder(tmp_path / str(number), parts)
        broker: KafkaBroker = request.getfixturevalue("kafka")
        return _grown(in_topics(broker, "topic={prefix}.all" if much else ""), parts)

    def rest(messages: Messages) -> None:
        for part in _PARTS[parts:]:
            part(messages)

    read = partial(_read, target_uri=target_uri)
    goes_on_from_each_step(death, every, grown, rest, read, emptied, target_client)


def test_a_table_that_is_copied_anew_has_its_new_name_and_indexes(
    tmp_path: Path, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    messages = _in_folder(tmp_path, 3)
    _read(messages, target_uri)
    before = state(target_client)
    assert [set(before[name][1]) for name in "ac"] == [{"_id_", "u_1"}, {"_id_"}]
    _fourth_part(messages)
    _read(messages, target_uri)
    found = state(target_client)
    assert list(found) == ["c", "d"]
    assert found["c"] == before["c"]
    assert found["d"][0] == [{"_id": n, "n": n} for n in range(3, 9)]
    assert set(found["d"][1]) == {"_id_", "n_1"}


def test_the_indexes_of_a_copy_anew_that_was_interrupted_at_once_wait_for_its_end(
    tmp_path: Path, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    """Documents of the copy were read at different times, so two of them may have a unique value that moved."""
    messages, anew = filed(f"file://{tmp_path}"), _schema("a", moment(110))
    messages.claim()
    messages.begin_again(110, schema=anew[0])
    messages.ddl.emptied(A, named("a"), moment(115))
    messages.mark(115)
    _read(messages, target_uri)
    assert set(state(target_client)["a"][1]) == {"_id_"}
    messages.copy(115, 117, [{"_id": 1, "u": 1}, {"_id": 2, "u": 1}], until=ClusterTime(119, 1), tables=(anew,))
    messages.window(115, 120, [changed(_UPDATE, A, 118, n, n, u=n) for n in (1, 2)], anew)
    messages.copied(115, 120)
    messages.mark(120)
    _read(messages, target_uri)
    found = state(target_client)["a"]
    assert found[0] == [{"_id": 1, "u": 1}, {"_id": 2, "u": 2}]
    assert set(found[1]) == {"_id_", "u_1"}


def test_a_reader_that_goes_on_knows_the_copy_of_a_table_that_has_come_back(
    tmp_path: Path, target_uri: str, target_client: Client, emptied: Callable[[], None], death: Death
) -> None:
    """Its former life ended before the reader's mark, or in the round that is read again."""
    back = _schema("a", moment(120))
    for steps in count(1, 4):
        emptied()
        messages = filed(f"file://{tmp_path}/{steps}")
        messages.claim(_BEGUN)
        messages.copy(100, 102, [{"_id": 1, "u": 1}], tables=(_BEGUN,))
        messages.copied(100, 105)
        messages.mark(106)
        _read(messages, target_uri)
        messages.apply(DropTables(names=(named("a"),)), DdlType.DROP, 110)
        messages.copy(120, 122, [{"_id": 1, "u": 1}, {"_id": 2, "u": 1}], until=ClusterTime(129, 1), tables=(back,))
        messages.mark(125)
        died = death.ends(partial(_read, messages, target_uri), steps)
        messages.window(120, 130, [changed(_UPDATE, A, 128, n, n, u=n) for n in (1, 2, 3)], back)
        messages.copied(120, 130)
        messages.mark(130)
        _read(messages, target_uri)
        rows, indexes = state(target_client)["a"]
        assert rows == [{"_id": 1, "u": 1}, {"_id": 2, "u": 2}], f"killed after {steps} steps"
        assert set(indexes) == {"_id_", "u_1"}, f"killed after {steps} steps"
        if not died:
            return


def test_a_capped_table_is_emptied_too(
    tmp_path: Path, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    """Servers before 5.0 delete nothing from it."""
    options = Document.of({"capped": True, "size": 4096, "validationAction": "warn"})
    messages, begun = filed(f"file://{tmp_path}"), (replace(_BEGUN[0], options=options), named("a"))
    messages.claim(begun)
    messages.copy(100, 102, [{"_id": 1, "u": 1}], tables=(begun,))
    messages.mark(103)
    _read(messages, target_uri)
    messages.ddl.emptied(A, named("a"), moment(110))
    messages.copy(110, 112, [{"_id": 2, "u": 1}], tables=(begun,))
    messages.copied(110, 113)
    messages.mark(115)
    _read(messages, target_uri)
    found = state(target_client)
    assert list(found) == ["a"]
    assert found["a"][0] == [{"_id": 2, "u": 1}]
    assert set(found["a"][1]) == {"_id_", "u_1"}
    [table] = target_client["shop"].command("listCollections")["cursor"]["firstBatch"]
    assert table["options"] == options.decode()


def test_what_ddl_says_of_indexes_during_a_copy_waits_for_its_end(
    tmp_path: Path, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    """A unique index would refuse documents that the next attempt of the copy reads at different times."""
    messages, begun = filed(f"file://{tmp_path}"), _schema("a", moment(100), _ID, _PLAIN)
    messages.claim(begun)
    messages.copy(100, 102, [{"_id": 1, "u": 1}], tables=(begun,))
    messages.apply(CreateIndexes(name=named("a"), indexes=(Document.of(_UNIQUE),)), DdlType.CREATE_INDEXES, 105)
    changes = {"index": {"name": "n_1", "hidden": True}, "validationLevel": "moderate"}
    messages.apply(ModifyTable(name=named("a"), changes=Document.of(changes)), DdlType.MODIFY, 106)
    messages.ddl.emptied(A, named("a"), moment(110))
    messages.copy(110, 112, [{"_id": 1, "u": 1}, {"_id": 2, "u": 1}], until=ClusterTime(119, 1), tables=(begun,))
    messages.mark(115)
    _read(messages, target_uri)
    assert set(state(target_client)["a"][1]) == {"_id_"}
    messages.window(110, 120, [changed(_UPDATE, A, 118, n, n, u=n) for n in (1, 2)], begun)
    messages.copied(110, 120)
    messages.mark(120)
    _read(messages, target_uri)
    rows, indexes = state(target_client)["a"]
    assert rows == [{"_id": 1, "u": 1}, {"_id": 2, "u": 2}]
    assert indexes["u_1"]["unique"]
    assert indexes["n_1"]["hidden"]
    [table] = target_client["shop"].command("listCollections")["cursor"]["firstBatch"]
    assert table["options"]["validationLevel"] == "moderate"


def test_a_row_that_a_unique_index_keeps_out_of_a_copy_is_told(
    tmp_path: Path, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    messages = filed(f"file://{tmp_path}")
    messages.claim(_BEGUN)
    messages.ddl.begin((_BEGUN,))
    messages.mark(101)
    _read(messages, target_uri)
    target_client["shop"]["a"].create_index("u", unique=True)
    messages.copy(100, 112, [{"_id": 1, "u": 1}, {"_id": 2, "u": 1}], until=ClusterTime(119, 1), tables=(_BEGUN,))
    messages.mark(120)
    with pytest.raises(RowRejected, match=r"shop\.a.*u_1.*drop it there, and create it when the copy is complete"):
        _read(messages, target_uri)


def test_a_table_that_is_in_the_way_is_refused_until_it_is_gone(
    tmp_path: Path, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    messages = _in_folder(tmp_path, 3)
    target_client["shop"]["b"].insert_one({"_id": "another's"})
    for _ in range(2):
        with pytest.raises(TargetOccupied, match=r"shop\.b"):
            _read(messages, target_uri)
    assert target_client["shop"]["b"].count_documents({}) == 1
    target_client["shop"]["b"].drop()
    _read(messages, target_uri)
    found = state(target_client)
    emptied()
    _read(messages, target_uri)
    assert found == state(target_client)


def test_from_the_start_it_makes_all_tables_again(
    tmp_path: Path, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    messages = _in_folder(tmp_path, 3)
    _read(messages, target_uri)
    found = state(target_client)
    target_client.drop_database("shop")
    _read(messages, target_uri)
    assert state(target_client) == {}
    _read(messages, target_uri, from_start=True)
    assert state(target_client) == found


_NAMED_LIKE_VALUES = bson.encode(
    {"_id": 1, "a": {"$regex": "^x", "$ne": "y"}, "b": {"$oid": "zz"}, "c": {"$date": "x"}}
)
_NO_UTF8 = bson.encode({"_id": 1, "a": "~~", "b": 1}).replace(b"~~", b"\xff\xfe")


@pytest.mark.since("5.0")  # servers before it store no names with a dollar
@pytest.mark.parametrize(
    ("format", "document"),
    [("json", _NAMED_LIKE_VALUES), ("bson", _NAMED_LIKE_VALUES), ("bson", _NO_UTF8), ("parquet", _NO_UTF8)],
)
def test_documents_and_definitions_arrive_byte_for_byte(
    tmp_path: Path, format: str, document: bytes, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    """Whatever their fields are called, and whether or not their text is UTF-8."""
    validator = {"email": {"$type": "string", "$regex": "^.+@.+$", "$ne": "x"}}
    options = Document.of({"validator": validator, "validationAction": "warn"})
    begun = replace(described(A)[0], options=options), named("a")
    messages = filed(f"file://{tmp_path}?format={format}")
    messages.claim(begun)
    inserted = changed(_NEW, A, 101, 1, 1)._replace(document=document)
    updated = changed(_UPDATE, A, 102, 2, 1, again=RawBSONDocument(_NAMED_LIKE_VALUES))
    messages.window(100, 105, [inserted, updated], begun)
    messages.mark(105)
    _read(messages, target_uri)
    shop = target_client["shop"]
    [found] = shop.get_collection("a", CodecOptions(RawBSONDocument)).find()
    assert bson.encode(found)[4:-1] == document[4:-1] + b"\x03again\0" + _NAMED_LIKE_VALUES
    [table] = shop.command("listCollections")["cursor"]["firstBatch"]
    assert table["options"]["validator"] == validator


def test_the_first_of_two_readers_ends(tmp_path: Path, target_uri: str, emptied: Callable[[], None]) -> None:
    messages = _in_folder(tmp_path, 1)
    with closing(_replica(messages, target_uri)) as first:
        first.begin()
        _read(messages, target_uri)
        with pytest.raises(FencedError, match="let one of them run"):
            first.follow()
