"""The reference consumer on a real broker: each message once, in the order of the source; killed at any step it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import bson
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import ConfigurationError, NotFoundError, SinkRefused, TargetOccupied
from changefeed.event import DdlEvent, DdlType, RowType
from changefeed.records import DdlRecord, Observation, Scope
from changefeed.table import TableId, TableName, TableSchema
from devstack.kafka.broker import KafkaBroker
from devstack.kafka.security import KafkaSecurity
from devstack.mongodb.security import ADMINISTRATOR
from devstack.mongodb.server import Client
from sink.ddl import CreateIndexes, CreateTable, DownstreamDdl, DropIndexes, DropTables, RenameTable
from sink.files.stores.opening import open_store
from sink.kafka.brokers.clients import kafka_clients
from sink.kafka.reading import held_rows, topic_reader
from sink.kafka.reading.kafka_reader import KafkaReader
from sink.mongodb.connection import connect
from sink.reading.replica import MongoReplica
from sink.reading.shown import Copied, CopyBegins
from sink.reading.stored_message import MessageGap, StoredMessage
from sink.receipt import CopyEnd
from sink.row import RowChange
from tests.component.sink.kafka.feed import A, B, KafkaFeed, insert, moment, target
from tests.component.sink.killed_reader import Death, goes_on_from_each_step, state
from tests.until import PATIENCE_SECONDS, until

_UNIQUE = {"v": 2, "key": {"u": 1}, "name": "u_1", "unique": True, "sparse": True}
_PLAIN = {"v": 2, "key": {"n": 1}, "name": "n_1"}
_GONE = TableId("cc" * 16)


def _name(coll: str) -> TableName:
    return TableName("shop", coll)


def _schema() -> tuple[TableSchema, TableName]:
    indexes = Document.of({"v": 2, "key": {"_id": 1}, "name": "_id_"}), Document.of(_UNIQUE)
    return TableSchema(id=A, name=_name("a"), valid_from=moment(100), indexes=indexes), _name("a")


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


def _ddl(feed: KafkaFeed, type: DdlType, at: int, ddl: DownstreamDdl, table: TableId = A) -> None:
    event = DdlEvent(position=moment(at, 0), type=type, db="shop", table=_name("a"), id=table)
    scope = Scope(tables=frozenset({table}), ended=frozenset({table}))
    record = DdlRecord(event=event, scope=scope, seen_at=ClusterTime(at, 1).to_datetime())
    feed.sink.ddl("c/1", feed.permit).apply(ddl, Observation(tables={}), record)


def _copy(feed: KafkaFeed, at: int, documents: Sequence[dict[str, Any]]) -> None:
    loader = feed.sink.loader(7, target(), feed.permit)
    loader.load(list(map(bson.encode, documents)), ClusterTime(at, 1))
    loader.finish()


def _mark(feed: KafkaFeed, at: int, b: int | None = None) -> None:
    """`b`: how far table B is, if it is behind."""
    tables = {} if b is None else {B: moment(b)}
    feed.sink.marks("c/1", feed.permit).mark(moment(at), tables, list(map(_name, "abc")))


def _first_part(feed: KafkaFeed) -> None:
    """A table with a unique index is copied, emptied, and copied again, while its rows change. A window is sent twice."""
    update, delete = RowType.UPDATE, RowType.DELETE
    feed.claim(_schema())
    _copy(feed, 102, [{"_id": n, "u": n} for n in range(1, 8)])
    for _ in range(2):
        feed.window([*(_change(update, A, 101, n, n, x=1) for n in range(1, 10)), _change(delete, A, 103, 1, 7)])
    feed.sink.ddl("c/1", feed.permit).recopy(A, _name("a"), moment(105))
    _copy(feed, 107, [{"_id": n, "u": n, "x": 1} for n in range(1, 7)])
    exchanged = [
        *(_change(update, A, 106, n, n, u=n) for n in range(1, 7)),
        *(_change(update, A, 108, n, n, u=n + 10) for n in range(1, 7)),
        *(_change(update, A, 109, n, n, u=7 - n) for n in range(1, 7)),
        _change(delete, A, 109, 8, 1),
        _change(RowType.INSERT, A, 109, 9, 8, u=6),
    ]
    feed.window(exchanged)
    _mark(feed, 110)


def _second_part(feed: KafkaFeed) -> None:
    """DDL of each kind between rows of two tables, one of them behind. What a zombie sends again comes late."""
    update, new = RowType.UPDATE, RowType.INSERT
    feed.window([_change(update, A, 111, n, n, n=n) for n in range(2, 7)])
    _ddl(feed, DdlType.CREATE_INDEXES, 115, CreateIndexes(name=_name("a"), indexes=(Document.of(_PLAIN),)))
    _ddl(feed, DdlType.CREATE, 116, CreateTable(name=_name("b"), options=Document.of({})), B)
    feed.window([_change(update, A, 120, n, n, n=-n, u=20 + n) for n in range(2, 7)])
    feed.window([_change(update, A, 109, n, n, u=7 - n) for n in range(1, 7)])
    feed.window([_change(new, B, 118, n, n, "b", by="create") for n in range(7)])
    _ddl(feed, DdlType.RENAME, 122, RenameTable(name=_name("b"), to=_name("c"), replaces=False), B)
    _ddl(feed, DdlType.RENAME, 122, RenameTable(name=_name("b"), to=_name("c"), replaces=False), B)
    _ddl(feed, DdlType.DROP_INDEXES, 125, DropIndexes(name=_name("a"), indexes=("n_1",)))
    _mark(feed, 130, b=120)


def _third_part(feed: KafkaFeed) -> None:
    end = CopyEnd(table=A, name=_name("a"), start=moment(105), at=moment(108))
    feed.sink.ddl("c/1", feed.permit).copied(end)
    feed.window([_change(RowType.UPDATE, B, 124, n, n, "c", by="rename") for n in range(1, 7)])
    _ddl(feed, DdlType.CREATE, 132, CreateTable(name=_name("gone"), options=Document.of({})), _GONE)
    _ddl(feed, DdlType.DROP, 133, DropTables(names=(_name("gone"),)), _GONE)
    feed.window([_change(RowType.REPLACE, A, 131, n, n, u=n) for n in range(2, 5)])
    _mark(feed, 140)


_PARTS = (_first_part, _second_part, _third_part)


@contextmanager
def _reader(feed: KafkaFeed, **options: Any) -> Iterator[KafkaReader]:
    with closing(KafkaReader(partial(kafka_clients, feed.options), feed.options, **options)) as reader:
        assert reader.identity() == ("orders", "c/1")
        yield reader


def _read(feed: KafkaFeed, target_uri: str) -> None:
    with _reader(feed) as reader, closing(MongoReplica(connect(target_uri), reader, "orders", "c/1")) as replica:
        replica.begin()
        while replica.follow() or reader.more:
            pass


def _shown(reader: KafkaReader) -> list[str]:
    round = reader.look()
    return [_text(shown.content) for shown in reader.read(round)] if round is not None else []


def _text(content: StoredMessage | CopyBegins | Copied) -> str:
    if not isinstance(content, StoredMessage):
        return "copied" if isinstance(content, Copied) else "copy"
    fields = content.fields
    match fields["op"]:
        case "ddl":
            return f"{fields['type']} {fields['ns']}"
        case "b":
            return f"schema {fields['ns']}"
        case op:
            return f"{op}{fields['key']['_id']}"


def test_each_message_is_shown_once_in_the_order_of_the_source(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka, "encoding=bson")
    with pytest.raises(NotFoundError, match="no changefeed has written"), _reader(feed):
        pass
    _first_part(feed)
    updates = [f"u{n}" for n in range(1, 7)]
    with _reader(feed) as reader:
        assert _shown(reader) == [
            *("copy", "schema shop.a", *updates, "u7", "u8", "u9"),
            *(*sorted(f"r{n}" for n in range(1, 8)), "d7"),
            *("recopy shop.a", "copy", *updates, *sorted(f"r{n}" for n in range(1, 7))),
            *(*updates, *updates, "d1", "i8"),
        ]
        assert _shown(reader) == []
        _second_part(feed)
        changed = [f"u{n}" for n in range(2, 7)]
        made = [f"i{n}" for n in range(7)]
        assert _shown(reader) == [
            *(*changed, "createIndexes shop.a", "create shop.b", *made, *changed),
            "dropIndexes shop.a",
        ]
        _third_part(feed)
        assert _shown(reader) == [
            *("rename shop.b", *(f"u{n}" for n in range(1, 7)), "copied"),
            *("R2", "R3", "R4", "create shop.gone", "drop shop.gone"),
        ]


def _reads_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches of few messages, and few of these are a round."""
    monkeypatch.setattr(topic_reader, "AT_ONCE", 3)
    monkeypatch.setattr(held_rows, "MANY", 5)


