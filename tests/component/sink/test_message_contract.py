"""The contract of sinks of messages: what tasks, processors and owners write into a folder, a bucket or topics is read back in the order
of the source, each message once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import RowRejected, TargetOccupied
from changefeed.event import DdlType
from changefeed.records.ddl import Scope
from changefeed.table import TableKind, TableName, TableSchema, view_id
from sink.ddl import CreateTable, DropTables, RenameTable, create_copy
from sink.sink import TaskTerms
from sluice_client.feed_reader import StoredMessage
from sluice_client.pos import pos_of
from tests.component.sink.messages import Messages, filed, in_topics
from tests.component.sink.vocabulary import (
    NOTHING_SEEN,
    A,
    B,
    described,
    insert,
    moment,
    named,
    recorded,
    target,
    text_of,
)
from tests.simulation.messages.broker import ModelBroker
from tests.simulation.messages.broker_clients import BrokerClients
from tests.unit.sink.messages.changes import no_utf8

_BOTH = described(A), described(B, "b")
_COPIED = described(A, copied=True)


@pytest.fixture
def model_of_kafka(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The simulation's."""
    clients = BrokerClients(ModelBroker())
    monkeypatch.setattr("sink.messages.kafka.kafka_clients.Producer", clients.producer)
    monkeypatch.setattr("sink.messages.kafka.kafka_clients.AdminClient", clients.admin)
    monkeypatch.setattr("sink.messages.kafka.feed_topic.Consumer", clients.consumer)
    monkeypatch.setattr("sink.messages.kafka.topic_reader.Consumer", clients.consumer)
    return SimpleNamespace(bootstrap="model:9092")


@pytest.fixture(params=["folder", "topics", "modelled topics"])
def messages(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Messages]:
    match request.param:
        case "folder":
            made = filed(f"file://{tmp_path}/orders")
        case "folder by table":
            made = filed(f"file://{tmp_path}/orders?layout=hive")
        case "bucket":
            made = filed(request.getfixturevalue("bucket"))
        case "bucket by table":
            made = filed(f"{request.getfixturevalue('bucket')}&layout=hive&format=bson")
        case "modelled topics":
            made = in_topics(request.getfixturevalue("model_of_kafka"))
        case _:
            made = in_topics(request.getfixturevalue("kafka"))
    with closing(made):
        yield made


in_a_bucket_too = pytest.mark.parametrize(
    "messages",
    ["folder", "folder by table", "bucket", "bucket by table", "topics", "modelled topics"],
    indirect=True,
)
"""What each kind of store has a part in. Beyond that, a bucket differs from a folder below the port of stores, which has a contract of its own."""


@in_a_bucket_too
def test_each_message_is_shown_once_before_the_mark(messages: Messages) -> None:
    """Windows of two nodes overlap, hold more than they say, and are written again. What a zombie sends comes late."""
    messages.claim(described())
    first, second, third, late = (insert(A, at, key) for at, key in ((101, 1), (106, 2), (112, 3), (119, 4)))
    messages.window(100, 110, [first, second, third, late])
    reader = messages.reader()
    assert messages.read(reader) == []
    messages.mark(105)
    assert messages.read(reader) == ["schema shop.a", "i1@101"]
    assert messages.read(reader) == []
    messages.window(105, 120, [second, third, late], epoch=8)
    messages.window(100, 115, [first, second, third], epoch=9)
    messages.mark(118)
    assert messages.read(reader) == ["i2@106", "i3@112"]
    messages.window(100, 110, [first, second])
    messages.window(120, 130, [insert(A, 121, 5)])
    messages.mark(130)
    assert messages.read(reader) == ["i4@119", "i5@121"]
    assert messages.read() == ["schema shop.a", "i1@101", "i2@106", "i3@112", "i4@119", "i5@121"]


@in_a_bucket_too
def test_windows_without_rows_are_passed(messages: Messages) -> None:
    """They write nothing, also those of a node whose table goes to another one between two rows."""
    messages.claim(described())
    reader = messages.reader()
    messages.window(100, 110, [])
    messages.mark(110)
    assert messages.read(reader) == ["schema shop.a"]
    messages.window(110, 120, [insert(A, 111, 1)])
    messages.window(120, 130, [])
    messages.window(130, 140, [], epoch=8)
    messages.window(140, 150, [insert(A, 141, 2)], epoch=8)
    messages.mark(150)
    assert messages.read(reader) == ["i1@111", "i2@141"]
    assert messages.read() == ["schema shop.a", "i1@111", "i2@141"]


