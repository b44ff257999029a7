"""Both DDL watches against a real server: the order of events, which times are resolved and when, and resumption."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, RetryableError
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from devstack.mongodb.server import TESTING, MongoDB
from source.connection import Client, connect
from source.ddl_watch import DdlWatch
from source.majority_watch import MajorityWatch
from source.one_deployment import OneDeployment, open_ddl_watch
from source.oplog.window import majority_time, newest_time, read_oplog_window
from source.stream.note import NoteKeeper
from source.stream.stream_ddl_watch import ChangeStreamCursor, ResumingDdlWatch
from source.tables.catalog import read_catalog
from tests.forgetful import forget
from tests.until import PATIENCE_SECONDS

SOON = "&serverSelectionTimeoutMS=500&w=majority"


@pytest.fixture(scope="module")
def client(source_uri: str) -> Iterator[Client]:
    with connect(source_uri) as client:
        yield client


@pytest.fixture(params=[pytest.param(Capture.CHANGE_STREAM, marks=pytest.mark.since("6.0")), Capture.OPLOG], ids=str)
def origin(request: pytest.FixtureRequest) -> Capture:
    return Capture(request.param)


@pytest.fixture
def watch(client: Client, origin: Capture) -> Iterator[DdlWatch]:
    with closing(open_ddl_watch(client, Position(newest_time(client).next()), origin)) as watch:
        watch.poll()
        yield watch


def until_resolved(watch: DdlWatch, time_ts: ClusterTime) -> list[DdlEvent]:
    """Every DDL up to and including this time, with retries as an owner does them."""
    events: list[DdlEvent] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            batch = watch.poll()
        except RetryableError:
            continue
        events += batch.events
        if batch.resolved.ts > time_ts:
            return events
    raise AssertionError(f"{time_ts} was not resolved in {PATIENCE_SECONDS} s")


def poll_on(watch: DdlWatch) -> None:
    while True:
        watch.poll()


def of_database(events: list[DdlEvent], database: str) -> list[str]:
    return [
        f"{event.type} {event.table.coll if event.table else ''}".strip() for event in events if event.db == database
    ]


def workload(client: Client, database: str) -> None:
    db = client[database]
    db.implicit.insert_one({"_id": 1})
    db.create_collection("capped", capped=True, size=4096, max=3)
    db.create_collection("valid", validator={"qty": {"$gte": 0}})
    db.orders.create_index([("a", 1), ("b", -1)], unique=True, name="ab")
    db.orders.create_index("at", expireAfterSeconds=3600, name="at")
    db.command({"collMod": "orders", "index": {"name": "at", "expireAfterSeconds": 7200}})
    db.orders.drop_index("ab")
    db.create_collection("v", viewOn="orders", pipeline=[{"$match": {"a": 1}}])
    db.implicit.rename("renamed")
    db.valid.rename("renamed", dropTarget=True)
    db.capped.drop()
    db.v.drop()


def test_a_range_that_takes_the_server_too_long_is_read_in_shorter_ones_by_the_same_watch(
    own_mongodb: Callable[..., MongoDB], database: str
) -> None:
    with (
        connect(own_mongodb("slow", parameters=TESTING).uri) as client,
        closing(open_ddl_watch(client, Position(newest_time(client).next()), Capture.OPLOG)) as watch,
    ):
        watch.poll()
        client[database].create_collection("t")
        too_long = {"failCommands": ["find"], "namespace": "local.oplog.rs", "errorCode": 50}
        client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=too_long)
        assert watch.poll().events == ()
        assert "create t" in of_database(until_resolved(watch, newest_time(client)), database)


def test_the_whole_history_comes_in_order(client: Client, watch: DdlWatch, database: str) -> None:
    workload(client, database)
    events = until_resolved(watch, newest_time(client))
    assert of_database(events, database) == [
        "create implicit",
        "create capped",
        "create valid",
        "create orders",
        "createIndexes orders",
        "createIndexes orders",
        "modify orders",
        "dropIndexes orders",
        "create v",
        "rename implicit",
        "rename valid",
        "drop capped",
        "drop v",
    ]
    positions = [event.position for event in events]
    assert positions == sorted(set(positions))


@pytest.mark.since("6.0")
def test_both_watches_tell_the_same_history_in_the_same_words(client: Client, database: str) -> None:
    start = Position(newest_time(client).next())
    workload(client, database)
    end = newest_time(client)
    told = []
    for origin in (Capture.CHANGE_STREAM, Capture.OPLOG):
        with closing(open_ddl_watch(client, start, origin)) as watch:
            events = [event for event in until_resolved(watch, end) if event.db == database]
        told.append(
            [(e.position.ts, e.type, e.table, e.id, e.renamed_to, e.drop_target, str(e.description)) for e in events]
        )
    assert told[0] == told[1]
    assert len(told[0]) == 13


def test_creates_of_one_transaction_have_positions_in_order(client: Client, watch: DdlWatch, database: str) -> None:
    with client.start_session() as session, session.start_transaction():
        for name in ("first", "second"):
            client[database].create_collection(name, session=session)
        client[database].first.insert_one({"_id": 1}, session=session)
    created = [event for event in until_resolved(watch, newest_time(client)) if event.db == database]
    assert [str(event.table) for event in created] == [f"{database}.first", f"{database}.second"]
    assert created[0].position < created[1].position
    with client.watch(start_at_operation_time=created[0].position.ts.to_bson()) as stream:
        inserted = next(change for change in stream if change["ns"] == {"db": database, "coll": "first"})
    if inserted["clusterTime"] == created[0].position.ts.to_bson():
        assert created[0].position < Position(created[0].position.ts, inserted["_id"]["_data"])


def test_creates_of_a_transaction_of_many_entries_are_found_among_its_rows(
    own_mongodb: Callable[..., MongoDB], database: str
) -> None:
    """The watch does not read entries of the transaction that hold only rows, but the position of a create counts their rows."""
    parameters = {**TESTING, "maxNumberOfTransactionOperationsInSingleOplogEntry": "2"}
    with connect(own_mongodb("chaining", parameters=parameters).uri) as client:
        start = Position(newest_time(client).next())
        with client.start_session() as session, session.start_transaction():
            db = client[database]
            db.create_collection("first", session=session)
            db.first.insert_many([{} for _ in range(4)], session=session)
            db.create_collection("second", session=session)
            db.second.insert_many([{} for _ in range(3)], session=session)
        with closing(open_ddl_watch(client, start, Capture.OPLOG)) as watch:
            created = [event for event in until_resolved(watch, newest_time(client)) if event.db == database]
    assert [str(event.table) for event in created] == [f"{database}.first", f"{database}.second"]
    assert [event.position.token for event in created] == ["00000000", "00000005"]


def test_an_idle_source_is_resolved_without_its_own_no_ops(
    own_mongodb: Callable[..., MongoDB], origin: Capture, database: str
) -> None:
    with connect(own_mongodb("silent", parameters={"writePeriodicNoops": "false"}).uri) as client:
        start = Position(newest_time(client).next())
        with closing(open_ddl_watch(client, start, origin)) as watch:
            for _ in range(3):
                client[database].rows.insert_one({})
                until_resolved(watch, newest_time(client))


def test_a_busy_source_is_resolved(client: Client, watch: DdlWatch, database: str) -> None:
    stop = threading.Event()

    def keep_writing() -> None:
        while not stop.is_set():
            client[database].busy.insert_many([{"n": n} for n in range(20)])

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        for _ in range(5):
            until_resolved(watch, newest_time(client))
    finally:
        stop.set()
        writer.join()


def test_an_idle_source_is_not_made_to_write_again_and_again(
    own_mongodb: Callable[[str], MongoDB], origin: Capture
) -> None:
    """Uses a server of its own, so that only this test's watch writes notes."""
    with (
        connect(own_mongodb("idle").uri) as client,
        closing(open_ddl_watch(client, Position(newest_time(client).next()), origin)) as watch,
    ):
        client.shop.rows.insert_one({})
        until_resolved(watch, newest_time(client))
        began = newest_time(client)
        for _ in range(10):
            watch.poll()
        noted = client.local["oplog.rs"].count_documents(
            {"ts": {"$gt": began.to_bson()}, "o.sluice": {"$exists": True}}
        )
        assert noted <= 3