def test_what_is_much_is_shown_in_several_rounds(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one topic, so that each partition has all watermarks, whichever is read last."""
    feed = _grown(kafka, 3, "topic={prefix}.all")
    with _reader(feed) as reader:
        at_once = _shown(reader)
        assert not reader.more
    _reads_little(monkeypatch)
    rounds: list[list[str]] = []
    with _reader(feed) as reader:
        while (round := reader.look()) is not None:
            rounds.append([_text(shown.content) for shown in reader.read(round)])
            assert reader.more is (reader.mark.at < moment(140))
    assert len(rounds) > 1
    assert sorted(chain.from_iterable(rounds)) == sorted(at_once)
    assert rounds[0] == at_once[: len(rounds[0])]


def test_a_reader_goes_on_from_a_bookmark(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka)
    _first_part(feed)
    with _reader(feed) as reader:
        first = _shown(reader)
        _second_part(feed)
        round = reader.look()
        assert round is not None
        bookmark = reader.bookmark
        second = [_text(shown.content) for shown in reader.read(round)]
    with _reader(feed) as reader:
        assert [_text(shown.content) for shown in reader.skim(round.before, bookmark)] == [
            "schema shop.a",
            "recopy shop.a",
        ]
        assert [_text(shown.content) for shown in reader.read(round)] == second
    topic = feed.topics.of(_name("a"))
    ends = {number for number in range(6) if f'"{number}": 0' not in bookmark}
    removed = [TopicPartition(topic, number, 1) for number in ends]
    assert removed
    admin = AdminClient(kafka.client)
    for future in admin.delete_records(removed).values():
        future.result(PATIENCE_SECONDS)
    with _reader(feed) as reader:
        list(reader.skim(round.before, bookmark))
        assert [_text(shown.content) for shown in reader.read(round)] == second
    with _reader(feed) as reader, pytest.raises(MessageGap, match="some were removed"):
        _shown(reader)
    assert first


def test_a_message_that_was_removed_from_between_others_is_a_gap(kafka: KafkaBroker) -> None:
    """The end of a transaction has an offset, too, and no message."""
    feed = KafkaFeed(kafka)
    feed.claim()
    topic = feed.topics.of(_name("a"))
    producer = Producer({**kafka.client, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"other", partition=0)
    producer.commit_transaction(30)
    feed.window([insert(200 + n, n) for n in range(30)])
    _mark(feed, 300)
    with _reader(feed) as reader, pytest.raises(MessageGap, match="no compaction"):
        _shown(reader)


def test_a_copied_document_is_not_lost_that_was_read_just_before_the_copy_begins(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka)
    feed.claim(_schema())
    _mark(feed, 100)
    with _reader(feed) as reader:
        assert _shown(reader) == []
        loader = feed.sink.loader(7, target(), feed.permit)
        loader.load([bson.encode({"_id": 1})], ClusterTime(100, 1).previous())
        loader.finish()
        _mark(feed, 101)
        assert _shown(reader) == ["copy", "schema shop.a", "r1"]


@pytest.mark.parametrize("large", ["claim_check", "key_only"])
def test_a_message_that_was_too_large_is_found_where_it_is(kafka: KafkaBroker, tmp_path: Path, large: str) -> None:
    claims = f"&claims=file%3A%2F%2F{tmp_path}" if large == "claim_check" else ""
    feed = KafkaFeed(kafka, f"large={large}{claims}")
    feed.claim()
    feed.window([insert(200, 1, size=2 << 20), insert(200, 2)])
    _mark(feed, 210)
    if large == "key_only":
        with _reader(feed, whole=True) as reader, pytest.raises(MessageGap, match="only its key"):
            _shown(reader)
        return
    place = feed.options.claims
    assert place is not None
    with _reader(feed, claims=open_store(place)) as reader:
        round = reader.look()
        assert round is not None
        messages = [shown.content for shown in reader.read(round)]
        sizes = [
            len(each.fields["after"]["text"])
            for each in messages
            if isinstance(each, StoredMessage)
            if "after" in each.fields
        ]
        assert sorted(sizes) == [0, 2 << 20]
    with _reader(feed) as reader, pytest.raises(ConfigurationError, match="claims="):
        _shown(reader)
    for file in chain.from_iterable(folder.iterdir() for folder in (tmp_path / "claim").iterdir()):
        file.write_bytes(b"other")
    with _reader(feed, claims=open_store(place)) as reader, pytest.raises(MessageGap, match="restore it"):
        _shown(reader)


def _grown(kafka: KafkaBroker, parts: int, query: str = "") -> KafkaFeed:
    feed = KafkaFeed(kafka, query)
    for part in _PARTS[:parts]:
        part(feed)
    return feed


@pytest.mark.parametrize(
    ("parts", "every"), [(3, 31), *(pytest.param(parts, 1, marks=pytest.mark.soak) for parts in (1, 2, 3))]
)
def test_a_consumer_that_was_killed_goes_on(
    kafka: KafkaBroker,
    parts: int,
    every: int,
    target_uri: str,
    target_client: Client,
    emptied: Callable[[], None],
    death: Death,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it reads in few large rounds, or, with more to read, in many."""
    if parts == 3:
        _reads_little(monkeypatch)

    def rest(feed: KafkaFeed) -> None:
        for part in _PARTS[parts:]:
            part(feed)

    read = partial(_read, target_uri=target_uri)
    goes_on_from_each_step(
        death,
        every,
        lambda _: _grown(kafka, parts, "topic={prefix}.all" if parts == 3 else ""),
        rest,
        read,
        emptied,
        target_client,
    )


def test_a_table_that_is_in_the_way_is_refused(
    kafka: KafkaBroker, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    feed = _grown(kafka, 1)
    target_client["shop"]["a"].insert_one({"_id": "another's"})
    with pytest.raises(TargetOccupied, match=r"shop\.a"):
        _read(feed, target_uri)
    assert target_client["shop"]["a"].count_documents({}) == 1
    target_client["shop"]["a"].drop()
    _read(feed, target_uri)
    assert len(state(target_client)["a"][0]) == 6


@pytest.mark.soak
def test_a_user_who_may_only_read_can_consume(own_kafka: Callable[..., KafkaBroker]) -> None:
    """READ on the topics with the prefix, and nothing else: no consumer group, no rights on the cluster."""
    security = KafkaSecurity(["reader"])
    broker = own_kafka(security=security)
    name, password = ADMINISTRATOR, security.passwords[ADMINISTRATOR]
    feed = KafkaFeed(broker, "sasl=PLAIN", user=f"{name}:{password}@")
    feed.claim()
    feed.window([insert(200, 1)])
    _mark(feed, 210)
    feed.open("sasl=PLAIN", user=f"reader:{security.passwords['reader']}@")
    with pytest.raises(SinkRefused, match="rights"):
        _identity(feed)
    allowed = AclBinding(
        *(ResourceType.TOPIC, feed.prefix, ResourcePatternType.PREFIXED, "User:reader", "*"),
        *(AclOperation.READ, AclPermissionType.ALLOW),
    )
    admin = AdminClient(broker.client)
    for answer in admin.create_acls([allowed]).values():
        answer.result(PATIENCE_SECONDS)
    until(lambda: _identity(feed, refused=True), "a right that was granted")
    with _reader(feed) as reader:
        assert _shown(reader) == ["schema shop.a", "i1"]


def _identity(feed: KafkaFeed, *, refused: bool = False) -> bool:
    """`refused`: a broker may not know yet what it was told about rights."""
    try:
        with _reader(feed):
            return True
    except SinkRefused:
        if refused:
            return False
        raise