@in_a_bucket_too
def test_ddls_stand_in_their_place_each_once(messages: Messages) -> None:
    messages.claim(described())
    messages.window(100, 103, [insert(A, 101, 1)])
    for _ in range(2):
        messages.apply(RenameTable(name=named("a"), to=named("z"), replaces=False), DdlType.RENAME, 103)
        messages.apply(CreateTable(name=named("b"), options=Document.of({})), DdlType.CREATE, 104, B)
    messages.window(103, 110, [insert(A, 105, 2, "z")])
    created = moment(104, 0)
    messages.window(104, 110, [insert(B, 106, 3, "b")], described(B, "b", created), epoch=8, since=created)
    for _ in range(2):
        messages.apply(DropTables(names=(named("z"),)), DdlType.DROP, 110)
    messages.window(110, 120, [], described(B, "b"))
    messages.mark(120)
    made = ["rename shop.a", "create shop.b", "i2@105", "i3@106", "drop shop.z"]
    assert messages.read() == ["schema shop.a", "i1@101", *made]


@in_a_bucket_too
def test_a_copied_document_stands_at_the_time_of_its_reading(messages: Messages) -> None:
    messages.claim(_COPIED)
    for at in (102, 104):
        messages.copy(100, at, [{"_id": 7, "at": at}])
    messages.window(100, 110, [insert(A, 103, 7), insert(A, 106, 8)])
    messages.copied(100, 105)
    messages.mark(110)
    shown = ["copy", "schema shop.a", "r7@102", "i7@103", "r7@104", "copied", "i8@106"]
    assert messages.read() == shown


def test_a_copy_goes_on_until_it_is_said_to_be_complete(messages: Messages) -> None:
    messages.claim(_COPIED)
    reader = messages.reader()
    messages.copy(100, 102, [{"_id": 7, "at": 102}])
    messages.window(100, 105, [insert(A, 103, 8)])
    messages.mark(105)
    assert messages.read(reader) == ["copy", "schema shop.a", "r7@102", "i8@103"]
    messages.copy(100, 107, [{"_id": 9, "at": 107}])
    messages.window(105, 110, [insert(A, 106, 10)])
    messages.mark(110)
    assert messages.read(reader) == ["i10@106", "r9@107"]
    messages.window(110, 120, [insert(A, 111, 11)])
    messages.copied(100, 110)
    messages.mark(120)
    assert messages.read(reader) == ["copied", "i11@111"]


def test_what_was_read_just_before_the_copys_start_is_shown(messages: Messages) -> None:
    messages.claim(_COPIED)
    messages.mark(100)
    reader = messages.reader()
    assert messages.read(reader) == []
    messages.copy(100, ClusterTime(100, 1).previous(), [{"_id": 7, "at": 99}])
    messages.window(100, 110, [insert(A, 101, 8)])
    for _ in range(2):
        messages.copied(100, 101)
    messages.mark(110)
    shown = messages.read(reader)
    assert shown[:3] == ["copy", "schema shop.a", "r7@99"]
    assert sorted(shown[3:]) == ["copied", "i8@101"]


def test_a_copy_that_begins_again_is_said(messages: Messages) -> None:
    messages.claim(_COPIED)
    messages.copy(100, 102, [{"_id": 7, "at": 102}])
    for _ in range(2):
        messages.ddl.emptied(A, named("a"), moment(105))
    messages.copy(105, 107, [{"_id": 8, "at": 107}])
    messages.window(105, 110, [insert(A, 109, 9)])
    messages.copied(105, 108)
    messages.mark(110)
    assert messages.read() == ["copy", "schema shop.a", "r7@102", "recopy shop.a", "copy", "r8@107", "copied", "i9@109"]