@pytest.mark.since("6.0")
def test_a_killed_cursor_loses_nothing(client: Client, database: str) -> None:
    with closing(open_ddl_watch(client, Position(newest_time(client).next()), Capture.CHANGE_STREAM)) as watch:
        client[database].create_collection("before")
        seen = until_resolved(watch, newest_time(client))
        inner: Any = watch
        cursor_id = inner._cursor._stream._cursor_id
        killed = client.admin.command("killCursors", "$cmd.aggregate", cursors=[cursor_id])
        assert killed["cursorsKilled"] == [cursor_id]
        client[database].create_collection("after")
        seen += until_resolved(watch, newest_time(client))
    assert of_database(seen, database) == ["create before", "create after"]


@pytest.mark.since("5.0")  # a 4.4.2 alone in its set may refuse to start after a kill: getOplogTruncateAfterPoint
def test_a_server_that_is_killed_and_comes_back_loses_nothing(
    own_mongodb: Callable[[str], MongoDB], origin: Capture
) -> None:
    server = own_mongodb("source")
    with connect(server.uri + SOON) as client:
        watch = open_ddl_watch(client, Position(majority_time(client)), origin)
        client.shop.create_collection("before")
        seen = until_resolved(watch, newest_time(client))
        server.kill()
        with pytest.raises(RetryableError):
            poll_on(watch)
        server.start()
        with connect(server.uri) as patient:
            patient.shop.create_collection("after")
            seen += until_resolved(watch, newest_time(patient))
        watch.close()
    assert of_database(seen, "shop") == ["create before", "create after"]


