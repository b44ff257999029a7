"""The records of sync points on a real server: what the time of a mark includes, and what an old owner can still do."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import bson
import pytest
from pymongo import monitoring

from changefeed.cluster_time import ClusterTime
from changefeed.errors import FencedError, SinkRefused
from changefeed.event import RowType
from changefeed.records.sync_point import ExceptedTable, SyncPoint
from changefeed.table import TableId, TableName
from devstack.mongodb.server import Client
from sink.mongodb.commander import Commander
from sink.mongodb.connection import connect
from sink.mongodb.letters.dead_letter import Kept, id_of
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.mongodb.rows.rows_ahead import ROWS_AHEAD, RowsAhead
from sink.mongodb.sync_marks import SYNC_POINTS, SyncMarks, readable_for, stored_points
from sink.row import SourceRow
from tests.component.sink.mongodb.rows.written_rows import made, permit, table_of

A, B = TableId("a" * 32), TableId("b" * 32)
POINT = ClusterTime(1_795_000_020, 0)
KEEP = timedelta(hours=1)

pytestmark = pytest.mark.since("5.0")


@pytest.fixture
def feed() -> str:
    return f"feed-{uuid.uuid4().hex}"


@pytest.fixture
def marks(target_uri: str, feed: str, database: str) -> Iterator[SyncMarks]:
    marks = SyncMarks(connect(target_uri), feed, TableName(database, "letters"), lambda: 30.0)
    yield marks
    marks.close()


def point(target: ClusterTime, *, at: ClusterTime = POINT) -> SyncPoint:
    excepted = ExceptedTable(
        source=(TableName("s", "a"),), target=(TableName("t", "a"), TableName("t", "b")), why="open"
    )
    return SyncPoint(source=at, target=target, excepted=(excepted,), made_at=datetime(2026, 1, 1, tzinfo=UTC))


def as_of(client: Client, name: TableName, ts: ClusterTime) -> list[int]:
    concern = {"level": "snapshot", "atClusterTime": ts.to_bson()}
    found = client[name.db].cursor_command({"find": name.coll, "filter": {}, "readConcern": concern})
    return sorted(row["_id"] for row in found)


def test_the_time_of_a_mark_has_what_was_acknowledged_before_and_nothing_later(
    target_client: Client, marks: SyncMarks, database: str
) -> None:
    rows = target_client[database]["rows"]
    for key in range(20):
        rows.insert_one({"_id": key})
        at = marks.mark(ClusterTime(POINT.seconds + key, 0)).target_ts
        rows.insert_one({"_id": 1000 + key})
        assert as_of(target_client, TableName(database, "rows"), at) == [*range(key + 1), *range(1000, 1000 + key)]


def test_a_record_proves_nothing_before_it_is_done(target_client: Client, marks: SyncMarks, feed: str) -> None:
    marked = marks.mark(POINT)
    assert stored_points(target_client, feed, 10) == []
    marks.record(point(marked.target_ts), KEEP)
    assert stored_points(target_client, feed, 10) == [point(marked.target_ts)]


def test_a_mark_that_an_old_owner_sends_late_changes_no_record_that_is_done(
    target_client: Client, marks: SyncMarks, feed: str
) -> None:
    done = point(marks.mark(POINT).target_ts)
    marks.record(done, KEEP)
    with pytest.raises(SinkRefused, match="duplicate"):
        marks.mark(POINT)
    assert stored_points(target_client, feed, 10) == [done]


def test_an_owner_whose_term_is_over_writes_nothing(target_uri: str, target_client: Client, feed: str) -> None:
    marks = SyncMarks(connect(target_uri), feed, None, lambda: 0.0)
    with pytest.raises(FencedError):
        marks.mark(POINT)
    marks.close()
    assert target_client[SYNC_POINTS.db][SYNC_POINTS.coll].find_one({"feed": feed}) is None


def test_old_records_go_and_do_not_come_back(target_client: Client, marks: SyncMarks, feed: str) -> None:
    old, new = point(marks.mark(POINT).target_ts), ClusterTime(POINT.seconds + 7200, 0)
    marks.record(old, KEEP)
    marks.record(newest := point(marks.mark(new).target_ts, at=new), KEEP)
    marks.record(old, KEEP)
    assert stored_points(target_client, feed, 10) == [newest]


def test_tables_with_letters_and_with_newer_rows_are_told(
    target_uri: str, target_client: Client, marks: SyncMarks, feed: str, database: str
) -> None:
    commander = Commander(
        connect(target_uri), permit=lambda: 10.0, retry_for=timedelta(seconds=10), patience=timedelta(seconds=10)
    )
    commander.begin()
    ahead = RowsAhead(feed)
    ahead.note(commander, A, ClusterTime(POINT.seconds - 60, 1))
    assert marks.mark(POINT).newer == frozenset()
    ahead.note(commander, A, ClusterTime(POINT.seconds + 1, 1))
    target_client[database]["letters"].insert_one({"_id": id_of(feed, Kept.LETTER, B, "row")})
    later = ClusterTime(POINT.seconds + 1, 0)
    marked = marks.mark(later)
    assert (marked.newer, marked.refused) == (frozenset({A}), frozenset({B}))
    passed = ClusterTime(POINT.seconds + 60, 0)
    marks.record(point(marks.mark(passed).target_ts, at=passed), KEEP)
    assert target_client[ROWS_AHEAD.db][ROWS_AHEAD.coll].find_one({"_id": f"{feed}/{A}"}) is None


def test_notes_of_rows_that_are_read_soon_after_cost_one_write(
    target_uri: str, target_client: Client, feed: str
) -> None:
    commander = Commander(
        connect(target_uri), permit=lambda: 10.0, retry_for=timedelta(seconds=10), patience=timedelta(seconds=10)
    )
    commander.begin()
    notes, ahead = target_client[ROWS_AHEAD.db][ROWS_AHEAD.coll], RowsAhead(feed)
    ahead.note(commander, A, POINT)
    [first] = notes.find({"_id": f"{feed}/{A}"})
    ahead.note(commander, A, ClusterTime(POINT.seconds + 4, 9))
    assert list(notes.find({"_id": f"{feed}/{A}"})) == [first]
    RowsAhead(None).note(commander, B, POINT)
    assert notes.find_one({"_id": f"{feed}/{B}"}) is None


def test_a_server_tells_how_long_it_can_be_read(target_client: Client) -> None:
    assert readable_for(target_client) == timedelta(seconds=300)


class _Sent(monitoring.CommandListener):
    """The collections that commands wrote, in their order."""

    def __init__(self) -> None:
        self.wrote: list[str] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name in ("findAndModify", "update", "insert", "bulkWrite"):
            self.wrote.append(str(event.command.get(event.command_name)))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


def test_a_table_is_noted_before_a_row_of_it_is_written_as_the_source_has_it_now(
    target_uri: str, target_client: Client, feed: str, database: str
) -> None:
    """A node may die between the two, and another have the table."""
    sent = _Sent()
    table = table_of(target_client[database]["rows"])
    read_ts = ClusterTime(POINT.seconds + 30, 2)
    there = bson.encode({"_id": 1, "v": 7})
    with Client(target_uri, event_listeners=[sent]) as client:
        writer = MongoRowWriter(
            client,
            permit=permit,
            options=RowWriterOptions(compared=feed),
            fetch=lambda _: SourceRow(there, read_ts),
        )
        result = writer.write([made(table, RowType.UPDATE, 1, update={"updatedFields": {"v": 1}})], replay=False)
    assert result.tally.repaired == 1
    assert target_client[database]["rows"].find_one() == {"_id": 1, "v": 7}
    note = target_client[ROWS_AHEAD.db][ROWS_AHEAD.coll].find_one({"_id": f"{feed}/{table.id}"})
    assert note is not None
    assert ClusterTime.from_bson(note["until"]) >= read_ts
    assert "rows" in sent.wrote[sent.wrote.index(ROWS_AHEAD.coll) + 1 :]