def test_a_copy_is_said_to_begin_before_anything_of_it_is_there(messages: Messages) -> None:
    """A DDL that does not empty the table came before its first chunk, so a watermark has passed the beginning."""
    messages.claim(_COPIED)
    messages.ddl.begin([_COPIED])
    messages.window(100, 105, [], _COPIED)
    messages.mark(105)
    reader = messages.reader()
    begun = ["copy", "schema shop.a"]
    assert messages.read(reader) == begun
    messages.copy(100, 107, [{"_id": 7, "at": 107}])
    messages.window(105, 110, [])
    messages.copied(100, 108)
    messages.mark(110)
    rest = ["r7@107", "copied"]
    assert messages.read(reader) == rest
    assert messages.read() == [*begun, *rest]


def test_a_table_that_is_emptied_before_its_first_chunk_begins_where_it_came(messages: Messages) -> None:
    """Seed 9920269 of the simulation, with unique indexes: it began where its copy had begun for the last time."""
    messages.claim(_COPIED)
    messages.ddl.begin([_COPIED])
    reader = messages.reader()
    for at in (105, 108):
        messages.ddl.emptied(A, named("a"), moment(at))
    messages.mark(106)
    first = ["copy", "schema shop.a", "recopy shop.a", "copy"]
    assert messages.read(reader) == first
    messages.copy(108, 109, [{"_id": 7, "at": 109}], tables=(described(A, at=moment(108), copied=True),))
    messages.ddl.emptied(A, named("a"), moment(110))
    last = described(A, at=moment(110), copied=True)
    messages.copy(110, 111, [{"_id": 7, "at": 111}], tables=(last,))
    messages.window(110, 120, [insert(A, 115, 8)], last)
    messages.copied(110, 112)
    messages.mark(120)
    again = ["recopy shop.a", "copy", "r7@109", "recopy shop.a", "copy", "r7@111", "copied", "i8@115"]
    assert messages.read(reader) == again
    assert messages.read() == [*first, *again]


def test_what_a_copy_has_read_behind_its_end_is_not_shown(messages: Messages) -> None:
    """Whoever read it did not know of the DDL yet. It may be what another table had that got the name (seed 1 of the simulation, into topics)."""
    messages.claim(_COPIED)
    messages.copy(100, 102, [{"_id": 7, "at": 102}])
    messages.copy(100, 107, [{"_id": 8, "at": 107}])
    messages.window(100, 105, [])
    messages.ddl.emptied(A, named("a"), moment(105))
    again = (described(A, at=moment(105), copied=True),)
    messages.copy(105, 107, [{"_id": 8, "at": 107}], tables=again)
    messages.copy(105, 108, [{"_id": 9, "at": 108}], tables=again)
    messages.copy(105, 112, [{"_id": 10, "at": 112}], tables=again)
    messages.window(105, 110, [], *again)
    messages.apply(DropTables(names=(named("a"),)), DdlType.DROP, 110)
    messages.mark(120)
    first = ["copy", "schema shop.a", "r7@102"]
    assert messages.read() == [*first, "recopy shop.a", "copy", "r8@107", "r9@108", "drop shop.a"]


def test_a_begin_that_is_tried_again_begins_without_the_tables_that_have_ended_meanwhile(messages: Messages) -> None:
    messages.claim(*_BOTH)
    again = described(A, at=moment(105))
    messages.claim(again)
    messages.window(105, 110, [insert(A, 106, 1)], again)
    messages.mark(110)
    assert messages.read() == ["schema shop.a", "i1@106"]


@pytest.mark.parametrize("before", ["nothing", "a part of a copy", "rows"])
def test_a_copy_anew_that_is_interrupted_at_once_begins_at_the_interruption(messages: Messages, before: str) -> None:
    """Nothing of it was written, so no row says what the table was where it began."""
    messages.claim(described(A, copied=before == "a part of a copy"))
    match before:
        case "a part of a copy":
            messages.copy(100, 102, [{"_id": 1, "at": 102}])
        case "rows":
            messages.window(100, 110, [insert(A, 101, 1)])
    messages.begin_again(110)
    messages.ddl.emptied(A, named("a"), moment(115))
    messages.mark(115)
    reader = messages.reader()
    shown = messages.read(reader)
    assert shown[-3:] == ["recopy shop.a", "copy", "schema shop.a"]
    if before == "rows":
        assert shown[:-3] == ["schema shop.a", "i1@101"]
    again = (described(A, at=moment(115)),)
    messages.copy(115, 117, [{"_id": 2, "at": 117}], tables=again)
    messages.window(115, 120, [], *again)
    messages.copied(115, 118)
    messages.mark(120)
    rest = ["recopy shop.a", "copy", "r2@117", "copied"]
    assert messages.read(reader) == rest
    assert messages.read() == [*shown, *rest]


