"""Rows are written through a router into tables that the target shards, while chunks move."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.documents.row_key import KeyRange
from changefeed.errors import RowRejected, SinkUnavailable
from changefeed.event import RowType
from devstack.mongodb.server import Client
from devstack.process import wait_until
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.served.router_server import RouterServer
from devstack.sharded.wire import CommandFailed
from sink.mongodb.rows.document_loader import MongoDocumentLoader
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.row import RowChange, SourceRow, TargetTable
from tests.component.sink.mongodb.rows.written_rows import Rows, made, permit, table_of
from tests.until import PATIENCE_SECONDS

pytestmark = pytest.mark.since("6.0")
Row = dict[str, Any]
NS = "shop.items"
_OPERATION_FAILED = 96
_RESTS = 2
"""Times as long as the last move took."""


@pytest.fixture(scope="module")
def client(cluster: ShardedCluster) -> Iterator[Client]:
    with RouterServer(cluster) as server, Client(server.uri) as client:
        yield client


@pytest.fixture
def items(client: Client, cluster: ShardedCluster) -> Iterator[Rows]:
    """Keys below 100 on sa, the others on sb."""
    with cluster.router() as router:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        ddl.shard(NS, {"k": 1})
        ddl.split(NS, {"k": 100})
        ddl.move(NS, {"k": 100}, "sb", wait_for_delete=True)
    yield client.shop.items
    client.drop_database("shop")


@pytest.fixture
def writer(client: Client) -> MongoRowWriter:
    return MongoRowWriter(client, permit=permit)


@contextmanager
def moving(cluster: ShardedCluster) -> Iterator[threading.Event]:
    """Chunks go to and fro, and rest longer than they move: otherwise a router that the machine holds up never knows where they are. The event
    says that one has moved.
    """
    over, moved = threading.Event(), threading.Event()

    def move() -> None:
        with cluster.router() as router:
            ddl = ClusterDdl(router)
            while not over.is_set():
                for to in ("sa", "sb"):
                    begun_at = time.monotonic()
                    move_once(ddl, to)
                    moved.set()
                    over.wait(_RESTS * (time.monotonic() - begun_at))

    mover = threading.Thread(target=move)
    mover.start()
    try:
        yield moved
    finally:
        over.set()
        mover.join()


def move_once(ddl: ClusterDdl, to: str) -> None:
    """A write may break off a move: the next one begins anew."""
    try:
        ddl.move(NS, {"k": 100}, to, wait_for_delete=True)
    except CommandFailed as error:
        if error.code != _OPERATION_FAILED:
            raise


def of_key(change: RowChange, k: int | None) -> RowChange:
    """As a source shows it that shards its table in the same way."""
    return change if k is None else change._replace(key=bson.encode({"k": k, **bson.decode(change.key)}))


class History:
    """Random changes of rows, as the oplogs of a source show them."""

    def __init__(self, table: TargetTable, *, whole: bool, seed: int) -> None:
        self._table, self._whole, self._random = table, whole, random.Random(seed)
        self.rows: dict[int, Row] = {}
        self.changes: list[RowChange] = []

    def go_on(self, count: int, *, ids: int) -> None:
        for _ in range(count):
            id = self._random.randrange(ids)
            row = self.rows.get(id)
            if row is None:
                self._insert({"_id": id, "k": self._k(), "n": 0})
            else:
                self._random.choice([self._update, self._update, self._key, self._replace, self._delete, self._cross])(
                    row
                )

    def _k(self) -> int:
        return self._random.randrange(0, 200)

    def _log(self, kind: RowType, row: Row, **content: Any) -> None:
        made_ = made(self._table, kind, row["_id"], **content)
        self.changes.append(of_key(made_, row["k"] if self._whole else None))

    def _insert(self, row: Row) -> None:
        self._log(RowType.INSERT, row, document=row)
        self.rows[row["_id"]] = row

    def _update(self, row: Row) -> None:
        self._set(row, {"n": row["n"] + 1})

    def _key(self, row: Row) -> None:
        self._set(row, {"k": self._k(), "m": self._k()})

    def _set(self, row: Row, fields: Row) -> None:
        self._log(RowType.UPDATE, row, update={"updatedFields": fields})
        self.rows[row["_id"]] = {**row, **fields}

    def _replace(self, row: Row) -> None:
        new = {"_id": row["_id"], "k": self._k(), "n": 0}
        self._log(RowType.REPLACE, row, document=new)
        self.rows[row["_id"]] = new

    def _delete(self, row: Row) -> None:
        self._log(RowType.DELETE, row)
        del self.rows[row["_id"]]

    def _cross(self, row: Row) -> None:
        """A changed key whose new place is on another shard of the source."""
        self._delete(row)
        self._insert({**row, "k": self._k()})


def contents(items: Rows) -> dict[int, Row]:
    found = list(items.find())
    assert len({row["_id"] for row in found}) == len(found), "no row is there twice"
    return {row["_id"]: row for row in found}


@pytest.mark.parametrize(("whole", "ordered"), [(True, False), (False, True)], ids=["whole keys", "ids alone, ordered"])
def test_windows_that_are_replayed_converge_while_chunks_move(
    items: Rows, writer: MongoRowWriter, cluster: ShardedCluster, whole: bool, ordered: bool
) -> None:
    history, rng = History(table_of(items, ordered=ordered), whole=whole, seed=int(whole)), random.Random(5)
    begin = reached = 0
    with moving(cluster) as moved:

        def goes_on() -> bool:
            nonlocal begin, reached
            history.go_on(120, ids=40)
            run, start = writer.begin(lambda _: begin < reached), begin
            for window_end in sorted(rng.sample(range(begin + 1, len(history.changes)), 2)):
                again = history.changes[begin : min(window_end, reached)]
                new = history.changes[max(begin, reached) : window_end]
                for changes, replay in ((again, True), (new, False)):
                    if changes:
                        run.prepare(changes, replay=replay)()
                reached, begin = max(reached, window_end), window_end
            unsettled = run.settle().unsettled
            begin = start if unsettled else rng.randrange(max(0, begin - 60), begin + 1)
            return moved.is_set() and len(history.changes) > 400

        assert wait_until(goes_on, 120)
    run = writer.begin(lambda _: False)
    for changes, replay in ((history.changes[begin:reached], True), (history.changes[max(begin, reached) :], False)):
        if changes:
            run.prepare(changes, replay=replay)()
    run.settle()
    assert contents(items) == history.rows


def test_a_copy_and_its_repetition_go_to_the_owners(items: Rows, client: Client, cluster: ShardedCluster) -> None:
    loader = MongoDocumentLoader(client, table=table_of(items), once=False, kept=True, permit=permit)
    documents = [{"_id": number, "k": number % 200, "n": number} for number in range(3_000)]
    with moving(cluster) as moved:
        for _ in range(2):
            loader.load([bson.encode(document) for document in documents], ClusterTime(5, 1))
        assert moved.wait(PATIENCE_SECONDS)
        loader.load(
            [bson.encode({**document, "k": 199 - document["k"]}) for document in documents[:50]], ClusterTime(6, 1)
        )
    expected = [{**row, "k": 199 - row["k"]} if row["_id"] < 50 else row for row in documents]
    assert contents(items) == {row["_id"]: row for row in expected}
    with moving(cluster):
        assert loader.clear(KeyRange(lower=Document.of({"_id": 100}), upper=None)) >= 2_900
    assert contents(items).keys() == set(range(100))
    assert not loader.empty()


def test_a_row_is_repaired_wherever_its_document_is(items: Rows, client: Client) -> None:
    items.insert_one({"_id": 1, "k": 150, "n": "another client's"})
    now = bson.encode({"_id": 1, "k": 7, "n": 2})
    asked: list[bytes] = []

    def fetch(change: RowChange) -> SourceRow:
        asked.append(change.key)
        return SourceRow(now, ClusterTime(9, 1))

    writer = MongoRowWriter(client, permit=permit, fetch=fetch)
    update = of_key(made(table_of(items), RowType.UPDATE, 1, update={"updatedFields": {"n": 2}}), 7)
    result = writer.write([update], replay=False)
    assert (result.tally.repaired, contents(items)) == (1, {1: {"_id": 1, "k": 7, "n": 2}})
    assert asked == [bson.encode({"_id": 1})], "the source may have another shard key"


def test_a_row_that_the_source_does_not_have_is_removed_wherever_its_document_is(items: Rows, client: Client) -> None:
    items.insert_many([{"_id": 1, "k": 150}, {"_id": 2, "k": 150}])
    writer = MongoRowWriter(client, permit=permit, fetch=lambda _: SourceRow(None, ClusterTime(9, 1)))
    update = of_key(made(table_of(items), RowType.UPDATE, 1, update={"updatedFields": {"n": 2}}), 7)
    writer.write([update], replay=False)
    assert list(contents(items)) == [2]


def test_changes_of_before_a_repair_do_not_bring_a_second_document(items: Rows, client: Client) -> None:
    """The row was deleted and came back with another key, which the repair has found already."""
    now = {"_id": 1, "k": 150, "n": 9}
    writer = MongoRowWriter(client, permit=permit, fetch=lambda _: SourceRow(bson.encode(now), ClusterTime(9, 1)))
    table = table_of(items)
    changes = [
        of_key(made(table, RowType.UPDATE, 1, update={"updatedFields": {"n": 2}}), 7),
        of_key(made(table, RowType.DELETE, 1), 7),
        made(table, RowType.INSERT, 1, {"k": 8, "n": 3}),
        of_key(made(table, RowType.UPDATE, 1, update={"updatedFields": {"k": 150, "n": 9}}), 8),
    ]
    run = writer.begin(lambda _: False)
    for change in changes:
        run.prepare([change], replay=False)()
        assert len(contents(items)) <= 1
    run.settle()
    assert contents(items) == {1: now}


def test_a_row_waits_until_its_shard_has_removed_an_orphan_of_it(
    items: Rows, client: Client, cluster: ShardedCluster
) -> None:
    items.insert_one({"_id": 1, "k": 150})
    options = RowWriterOptions(retry_for=timedelta(seconds=1), patience=timedelta(seconds=1))
    moves = of_key(made(table_of(items), RowType.UPDATE, 1, update={"updatedFields": {"k": 7}}), 150)
    with cluster.shards["sa"].client() as shard:
        shard.shop.items.insert_one({"_id": 1, "k": 150})
        with pytest.raises(SinkUnavailable, match="a moved chunk has left a document of this _id"):
            MongoRowWriter(client, permit=permit, options=options).write([moves], replay=False)
        assert contents(items) == {1: {"_id": 1, "k": 150}}
        shard.shop.items.delete_one({"_id": 1})
    MongoRowWriter(client, permit=permit, options=options).write([moves], replay=False)
    assert contents(items) == {1: {"_id": 1, "k": 7}}


def test_a_row_is_removed_where_it_waits_to_move_from(items: Rows, writer: MongoRowWriter) -> None:
    items.create_index([("k", 1), ("u", 1)], unique=True)
    items.insert_many([{"_id": 1, "k": 7, "u": 1}, {"_id": 2, "k": 150, "u": 1}])
    table = table_of(items, ordered=True)
    moves = of_key(made(table, RowType.UPDATE, 2, update={"updatedFields": {"k": 7}}), 150)
    writer.write([moves, of_key(made(table, RowType.DELETE, 2), 7)], replay=False)
    assert contents(items) == {1: {"_id": 1, "k": 7, "u": 1}}


def test_two_documents_of_one_id_stop_the_table(items: Rows, writer: MongoRowWriter) -> None:
    items.insert_many([{"_id": 1, "k": 7}, {"_id": 1, "k": 150}])
    with pytest.raises(RowRejected, match="several documents of its _id"):
        writer.write([made(table_of(items), RowType.REPLACE, 1, {"k": 7})], replay=False)


def test_a_table_that_the_target_does_not_shard_is_written_by_id(client: Client, writer: MongoRowWriter) -> None:
    plain = client.plain.rows
    table = table_of(plain)
    insert = of_key(made(table, RowType.INSERT, 1, {"k": 5, "n": 0}), 5)
    update = of_key(made(table, RowType.UPDATE, 1, update={"updatedFields": {"k": 6}}), 5)
    for replay in (False, True):
        writer.write([insert, update], replay=replay)
    assert list(plain.find()) == [{"_id": 1, "k": 6, "n": 0}]
