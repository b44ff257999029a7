"""What of a record stands beside it in etcd, from the write to the read, with crashes and late readers in between."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import CoordinationUnavailable, DefinitionsTooLarge, OutcomeUnknown, RecordUnreadable
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId, TableName, TableSchema
from coordination import large_store, large_values
from coordination.decoded import Decoded
from coordination.etcd.protocol import DeletePrefix, KeyValue, Put
from coordination.fenced import FencedStore
from coordination.large_store import LargeWriter
from coordination.large_values import LARGE_BYTES, PIECE_BYTES, check_room, encoded, name_of, pieces_of, whole
from coordination.layout import Layout, decode, encode
from coordination.mirror import Mirror
from coordination.view import View
from tests.memory_etcd import MemoryClient, MemoryEtcd

LAYOUT, FEED = Layout("c"), ChangefeedId("f")
GROUP = LAYOUT.large(FEED)


def document(size: int, mark: str = "x") -> Document:
    return Document.of({"validator": {"x": mark * size}})


def schema(*documents: Document, table: str = "a" * 32) -> TableSchema:
    options, *indexes = documents
    at = Position(ClusterTime(1, 1))
    name = TableName("shop", table[:8])
    return TableSchema(id=TableId(table), name=name, options=options, indexes=tuple(indexes), valid_from=at)


class Cluster:
    def __init__(self) -> None:
        self.server = MemoryEtcd()
        self.client: MemoryClient = self.server.connect()
        self.mirror = Mirror(self.server.connect(), LAYOUT.root, apart=LAYOUT.apart, end=LAYOUT.unmirrored)
        self.writer = self.next_owner()

    def next_owner(self) -> LargeWriter:
        key = LAYOUT.owner(self.server.revision)
        epoch = self.server.txn([], [Put(key, b"me", self.server.grant(timedelta(seconds=10)).id)]).revision
        self.store = FencedStore(self.client, key=key, epoch=epoch)
        self.writer = LargeWriter(self.store, GROUP)
        return self.writer

    def write(self, record: TableSchema) -> None:
        value, large = encoded(record)
        self.writer.write(large, about="shop.a")
        self.store.commit([Put(LAYOUT.schema(FEED, record.id), value)])

    def view(self) -> View:
        while self.mirror.poll(timedelta(0)):
            pass
        return self.mirror.view()

    def names(self) -> set[str]:
        return {key.removeprefix(GROUP).partition("/")[0] for key in self.server.keys(GROUP)}


def read(cluster: Cluster, view: View, decoded: Decoded | None = None) -> dict[str, TableSchema]:
    found = (decoded or Decoded(LAYOUT)).group(TableSchema, view, LAYOUT.schemas(FEED))
    return {name: stored.record for name, stored in found.items()}


def test_an_ordinary_record_is_written_as_if_there_were_no_large_ones() -> None:
    for record in (schema(document(10)), schema(document(LARGE_BYTES - 100), *[document(1_000)] * 20)):
        assert encoded(record) == (encode(record), {})


def test_a_large_document_is_written_once_for_all_that_have_it() -> None:
    big = document(PIECE_BYTES)
    value, large = encoded(schema(big, big, document(10)))
    assert large == {name_of(big.raw): big.raw}
    assert len(value) < 1_000


def test_many_small_documents_stand_beside_a_record_that_they_make_large() -> None:
    filters = [document(40_000, mark) for mark in "abcdefgh"]
    value, large = encoded(schema(document(10), *filters))
    assert set(large.values()) == {each.raw for each in filters}
    assert len(value) < 10_000


@given(st.lists(st.sampled_from([0, 500, 2_000, LARGE_BYTES, PIECE_BYTES, 3 * PIECE_BYTES]), min_size=1, max_size=12))
def test_what_is_written_is_read_again(sizes: list[int]) -> None:
    record = schema(*[document(size, chr(97 + number)) for number, size in enumerate(sizes)])
    value, large = encoded(record)
    kv = KeyValue(key="k", value=value, create_rev=1, mod_rev=1)
    assert decode(TableSchema, kv, lambda name: Document(large[name])) == record
    for name, raw in large.items():
        pieces = pieces_of(name, raw)
        assert b"".join(pieces.values()) == raw
        assert max(map(len, pieces.values())) <= PIECE_BYTES
        assert whole(pieces) == {name}
        assert len(pieces) == 1 or whole(list(pieces)[1:]) == set()


def test_no_node_mirrors_large_values_and_each_reads_those_of_its_records() -> None:
    cluster, record = Cluster(), schema(document(PIECE_BYTES * 2))
    cluster.mirror.need_apart_for(timedelta(hours=1))
    cluster.write(record)
    view = cluster.view()
    assert not any("large" in group for group in view.groups)
    decoded = Decoded(LAYOUT)
    assert read(cluster, view, decoded) == {record.id: record}
    assert decoded.large(LAYOUT.schemas(FEED)) == cluster.names()


def test_what_an_owner_left_that_died_before_the_record_is_collected_by_the_next_one() -> None:
    cluster, big = Cluster(), document(PIECE_BYTES * 2)
    cluster.writer.write({name_of(big.raw): big.raw}, about="shop.a")
    cluster.next_owner().collect(frozenset())
    assert cluster.names() == set()


def test_a_value_of_which_an_owner_wrote_a_part_is_written_anew() -> None:
    cluster, record = Cluster(), schema(document(PIECE_BYTES * 2))
    _, large = encoded(record)
    [first, *_] = pieces_of(*next(iter(large.items()))).items()
    cluster.server.txn([], [Put(f"{GROUP}{first[0]}", first[1])])
    cluster.next_owner()
    cluster.write(record)
    assert read(cluster, cluster.view()) == {record.id: record}


def test_a_write_without_an_answer_is_repeated() -> None:
    cluster, record = Cluster(), schema(document(PIECE_BYTES * 2))
    cluster.client.lose_requests = 1
    with pytest.raises(OutcomeUnknown):
        cluster.write(record)
    cluster.store.settle()
    cluster.client.deliver_late()
    cluster.write(record)
    assert read(cluster, cluster.view()) == {record.id: record}


def test_a_reader_whose_view_is_older_than_a_collection_reads_what_there_was() -> None:
    cluster, record = Cluster(), schema(document(PIECE_BYTES))
    cluster.write(record)
    before = cluster.view()
    cluster.write(schema(document(10)))
    cluster.writer.collect(frozenset())
    assert cluster.names() == set()
    assert read(cluster, before) == {record.id: record}


def test_a_reader_tries_again_when_what_there_was_is_compacted() -> None:
    cluster, record = Cluster(), schema(document(PIECE_BYTES))
    cluster.write(record)
    before = cluster.view()
    cluster.write(schema(document(10)))
    cluster.writer.collect(frozenset())
    cluster.server.compact(cluster.server.revision)
    with pytest.raises(CoordinationUnavailable):
        read(cluster, before)
    assert read(cluster, cluster.view()) == {record.id: schema(document(10))}


def test_a_damaged_value_is_said_to_be_and_not_taken_for_a_definition() -> None:
    cluster, record = Cluster(), schema(document(PIECE_BYTES))
    cluster.write(record)
    [*_, last] = cluster.server.keys(GROUP)
    cluster.server.txn([], [Put(last, b"other")])
    with pytest.raises(RecordUnreadable, match="found none or a damaged one"):
        read(cluster, cluster.view())


def test_after_a_removal_the_same_definition_is_written_again() -> None:
    cluster, record = Cluster(), schema(document(PIECE_BYTES))
    cluster.write(record)
    cluster.store.commit([DeletePrefix(GROUP)])
    cluster.writer.deleted()
    cluster.write(record)
    assert read(cluster, cluster.view()) == {record.id: record}


def test_there_is_room_for_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (large_values, large_store):
        monkeypatch.setattr(module, "MOST_BYTES", 3 * PIECE_BYTES)
    cluster = Cluster()
    cluster.write(schema(document(2 * PIECE_BYTES)))
    cluster.write(schema(document(2 * PIECE_BYTES), table="b" * 32))
    with pytest.raises(
        DefinitionsTooLarge, match=r"shop\.a: found definitions of 1,048,605 bytes, expected 524,259 at most"
    ):
        cluster.write(schema(document(2 * PIECE_BYTES, "o"), table="c" * 32))
    check_room("shop.a", 10, 10)