def test_a_table_that_is_dropped_before_anything_of_its_copy_anew_is_there_is_gone(messages: Messages) -> None:
    messages.claim(described())
    messages.window(100, 110, [insert(A, 101, 1)])
    messages.begin_again(110)
    messages.apply(DropTables(names=(named("a"),)), DdlType.DROP, 115)
    messages.mark(120)
    assert messages.read() == ["schema shop.a", "i1@101", "recopy shop.a", "copy", "schema shop.a", "drop shop.a"]


def test_a_table_that_is_copied_anew_lacks_what_is_skipped(messages: Messages) -> None:
    messages.claim(described())
    messages.window(100, 105, [insert(A, 101, 1)])
    messages.mark(120, a=105)
    reader = messages.reader()
    assert messages.read(reader) == ["schema shop.a", "i1@101"]
    messages.begin_again(110, skipped_from=moment(105))
    again = (described(A, at=moment(110)),)
    messages.copy(110, 112, [{"_id": 2, "at": 112}], tables=again)
    messages.window(110, 130, [], *again)
    messages.copied(110, 113)
    messages.mark(130)
    round = reader.look()
    assert round is not None
    shown = [each.content for each in reader.read(round)]
    assert list(map(text_of, shown)) == ["recopy shop.a", "copy", "schema shop.a", "r2@112", "copied"]
    assert isinstance(shown[0], StoredMessage)
    assert shown[0].fields["skipped"] == {"from": pos_of(moment(105)), "to": pos_of(moment(110))}


def test_a_table_that_is_behind_is_shown_as_far_as_it_is(messages: Messages) -> None:
    messages.claim(*_BOTH)
    reader = messages.reader()
    messages.window(100, 110, [insert(A, 101, 1), insert(B, 102, 2, "b")], *_BOTH)
    messages.window(110, 120, [insert(A, 111, 3)])
    messages.mark(120, b=110)
    assert messages.read(reader) == ["schema shop.a", "schema shop.b", "i1@101", "i2@102", "i3@111"]
    messages.window(110, 130, [insert(A, 121, 4), insert(B, 112, 5, "b")], *_BOTH)
    messages.mark(130)
    assert messages.read(reader) == ["i5@112", "i4@121"]


def test_a_table_whose_create_waits_is_shown_once_it_is_told(messages: Messages) -> None:
    messages.claim(described())
    reader = messages.reader()
    messages.window(100, 120, [insert(A, 101, 1)])
    messages.mark(120, b=105)
    assert messages.read(reader) == ["schema shop.a", "i1@101"]
    messages.apply(CreateTable(name=named("b"), options=Document.of({})), DdlType.CREATE, 105, B)
    messages.window(105, 130, [insert(B, 106, 2, "b")], described(B, "b", moment(105)))
    messages.window(120, 130, [insert(A, 121, 3)])
    messages.mark(130)
    assert messages.read(reader) == ["create shop.b", "i2@106", "i3@121"]


def test_a_database_that_was_dropped_is_shown_once_all_its_tables_have_come_to_that(messages: Messages) -> None:
    messages.claim(*_BOTH)
    reader = messages.reader()
    messages.window(100, 110, [insert(A, 101, 1)])
    messages.window(100, 105, [insert(B, 102, 2, "b")], _BOTH[1])
    messages.mark(120, a=110, b=105)
    assert messages.read(reader) == ["schema shop.a", "schema shop.b", "i1@101", "i2@102"]
    messages.window(105, 110, [insert(B, 106, 3, "b")], _BOTH[1])
    dropped = recorded(DdlType.DROP_DATABASE, 110)
    of_all = Scope(tables=frozenset({A, B}), ended=frozenset({A, B}))
    dropped = replace(dropped, event=replace(dropped.event, table=None, id=None), scope=of_all)
    messages.ddl.apply(DropTables(names=(named("a"), named("b"))), NOTHING_SEEN, dropped)
    messages.mark(130)
    assert messages.read(reader) == ["i3@106", "dropDatabase shop"]


