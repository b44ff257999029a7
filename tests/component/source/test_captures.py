"""Both captures show one history alike: the same events in the same order at the same cluster times."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import bson
import pytest
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.son import SON
from bson.timestamp import Timestamp

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from changefeed.table import TableName
from source.connection import Client, connect
from source.one_deployment import of_oplog, of_stream
from source.oplog.row_reader import OplogReader
from source.oplog.window import majority_time, newest_time
from source.raw_row import Header, RowAbout
from source.source import RowCapture
from source.stream.change_event import table_name
from source.stream.window_reader import ReadOptions, WindowReader

_CODEC: CodecOptions[SON[str, Any]] = CodecOptions(SON, datetime_conversion=DatetimeConversion.DATETIME_MS)
PATIENCE = timedelta(seconds=10)


class Shown(NamedTuple):
    ts: ClusterTime
    type: str
    table: TableName | None
    key: bytes
    content: object
    about: RowAbout
    """Without the wall time where change streams do not show it."""


@pytest.fixture
def client(source_uri: str) -> Iterator[Client]:
    with connect(source_uri) as client:
        yield client


def captures(client: Client) -> dict[str, RowCapture]:
    return {
        "oplog": of_oplog(OplogReader(client, [], patience=PATIENCE, about=True)),
        "stream": of_stream(WindowReader(client, ReadOptions(patience=PATIENCE))),
    }


def shown(capture: RowCapture, window: Window, database: str) -> list[Shown]:
    found = []
    for batch in capture.reader(None).read(window):
        for event in batch.events:
            header = capture.scan(event)
            table = table_name(header.ns)
            if table is not None and table.db == database and header.type in _ROWS and not table.system:
                found.append(_shown(capture, event, header, table))
    return found


_WALL_TIMES = tuple(map(int, os.environ.get("SLUICE_MONGOD_VERSION", "6.0.5").split(".")[:2])) >= (6, 0)
_ROWS = (b"insert", b"update", b"replace", b"delete")


def _shown(capture: RowCapture, event: bytes, header: Header, table: TableName) -> Shown:
    content: object = event[header.full_at : header.full_end]
    if header.type == b"update":
        content = _meaning(bson.decode(capture.update_of(event, header), _CODEC))
    about = capture.about_of(event, header)
    if _WALL_TIMES:
        assert about.wall_ms is not None, event
    else:
        about = about._replace(wall_ms=None)
    return Shown(header.position.ts, header.type.decode(), table, header.key, content, about)


def _meaning(description: Any) -> object:
    """The oplog marks a new field by removing it first, so a removed field that is also updated does not count as removed."""
    updated = description["updatedFields"]
    removed = sorted(set(description.get("removedFields") or ()) - set(updated))
    truncated = [(each["field"], each["newSize"]) for each in description.get("truncatedArrays") or ()]
    return sorted((name, repr(value)) for name, value in updated.items()), removed, sorted(truncated)


def both(client: Client, database: str, write: Callable[[Any], None]) -> list[Shown]:
    """The events of what `write` writes, equal through both captures."""
    start = Position(majority_time(client).next())
    write(client[database])
    window = Window(start, Position(newest_time(client).next()))
    found = {name: shown(capture, window, database) for name, capture in captures(client).items()}
    assert found["oplog"] == found["stream"]
    return found["oplog"]


def test_rows_of_every_kind(client: Client, database: str) -> None:
    def write(db: Any) -> None:
        db.a.insert_one({"_id": 1, "a": 1, "b": {"c": 1, "d": [1, {"e": 2}]}, "arr": [1, 2, 3, 4]})
        db.a.insert_many([{"_id": number} for number in range(10, 15)])
        db.a.update_one({"_id": 1}, {"$set": {"a": 2}})
        db.a.update_many({"_id": 1}, {"$set": {"b.c": 2, "z": 1, "y": 2, "arr.1": 9}, "$unset": {"a": 1}})
        db.a.update_one({"_id": 1}, {"$set": {"b.d.1.e": 7, "b.d.0": 0}})
        db.a.update_one({"_id": 1}, [{"$set": {"arr": {"$slice": ["$arr", 2]}}}])
        db.a.update_one({"_id": 1}, {"$push": {"arr": 7}})
        db.a.update_one({"_id": 1}, {"$rename": {"z": "zz"}})
        db.a.update_one({"_id": 77}, {"$inc": {"n": 1}}, upsert=True)
        db.a.replace_one({"_id": 1}, {"q": 1})
        db.a.replace_one({"_id": 1}, {"q": 1, "wide": "x" * 300})
        db.a.find_one_and_update({"_id": 1}, {"$inc": {"q": 1}})
        db.a.delete_one({"_id": 10})
        db.a.delete_many({})

    found = both(client, database, write)
    assert {event.type for event in found} == {"insert", "update", "replace", "delete"}
    assert len(found) >= 18
    assert {event.about.transaction for event in found} == {None}, "retryable writes are no transactions"


def test_rows_that_look_like_entries_of_the_oplog(client: Client, database: str) -> None:
    """Other change data capture tools write such rows. The reader looks for `op` first in an entry."""

    def write(db: Any) -> None:
        for number, op in enumerate(("c", "n", "i", "u", "d")):
            row = {"_id": number, "op": op, "ns": "shop.a", "o": {"applyOps": []}, "ts": Timestamp(1, 1), "b": True}
            db.a.insert_one(row)
            db.a.update_one({"_id": number}, {"$set": {"op": "c", "b": False}})
            db.a.replace_one({"_id": number}, {"op": "c", "applyOps": [], "place": 7, "upserts": True})
            db.a.delete_many({"op": "c"})
        with client.start_session() as session, session.start_transaction():
            db.a.insert_one({"_id": "t", "op": "c", "applyOps": [{"op": "c"}], "ts": Timestamp(1, 1)}, session=session)
            db.a.update_one({"_id": "t"}, {"$set": {"op": "n"}}, session=session)

    assert len(both(client, database, write)) == 22


def test_a_transaction_is_one_time_in_the_order_of_its_operations(client: Client, database: str) -> None:
    client[database].create_collection("a")
    client[database].create_collection("b")

    def write(db: Any) -> None:
        with client.start_session() as session, session.start_transaction():
            for number in range(20):
                db.a.insert_one({"_id": number}, session=session)
                db.b.insert_one({"_id": number}, session=session)
            db.a.update_one({"_id": 3}, {"$set": {"x": 1}}, session=session)
            db.b.delete_one({"_id": 4}, session=session)

    found = both(client, database, write)
    assert len(found) == 42
    assert len({event.ts for event in found}) == 1
    [(_, transaction)] = {event.about for event in found}
    assert transaction is not None
    session, number = transaction
    assert (len(session), number) == (32, 1)


def test_a_transaction_of_many_entries(client: Client, database: str) -> None:
    """More than 16 MB: a chain of entries, with other writes between them."""
    client[database].create_collection("a")
    large = "x" * (5 << 20)

    def write(db: Any) -> None:
        with client.start_session() as session, session.start_transaction():
            for number in range(4):
                db.a.insert_one({"_id": number, "large": large}, session=session)
                db.a.insert_one({"_id": 100 + number})

    found = both(client, database, write)
    assert len(found) == 8
    assert [bson.decode(event.key)["_id"] for event in found[-4:]] == list(range(4))


def test_documents_as_large_as_they_may_be(client: Client, database: str) -> None:
    def write(db: Any) -> None:
        db.a.insert_one({"_id": 1, "large": "x" * ((16 << 20) - 100)})
        db.a.replace_one({"_id": 1}, {"large": "y" * ((16 << 20) - 100)})
        db.a.update_one({"_id": 1}, {"$set": {"large": "z" * ((16 << 20) - 100)}})

    assert [event.type for event in both(client, database, write)] == ["insert", "replace", "update"]


def test_rows_before_and_after_ddl(client: Client, database: str) -> None:
    def write(db: Any) -> None:
        db.a.insert_one({"_id": 1})
        db.a.create_index("x")
        db.a.insert_one({"_id": 2})
        db.a.rename("b")
        db.b.insert_one({"_id": 3})
        db.b.drop()
        db.b.insert_one({"_id": 4})

    found = both(client, database, write)
    assert [str(event.table and event.table.coll) for event in found] == ["a", "a", "b", "b"]


def test_rows_that_a_command_writes_itself_are_shown_by_the_oplog_alone(client: Client, database: str) -> None:
    """The only rows in which the captures differ; docs/reference/source.md lists them."""
    db = client[database]
    db.a.insert_many([{"_id": number} for number in range(3)])
    start = Position(majority_time(client).next())
    db.command({"cloneCollectionAsCapped": "a", "toCollection": "cloned", "size": 1 << 20})
    db.command({"convertToCapped": "a", "size": 1 << 20})
    db.a.insert_one({"_id": 9})
    window = Window(start, Position(newest_time(client).next()))
    found = {name: shown(capture, window, database) for name, capture in captures(client).items()}
    hidden = [event for event in found["oplog"] if event not in found["stream"]]
    assert [event for event in found["oplog"] if event in found["stream"]] == found["stream"]
    assert {event.type for event in hidden} == {"insert"}
    names = [str(event.table and event.table.coll) for event in hidden]
    assert names[:3] == ["cloned"] * 3
    assert len(names) == 6
    assert all("convertToCapped" in name for name in names[3:])


def some_value(random_: random.Random, depth: int = 0) -> object:
    kind = random_.randrange(5 if depth < 2 else 3)
    if kind == 3:
        return [some_value(random_, depth + 1) for _ in range(random_.randrange(4))]
    if kind == 4:
        return {name: some_value(random_, depth + 1) for name in random_.sample("abc01", random_.randrange(3))}
    return random_.choice([random_.randrange(100), "text", 1.5, None, True])


def write_something(client: Client, db: Any, random_: random.Random) -> None:
    key, field, value = random_.randrange(6), random_.choice("abcd"), some_value(random_)
    match random_.randrange(7):
        case 0 | 1:
            whole = {name: some_value(random_) for name in random_.sample("abcd", 3)}
            db.a.replace_one({"_id": key}, whole, upsert=True)
        case 2:
            db.a.delete_one({"_id": key})
        case 3:
            db.a.update_one({"_id": key}, [{"$set": {field: {"$literal": value}}}])
        case 4:
            db.a.update_one({"_id": key}, {"$unset": {field: 1}})
        case 5:
            db.a.update_one({"_id": key}, {"$set": {field: value}})
        case _:
            with client.start_session() as session, session.start_transaction():
                for number in range(3):
                    db.a.update_one({"_id": number}, {"$set": {"t": value}}, upsert=True, session=session)


@pytest.mark.parametrize("seed", range(3))
def test_a_random_history_in_any_cut(client: Client, database: str, seed: int) -> None:
    random_ = random.Random(seed)
    client[database].create_collection("a")
    start = Position(majority_time(client).next())
    for _ in range(150):
        write_something(client, client[database], random_)
    whole = Window(start, Position(newest_time(client).next()))
    found = {name: shown(capture, whole, database) for name, capture in captures(client).items()}
    assert found["oplog"] == found["stream"]
    oplog = captures(client)["oplog"]
    positions = [oplog.scan(event).position for batch in oplog.reader(None).read(whole) for event in batch.events]
    assert positions == sorted(set(positions))
    cut = random_.choice(positions)
    parts = [Window(whole.start, cut), Window(cut, whole.end)]
    assert [event for part in parts for event in shown(oplog, part, database)] == found["oplog"]
