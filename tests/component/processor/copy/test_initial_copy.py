"""Initial copies between two servers while the source is written to. Compares sorted raw documents, options and indexes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from pymongo import MongoClient

from changefeed.errors import TargetOccupied
from changefeed.table import TableName
from devstack.mongodb.server import Client, MongoDB
from devstack.process import wait_until
from source.tables import chunk_reader
from tests.component.processor.copy.copying import Copying
from tests.component.source.odd_texts import no_utf8
from tests.independent_compare import differences, documents

_KIB = 1 << 10
_RARE: list[Any] = [
    *(None, True, False, MinKey(), MaxKey(), "", "k" * 9_000, Timestamp(0, 0), Binary(b"a" * 16, 4)),
    *(float("inf"), float("-inf"), float("nan"), Decimal128("-7E+6000"), DatetimeMS(2**60)),
    *({"a": MaxKey()}, {"a": MinKey()}, {"a": Regex("a'", "i")}, {"a": Code("x", {"b": 1})}, {"a": [1, "x"]}),
]

Make = Callable[..., Copying]

_divided = pytest.mark.parametrize("divided", [False, True], ids=["as planned", "each reply a piece"])


@pytest.fixture
def copying(
    source_uri: str,
    target_uri: str,
    etcd_endpoint: str,
    etcd_prefix: str,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Make]:
    made: list[Copying] = []

    def make(collection: str = "rows", *, chunk_bytes: int = 64 * _KIB, divided: bool = False) -> Copying:
        name = TableName(database, collection)
        made.append(Copying(source_uri, target_uri, etcd_endpoint, etcd_prefix, name, chunk_bytes))
        if divided:
            monkeypatch.setattr(chunk_reader, "_MOST_DOCUMENTS", 40)
            made[-1].divide_after = 0
        return made[-1]

    yield make
    for each in made:
        each.close()


def different(source: Client, target: Client, database: str) -> list[str]:
    source[database].drop_collection("__other")
    return differences(source, database, target, database)


def mixed(number: int) -> Any:
    kinds: list[Callable[[], Any]] = [
        lambda: number,
        lambda: number + 0.5,
        lambda: f"id {number}",
        ObjectId,
        lambda: uuid.uuid4().bytes,
        lambda: {"a": number},
        lambda: Decimal128(f"{number}.25"),
    ]
    return kinds[number % len(kinds)]()


@_divided
def test_ids_of_all_types_are_copied_in_many_chunks(
    copying: Make, source_client: Client, target_client: Client, database: str, divided: bool
) -> None:
    rows = source_client[database]["rows"]
    rows.insert_many([{"_id": mixed(number), "f": "x" * 100} for number in range(7000)])
    rows.insert_many([{"_id": value} for value in _RARE])
    copy = copying(divided=divided)
    chunks: list[int] = []

    def change(number: int) -> None:
        """Changes each key before and after its chunk is read."""
        chunks.append(number)
        if number in (0, 4):
            rows.update_many(
                {"_id": {"$in": [value for value in _RARE if not isinstance(value, dict)]}}, {"$inc": {"n": 1}}
            )
            rows.delete_one({"_id": MaxKey()})
            rows.insert_one({"_id": MaxKey(), "chunk": number})

    copy.on_chunk = change
    copy.run()
    copy.catch_up_to_now()
    assert len(chunks) > (100 if divided else 8)
    assert different(source_client, target_client, database) == []


@pytest.mark.since("6.0")
def test_a_clustered_table_is_copied_to_its_last_key_and_no_further(
    copying: Make, source_client: Client, target_client: Client, database: str
) -> None:
    rows = source_client[database].create_collection("rows", clusteredIndex={"key": {"_id": 1}, "unique": True})
    rows.insert_many([{"_id": number, "f": "x" * 200} for number in range(2000)])
    rows.insert_many([{"_id": value} for value in (MinKey(), MaxKey(), "x")])
    copy = copying()
    copied: list[int] = []

    def count(_: int) -> None:
        stored = copy.stored()
        assert stored is not None
        copied.append(sum(chunk.documents for chunk in stored.copied.values()))

    copy.on_chunk = count
    copy.run()
    assert len(copied) > 3
    assert copied[-1] == 2003
    assert different(source_client, target_client, database) == []


def test_an_empty_table_is_copied_with_its_options_and_indexes(
    copying: Make, source_client: Client, target_client: Client, database: str
) -> None:
    source_client[database].create_collection("rows", validator={"a": {"$gt": 1}}).create_index("a", unique=True)
    copying().run()
    assert different(source_client, target_client, database) == []


@pytest.mark.parametrize("divided", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_writes_during_a_copy_end_in_equality(
    copying: Make, source_client: Client, target_client: Client, database: str, divided: bool
) -> None:
    rows = source_client[database]["rows"]
    rows.insert_many([{"_id": n, "u": n, "f": "x" * 40} for n in range(24_000)])
    rows.create_index("u", unique=True)
    copy = copying(chunk_bytes=400 * _KIB, divided=divided)
    stop = threading.Event()

    def write() -> None:
        """A unique value moves between documents of different chunks, fields change their order, documents are inserted and deleted."""
        number = 0
        while not stop.wait(0.01):
            number += 1
            low, high = number * 13 % 11_000, 13_000 + number * 17 % 11_000
            rows.update_one({"_id": low}, {"$set": {"u": -number}})
            rows.update_one({"_id": high}, {"$set": {"u": low, "g": number}})
            rows.update_one({"_id": low}, {"$unset": {"f": 1}})
            rows.update_one({"_id": low}, {"$set": {"h": number, "f": "again"}})
            rows.delete_one({"_id": high - 1})
            rows.insert_one({"_id": high - 0.5, "u": 1_000_000 + number})

    writer = threading.Thread(target=write)
    writer.start()
    copy.on_chunk = lambda number: stop.set() if number == (40 if divided else 2) else None
    try:
        copy.run()
    finally:
        stop.set()
        writer.join()
    copy.catch_up_to_now()
    assert different(source_client, target_client, database) == []


def test_a_killed_copy_goes_on_without_copying_finished_chunks_again(
    copying: Make,
    source_uri: str,
    target_uri: str,
    etcd_endpoint: str,
    etcd_prefix: str,
    source_client: Client,
    target_client: Client,
    database: str,
) -> None:
    rows = source_client[database]["rows"]
    rows.insert_many([{"_id": number, "f": "x" * 200} for number in range(12_000)])
    root = Path(__file__).parents[4]
    command = [sys.executable, str(Path(__file__).with_name("copying.py")), source_uri, target_uri, etcd_endpoint]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    arguments = [*command, etcd_prefix, database, "rows", str(128 * _KIB)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    told = (int(line) for line in process.stdout if line.strip().isdigit())
    try:
        before = [next(told) for _ in range(5)]
    finally:
        process.kill()
    before += told
    process.wait()
    rows.delete_many({"_id": {"$mod": [7, 3]}})
    rows.update_many({"_id": {"$mod": [5, 1]}}, {"$set": {"g": 1}})
    after: list[int] = []
    copy = copying(chunk_bytes=128 * _KIB)
    copy.on_chunk = after.append
    copy.run()
    assert len(before) >= 5
    assert not set(before) & set(after)
    assert sorted(before + after) == list(range(len(before) + len(after)))
    assert different(source_client, target_client, database) == []


def test_what_an_unrecorded_attempt_left_of_a_deleted_document_is_cleared_away(
    copying: Make, source_client: Client, target_client: Client, database: str
) -> None:
    rows = source_client[database]["rows"]
    rows.insert_many([{"_id": number, "f": "x" * 200} for number in range(2000)])
    copy = copying(chunk_bytes=100 * _KIB)
    copy.on_chunk = lambda _: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        copy.run()
    stale = [*rows.find({"_id": {"$gte": 1500}}), {"_id": MaxKey()}]
    target_client[database]["rows"].insert_many(stale)
    rows.delete_many({"_id": {"$gte": 1600}})
    copy.on_chunk = lambda _: None
    copy.run()
    assert different(source_client, target_client, database) == []


@_divided
def test_keys_with_a_text_that_is_no_utf8_are_copied_by_chunks_while_their_rows_change(
    copying: Make, source_client: Client, target_client: Client, database: str, divided: bool
) -> None:
    def key(number: int) -> dict[str, Any]:
        """A short one, a long one, or one inside a document."""
        kinds = (f"?{number}", f"{number:03}?{'k' * 1500}", {"a": f"caf? {number}", "n": number})
        return {"_id": kinds[number % 3]}

    def change(chunk: int) -> None:
        chunks.append(chunk)
        number = len(chunks)
        updates = [no_utf8({"q": key(at), "u": {"$set": {"g": number}}}) for at in range(number % 7, 600, 7)]
        source_client[database].command({"update": "rows", "updates": updates})
        deletes = [no_utf8({"q": key(at), "limit": 1}) for at in range(number % 11, 600, 11)]
        source_client[database].command({"delete": "rows", "deletes": deletes})
        rows.insert_many([no_utf8({**key(1000 + 10 * number + at), "f": 0}) for at in range(10)])

    chunks: list[int] = []
    rows = source_client[database]["rows"]
    rows.insert_many([no_utf8({**key(number), "f": "x" * 500}) for number in range(600)])
    copy = copying(chunk_bytes=64 * _KIB, divided=divided)
    copy.on_chunk = change
    copy.run()
    source_client[database]["__other"].insert_one({})  # by a client that waits for the majority, also at 4.4
    copy.catch_up_to_now()
    assert len(chunks) > 3
    assert different(source_client, target_client, database) == []


def test_a_capped_table_keeps_its_order(
    copying: Make, source_client: Client, target_client: Client, database: str
) -> None:
    rows = source_client[database].create_collection("rows", capped=True, size=1 << 20)
    rows.insert_many([{"_id": number * 7919 % 1000} for number in range(1000)])
    copying(chunk_bytes=_KIB).run()
    order = [[row["_id"] for row in client[database]["rows"].find()] for client in (source_client, target_client)]
    assert order[0] == order[1]
    assert different(source_client, target_client, database) == []


def test_a_table_with_a_collation_is_copied_in_one(
    copying: Make, source_client: Client, target_client: Client, database: str
) -> None:
    rows = source_client[database].create_collection("rows", collation={"locale": "en", "strength": 2})
    rows.insert_many([{"_id": f"{'aA'[number % 2]}{number}", "f": "x" * 100} for number in range(500)])
    copy = copying(chunk_bytes=_KIB)
    chunks: list[int] = []
    copy.on_chunk = chunks.append
    copy.run()
    assert chunks == [0]
    assert documents(source_client, database, "rows") == documents(target_client, database, "rows")


def test_the_largest_documents_are_copied(
    copying: Make, source_client: Client, target_client: Client, database: str
) -> None:
    rows = source_client[database]["rows"]
    for number in range(3):
        rows.insert_one({"_id": number, "filling": bytes(16 * 1024 * 1024 - 64)})
    copying(chunk_bytes=16 << 20).run()
    assert different(source_client, target_client, database) == []


def test_a_target_that_holds_documents_is_left_alone(
    copying: Make, source_client: Client, target_client: Client, database: str
) -> None:
    source_client[database]["rows"].insert_one({"_id": 1})
    target_client[database]["rows"].insert_one({"_id": "theirs"})
    with pytest.raises(TargetOccupied, match=rf"{database}.rows: .*drop the table there"):
        copying().run()
    assert [row["_id"] for row in target_client[database]["rows"].find()] == ["theirs"]


def test_an_empty_table_made_beforehand_is_used_without_its_unique_indexes(
    copying: Make, source_client: Client, target_client: Client, database: str
) -> None:
    source_client[database]["rows"].insert_many([{"_id": 1, "u": 1}, {"_id": 2, "u": 1}])
    target_client[database]["rows"].create_index("u", unique=True)
    copying().run()
    assert different(source_client, target_client, database) == []


@pytest.mark.soak
def test_a_copy_takes_longer_than_the_oplog_lasts(
    own_mongodb: Callable[..., MongoDB],
    target_uri: str,
    target_client: Client,
    etcd_endpoint: str,
    etcd_prefix: str,
    database: str,
) -> None:
    """Rows of each chunk change before and after it is read. The oplog holds what is written during the copying of a few chunks."""
    small = own_mongodb("small", oplog_mb=16, options=("--syncdelay", "1"))
    source: Client = MongoClient(small.uri)
    rows = source[database]["rows"]
    rows.insert_many([{"_id": number, "n": 0, "f": "x" * 100} for number in range(8_000)])
    name = TableName(database, "rows")
    copy = Copying(small.uri, target_uri, etcd_endpoint, etcd_prefix, name, 128 * _KIB, follow_after=-1)
    began = copy.checkpoint.ts.to_bson()
    chunks: list[int] = []

    def change(number: int) -> None:
        chunks.append(number)
        rows.update_many({"_id": {"$mod": [50, number]}}, {"$inc": {"n": 1}})
        rows.delete_many({"_id": {"$mod": [500, 100 + number]}})
        rows.insert_many([{"_id": at + 0.5 + number / 100} for at in range(0, 8_000, 1_000)])
        for filling in range(8):
            source["other"]["filling"].replace_one({"_id": 0}, {"filling": bytes([filling]) * 500_000}, upsert=True)
        if number == 6:
            assert wait_until(forgotten, 60)

    def forgotten() -> bool:
        source["other"]["filling"].update_one({"_id": 0}, {"$inc": {"n": 1}})
        return bool(source["local"]["oplog.rs"].find().sort("$natural", 1).limit(1).next()["ts"] > began)

    copy.on_chunk = change
    copy.run()
    copy.catch_up_to_now()
    assert len(chunks) > 7
    assert different(source, target_client, database) == []
    copy.close()
    source.close()