def test_a_reader_never_goes_back_for_an_old_owners_late_mark(messages: Messages) -> None:
    messages.claim(*_BOTH)
    reader = messages.reader()
    messages.window(100, 110, [insert(A, 101, 1), insert(A, 108, 2), insert(B, 104, 3, "b")], *_BOTH)
    messages.mark(110)
    assert len(messages.read(reader)) == 5
    messages.mark(105, b=103)
    assert messages.read(reader) == []
    messages.window(110, 120, [insert(A, 111, 4), insert(B, 112, 5, "b")], *_BOTH)
    messages.mark(120, b=110)
    assert messages.read(reader) == ["i4@111"]
    messages.mark(120)
    assert messages.read(reader) == ["i5@112"]


def test_a_reader_goes_on_from_a_bookmark(messages: Messages) -> None:
    messages.claim(described())
    messages.window(100, 110, [insert(A, 101, 1), insert(A, 102, 2)])
    messages.mark(110)
    reader = messages.reader()
    assert len(messages.read(reader)) == 3
    messages.ddl.emptied(A, named("a"), moment(112))
    messages.window(110, 130, [insert(A, 111, 3), insert(A, 121, 4)])
    messages.mark(120)
    round, bookmark = reader.look(), reader.bookmark
    assert round is not None
    shown = [each.content for each in reader.read(round)]
    other = messages.reader()
    skimmed = [each.content for each in other.skim(round.before, bookmark)]
    assert [each.fields["op"] for each in skimmed if isinstance(each, StoredMessage)] == ["b"]
    assert [each.content for each in other.read(round)] == shown
    messages.mark(130)
    assert messages.read(other) == messages.read(reader) == ["i4@121"]


def test_a_view_that_is_there_at_the_start_has_the_id_of_its_later_ddl(messages: Messages) -> None:
    """Whatever its name downstream is."""
    messages.claim()
    options = Document.of({"viewOn": "a", "pipeline": []})
    view = TableSchema(
        id=view_id(named("v")), name=named("v"), kind=TableKind.VIEW, options=options, valid_from=moment(100)
    )
    messages.ddl.apply(
        create_copy(view, TableName("copy", "v"), lambda name: TableName("copy", name.coll)), NOTHING_SEEN
    )
    messages.apply(DropTables(names=(TableName("copy", "v"),)), DdlType.DROP, 105, view.id)
    messages.mark(110)
    reader = messages.reader()
    round = reader.look()
    assert round is not None
    shown = [text_of(each.content) for each in reader.read(round) if each.table == view.id]
    assert shown == ["schema copy.v", "drop copy.v"]


def test_a_text_that_has_no_json_stops_its_table_alone(messages: Messages) -> None:
    messages.claim(*_BOTH)
    good = insert(A, 101, 1)
    bad = good._replace(document=no_utf8({"_id": 1, "text": "??"}))
    writer = messages.sink.writer(TaskTerms(epoch=7))
    loader = messages.sink.loader(target(A), TaskTerms(epoch=7), once=False)
    for attempt in (
        lambda: writer.begin(lambda _: False).prepare([insert(B, 101, 2, "b"), good, bad], replay=False),
        lambda: loader.load([bson.encode({"_id": 2}), bad.document or b""], ClusterTime(101, 1)),
    ):
        with pytest.raises(RowRejected, match=r"shop\.a {'_id': 1}.*not UTF-8.*sluice table recopy.*=bson") as refused:
            attempt()
        assert refused.value.table == A
    messages.window(100, 110, [insert(B, 102, 3, "b")], _BOTH[1])
    messages.mark(110, a=100)
    assert messages.read() == ["schema shop.b", "i3@102"]


@in_a_bucket_too
def test_a_place_is_that_of_one_life_of_a_changefeed(messages: Messages) -> None:
    assert list(messages.sink.obstacles([named("a")])) == []
    for _ in range(2):
        messages.claim(described())
    messages.sink.confirm()
    messages.window(100, 110, [insert(A, 101, 1)])
    assert len(list(messages.sink.obstacles([named("a")]))) == 1
    with pytest.raises(TargetOccupied):
        messages.claim(described(), life="c/2")
    with pytest.raises(TargetOccupied):
        messages.sink_of("c/2").confirm()