@pytest.mark.since("5.0")  # a 4.4.2 alone in its set may refuse to start after a kill: getOplogTruncateAfterPoint
def test_the_first_open_may_fail_and_the_next_succeed(own_mongodb: Callable[[str], MongoDB], origin: Capture) -> None:
    server = own_mongodb("source")
    with connect(server.uri + SOON) as client:
        watch = open_ddl_watch(client, Position(majority_time(client)), origin)
        client.shop.create_collection("orders")
        written_ts = newest_time(client)
        server.kill()
        with pytest.raises(RetryableError):
            watch.poll()
        server.start()
        assert of_database(until_resolved(watch, written_ts), "shop") == ["create orders"]
        watch.close()


@pytest.mark.since("6.0")
def test_a_refused_note_becomes_a_heartbeat_that_is_no_ddl(client: Client, database: str) -> None:
    class NoNotes(NoteKeeper):
        def _append_note(self) -> ClusterTime:
            client.admin.command("appendOplogNoteThatIsUnknown", 1)
            raise AssertionError("the server knew it")

    cursor = ChangeStreamCursor(client, sharded=False)
    client.drop_database("__sluice")
    with closing(
        ResumingDdlWatch(cursor, Position(newest_time(client).next()), NoNotes(client), MajorityWatch(client), str)
    ) as watch:
        watch.poll()
        names: list[str] = []
        events: list[DdlEvent] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while client["__sluice"]["heartbeat"].count_documents({}) == 0:
            assert time.monotonic() < deadline, "the server's own no-ops were always faster"
            names.append(f"t{len(names)}")
            client[database].create_collection(names[-1])
            events += until_resolved(watch, newest_time(client))
    assert [str(event.table) for event in events] == [f"{database}.{name}" for name in names]


def test_a_source_that_is_told_to_move_on_has_something_newer_that_is_no_ddl(
    client: Client, watch: DdlWatch, origin: Capture
) -> None:
    until_resolved(watch, newest_time(client))
    before_ts = newest_time(client)
    OneDeployment(client, origin).move_on()
    written = client.local["oplog.rs"].find_one({"ts": {"$gt": before_ts.to_bson()}, "o.sluice": "note"})
    assert written is not None
    assert until_resolved(watch, ClusterTime.from_bson(written["ts"])) == []


def test_a_position_that_left_the_oplog_is_lost_and_the_message_says_what_is_left(
    forgetful: MongoDB, origin: Capture
) -> None:
    with connect(forgetful.uri) as client:
        start = Position(majority_time(client))
        with closing(open_ddl_watch(client, start, origin)) as watch:
            watch.poll()
        forget(client, start.ts.to_bson())
        window = read_oplog_window(client)
        assert window is not None
        assert not window.holds(start)
        assert window.remaining(start).total_seconds() <= 0
        with (
            closing(open_ddl_watch(client, start, origin)) as late,
            pytest.raises(HistoryLost, match=rf"position {start} .* oldest time available is \d+\.\d+"),
        ):
            late.poll()


@pytest.mark.since("5.0")
def test_ids_are_those_of_the_catalog_for_tables_of_every_kind(
    client: Client, watch: DdlWatch, origin: Capture, database: str
) -> None:
    client[database].create_collection("a")
    client[database].create_collection("v", viewOn="a", pipeline=[])
    client[database].create_collection("weather", timeseries={"timeField": "at", "granularity": "minutes"})
    events = until_resolved(watch, newest_time(client))
    created = {event.table: event for event in events if event.type is DdlType.CREATE and event.db == database}
    tables = read_catalog(client, lambda name: name.db == database, buckets=origin is Capture.OPLOG).tables
    assert {table.name: table.id for table in tables} == {name: event.id for name, event in created.items()}
    assert len(tables) == 3
