"""What the owner says in topics: DDL, schemas, watermarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.records.ddl import DdlRecord, Observation, Scope
from changefeed.table import TableId, TableName, TableSchema
from devstack.kafka.broker import KafkaBroker
from sink.ddl import BeginAgain, CreateTable, DownstreamDdl, DropTables, RenameTable, Skip
from sink.messages.kafka.owner_log import KafkaMarks
from sink.messages.kafka.topic_admin import Topic, TopicAdmin
from tests.component.sink.kafka.feed import KafkaFeed
from tests.component.sink.kafka.seen import Seen, seen
from tests.component.sink.vocabulary import A, B, described, insert, moment

_NOTHING = Observation(tables={})
_ONE, _OTHER, _VIEW = TableName("shop", "a"), TableName("shop", "z"), TableName("shop", "v")
_THIRD = TableName("shop", "third")


def _record(type: DdlType, at: int, table: TableId = A, **more: Any) -> DdlRecord:
    event = DdlEvent(position=moment(at, 0), type=type, db="shop", table=_ONE, id=table, **more)
    return DdlRecord(event=event, scope=Scope(tables=frozenset({table})), seen_at=datetime.now(UTC))


def _apply(feed: KafkaFeed, ddl: DownstreamDdl, record: DdlRecord) -> str:
    return feed.sink.ddl().apply(ddl, _NOTHING, record)


def _said(feed: KafkaFeed, *names: TableName) -> list[Seen]:
    found = seen(feed.broker, *map(feed.topics.of, names))
    return [each for each in found if each.headers["sluice.op"] == "ddl"]


def _ddl_topic(feed: KafkaFeed) -> list[str]:
    return [each.json["type"] for each in seen(feed.broker, feed.topics.ddl) if each.headers["sluice.op"] == "ddl"]


def test_a_rename_is_in_each_partition_of_both_topics_and_the_same_when_it_is_repeated(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka)
    feed.claim()
    for _ in range(2):
        _apply(feed, RenameTable(name=_ONE, to=_OTHER, replaces=False), _record(DdlType.RENAME, 200))
    for name in (_ONE, _OTHER):
        found = _said(feed, name)
        assert Counter(each.partition for each in found) == dict.fromkeys(range(6), 2)
        assert {each.headers["sluice.pos"] for each in found} == {"000000C800000001.40000000000000"}
        assert len({each.value for each in found}) == 1
    assert _ddl_topic(feed) == ["rename", "rename"]


def test_a_created_table_has_its_topic_before_its_first_row(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka, "partitions=2&topic.retention.ms=3600000")
    feed.claim()
    _apply(feed, CreateTable(name=_OTHER, options=Document.of({})), _record(DdlType.CREATE, 200, B))
    assert {each.partition for each in _said(feed, _OTHER)} == {0, 1}
    assert kafka.settings(feed.topics.of(_OTHER))["retention.ms"] == "3600000"
    own = kafka.settings(feed.topics.ddl)
    assert (own["retention.ms"], kafka.settings(feed.topics.watermark)["cleanup.policy"]) == ("-1", "compact")


def test_a_new_topic_that_no_broker_shows_yet_gets_its_ddl(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = KafkaFeed(kafka, "partitions=2")
    feed.claim()
    shown, asked = TopicAdmin.existing, Counter[str]()

    def later(admin: TopicAdmin, names: Iterable[str], *, rights: bool = False) -> dict[str, Topic]:
        names = list(names)
        asked.update(names)
        return shown(admin, [name for name in names if asked[name] > 2], rights=rights)

    with monkeypatch.context() as lagging:
        lagging.setattr(TopicAdmin, "existing", later)
        _apply(feed, CreateTable(name=_OTHER, options=Document.of({})), _record(DdlType.CREATE, 200, B))
        _apply(feed, RenameTable(name=_OTHER, to=_THIRD, replaces=False), _record(DdlType.RENAME, 201, B))
    for name in (_OTHER, _THIRD):
        assert {each.partition for each in _said(feed, name)} == {0, 1}


def test_a_topic_is_called_deleted_only_if_no_broker_shows_it_for_a_while(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = KafkaFeed(kafka)
    feed.claim()
    answers: Iterator[dict[str, Topic]] = iter([{}, {}])
    shown = TopicAdmin.existing

    def lagging(admin: TopicAdmin, names: Iterable[str], *, rights: bool = False) -> dict[str, Topic]:
        found = next(answers, None)
        return shown(admin, names, rights=rights) if found is None else found

    monkeypatch.setattr(TopicAdmin, "existing", lagging)
    feed.window([insert(A, 200, 1)])
    assert len(feed.rows()) == 1


def test_a_table_that_begins_again_is_said_with_its_schema(kafka: KafkaBroker) -> None:
    """In its topic, too, though it may have got its name while it stood. Its copy may be interrupted before that says it."""
    feed = KafkaFeed(kafka, "partitions=2")
    feed.claim()
    again = TableSchema(id=A, name=_OTHER, valid_from=moment(200, 0))
    _apply(feed, BeginAgain(name=_OTHER, schema=again), _record(DdlType.ENTER, 200))
    for topic in (feed.topics.of(_OTHER), feed.topics.ddl):
        found = seen(kafka, topic)
        for partition in {each.partition for each in found}:
            said = [each for each in found if each.partition == partition][-2:]
            assert [each.headers["sluice.op"] for each in said] == ["ddl", "b"]
            assert len({each.headers["sluice.pos"] for each in said}) == 1
    assert {each.partition for each in seen(kafka, feed.topics.of(_OTHER))} == {0, 1}


def test_views_and_skipped_ddl_are_in_no_topic_of_rows(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka)
    feed.claim()
    view = CreateTable(name=_VIEW, options=Document.of({"viewOn": "a", "pipeline": []}))
    _apply(feed, view, _record(DdlType.CREATE, 200, TableId("view:shop.v")))
    _apply(feed, DropTables(names=(_VIEW,)), _record(DdlType.DROP, 201, TableId("view:shop.v")))
    assert _apply(feed, Skip(note="left out"), _record(DdlType.RENAME, 202)) == "left out"
    assert _ddl_topic(feed) == ["create", "drop"]
    assert feed.topics.of(_VIEW) not in kafka.topics()
    assert feed.topics.of(_OTHER) not in kafka.topics()


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def _marks(feed: KafkaFeed, clock: _Clock) -> KafkaMarks:
    return KafkaMarks(feed.sink._sender(), feed.sink._format, feed.options.partitions, monotonic=clock)


def _marked(feed: KafkaFeed) -> Counter[int]:
    found = seen(feed.broker, feed.topics.of(_ONE))
    return Counter(each.partition for each in found if each.headers["sluice.op"] == "w")


def test_marks_go_to_partitions_with_messages_and_now_and_then_to_all(kafka: KafkaBroker) -> None:
    feed, clock = KafkaFeed(kafka), _Clock()
    feed.claim()
    marks = _marks(feed, clock)
    everywhere = dict.fromkeys(range(6), 1)
    marks.mark(moment(300), {}, [_ONE, _OTHER])
    assert _marked(feed) == everywhere
    feed.window([insert(A, 301, 1)])
    (row,) = feed.rows()
    clock.now += 1
    marks.mark(moment(302), {}, [_ONE])
    assert _marked(feed) == {**everywhere, row.partition: 2}
    clock.now += 1
    marks.mark(moment(303), {}, [_ONE])
    assert _marked(feed) == {**everywhere, row.partition: 2}
    clock.now += 60
    marks.mark(moment(304), {}, [_ONE])
    assert _marked(feed) == {**dict.fromkeys(range(6), 2), row.partition: 3}
    newest = seen(kafka, feed.topics.watermark)
    assert [each.json["pos"][:8] for each in newest] == ["0000012C", "0000012E", "0000012F", "00000130"]
    assert {each.key for each in newest} == {b"watermark"}


def test_a_mark_names_the_tables_that_are_behind_or_is_that_of_the_lowest(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka)
    feed.claim(described(), described(B, "b"))
    marks = _marks(feed, _Clock())
    marks.mark(moment(300), MappingProxyType({B: moment(250)}), [_ONE])
    many = {TableId(f"{number:032x}"): moment(200 + number) for number in range(1001)}
    marks.mark(moment(5000), many, [_ONE])
    first, second = (each.json for each in seen(kafka, feed.topics.watermark))
    assert (first["pos"][:8], {table: pos[:8] for table, pos in first["tables"].items()}) == (
        "0000012C",
        {B: "000000FA"},
    )
    assert (second["pos"][:8], second["tables"]) == (f"{ClusterTime(200, 1).to_int() >> 32:08X}", "all")
