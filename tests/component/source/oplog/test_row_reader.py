"""A range of the oplog is complete, or an error says why not: with members that lag, fail or truncate, and with mostly unwanted entries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pymongo import WriteConcern
from pymongo.errors import PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SourceUnavailable
from changefeed.position import Position, Window
from changefeed.table import TableName
from devstack.mongodb.server import TESTING, MongoDB
from devstack.process import wait_until
from source.connection import Client, connect
from source.oplog import find
from source.oplog.row_entry import scan
from source.oplog.row_reader import OplogReader
from source.oplog.window import majority_time, newest_time
from source.stream.change_event import table_name
from tests.conftest import ReplicaSets
from tests.forgetful import forget

SOON = timedelta(seconds=1)
LONG = timedelta(seconds=60)


def read(reader: OplogReader, window: Window, table: TableName) -> int:
    """The number of the table's rows in the window."""
    found = 0
    for batch in reader.read(window):
        mine = sum(table_name(scan(event).ns) == table for event in batch.events)
        reader.took(mine, len(batch.events))
        found += mine
    return found


def since(client: Client, start_ts: ClusterTime) -> Window:
    return Window(Position(start_ts), Position(newest_time(client).next()))


def test_history_that_was_removed_is_never_passed_over_in_silence(forgetful: MongoDB) -> None:
    with connect(forgetful.uri) as client:
        start_ts = majority_time(client)
        client.shop.a.insert_one({"_id": 1})
        window = since(client, start_ts)
        assert read(OplogReader(client, [], patience=SOON), window, TableName("shop", "a")) == 1
        forget(client, start_ts.to_bson())
        with pytest.raises(HistoryLost, match=r"begins at \d+\.\d+, but history from .* is needed.* create it again"):
            read(OplogReader(client, [], patience=SOON), since(client, start_ts), TableName("shop", "a"))


def test_a_range_is_read_from_its_start_wherever_that_is(source_client: Client, database: str) -> None:
    """At the beginning of a second too: from the last time before it that has 32 bits, the server would scan the oplog from its beginning."""
    rows = source_client[database]["rows"]
    rows.insert_many([{} for _ in range(5_000)])
    first = newest_time(source_client).seconds
    assert wait_until(lambda: rows.insert_one({}).acknowledged and newest_time(source_client).seconds > first, 30)
    start_ts = ClusterTime(newest_time(source_client).seconds, 0)
    end_ts = newest_time(source_client).next()
    before = _examined(source_client)
    found = [entry for batch in find.entries(source_client, start_ts, end_ts, {}) for entry in batch]
    assert found
    assert _examined(source_client) - before < 2_500


def _examined(client: Client) -> int:
    return int(client.admin.command("serverStatus")["metrics"]["queryExecutor"]["scannedObjects"])


def test_a_range_whose_place_is_removed_is_asked_for_again_and_only_then_called_lost(
    forgetful: MongoDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For rows and DDL: a lost cursor does not mean that the wanted history is lost."""
    monkeypatch.setattr(find, "MOST_ENTRIES", 2)
    with connect(forgetful.uri) as client:
        start_ts = majority_time(client)
        client.shop.a.insert_many([{"_id": f"removed {number}"} for number in range(9)])
        end_ts = newest_time(client).next()
        replies = find.entries(client, start_ts, end_ts, {})
        next(replies)
        forget(client, end_ts.to_bson())
        with pytest.raises(SourceUnavailable, match="removed under the cursor"):
            list(replies)
        with pytest.raises(HistoryLost):
            list(find.entries(client, start_ts, end_ts, {}))


def test_a_member_that_lags_is_waited_for(own_replica_set: ReplicaSets) -> None:
    """Another member has majority-committed the range's end. A member that is behind returns the complete range or nothing."""
    members = own_replica_set("rs", parameters=TESTING)
    table = TableName("shop", "a")
    with connect(members.uri) as client:
        rows = client["shop"].get_collection("a", write_concern=WriteConcern("majority"))
        rows.insert_one({"_id": 0})
        start_ts = majority_time(client).next()
        members.hold_majority()
        try:
            rows.with_options(write_concern=WriteConcern(1)).insert_many([{"_id": number} for number in range(1, 10)])
            window = since(client, start_ts)
            with pytest.raises(SourceUnavailable):
                _impatiently(client, window, table)
        finally:
            members.release_majority()
        assert read(OplogReader(client, [], patience=LONG), window, table) == 9


def _impatiently(client: Client, window: Window, table: TableName) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(find, "_LONGEST_MS", 300)
        read(OplogReader(client, [], patience=timedelta()), window, table)


def test_a_primary_that_steps_down_under_the_reader_loses_nothing(own_replica_set: ReplicaSets) -> None:
    members = own_replica_set("rs", parameters=TESTING)
    table = TableName("shop", "a")
    with connect(members.uri) as client:
        rows = client["shop"].get_collection("a", write_concern=WriteConcern("majority"))
        members.wait_until_whole()
        rows.insert_one({"_id": "every member's oplog holds this"})
        start_ts = majority_time(client).next()
        rows.insert_many([{"_id": number, "filling": "x" * 100_000} for number in range(600)])
        window = since(client, start_ts)
        reader = OplogReader(client, [], patience=LONG)
        stepped, found = threading.Event(), []
        for batch in reader.read(window):
            found += [scan(event).key for event in batch.events if table_name(scan(event).ns) == table]
            if not stepped.is_set():
                members.step_down()
                stepped.set()
        assert len(found) == len(set(found)) == 600


def test_the_history_of_one_member_is_not_vouched_for_by_another(own_replica_set: ReplicaSets) -> None:
    """The primary changes between a range's first reply and the read of the oldest entry. The new primary may keep older entries."""
    members = own_replica_set("rs", parameters=TESTING)
    with connect(members.uri) as client, pytest.MonkeyPatch.context() as patched:
        members.wait_until_whole()
        rows, whole_ts = (
            client["shop"].get_collection("a", write_concern=WriteConcern("majority")),
            majority_time(client),
        )
        while (end_ts := majority_time(client).next()).seconds == whole_ts.seconds:
            rows.insert_one({})
        start_ts = ClusterTime(end_ts.seconds, 0)
        """Each member's oplog begins before it. No entry directly precedes it, so the reader asks for the oldest entry."""
        look, elections = find.refuse_a_gap, [members.step_down]

        def look_after_an_election(*arguments: Any) -> None:
            if elections:
                elections.pop()()
                _until_a_primary_answers(client)
            look(*arguments)

        patched.setattr(find, "refuse_a_gap", look_after_an_election)  # runs the election between the two reads
        entries = find.entries(client, start_ts, end_ts, {})
        with pytest.raises(SourceUnavailable, match="another member is read"):
            next(entries)
        assert next(find.entries(client, start_ts, end_ts, {}))


def _until_a_primary_answers(client: Client) -> None:
    def answers() -> bool:
        try:
            client.admin.command("ping")
        except PyMongoError:
            return False
        return True

    assert wait_until(answers, 60.0)


def test_what_nobody_wants_is_left_to_the_server_once_it_is_most(client_of: Client, database: str) -> None:
    """A range that starts unfiltered continues with a filter by the wanted names, without losing or repeating a row. Transactions are always read."""
    client, table = client_of, TableName(database, "wanted")
    start_ts = majority_time(client).next()
    db = client[database]
    filling = "x" * 2_000
    for turn in range(6):
        db["noise"].insert_many([{"filling": filling} for _ in range(6_000)])
        db["wanted"].insert_one({"_id": turn})
        with client.start_session() as session, session.start_transaction():
            db["noise"].insert_one({}, session=session)
            db["wanted"].insert_one({"_id": -1 - turn}, session=session)
    window = since(client, start_ts)
    reader = OplogReader(client, [str(table)], patience=SOON)
    shown = _counted(reader)
    assert read(reader, window, table) == 12
    first = shown()
    assert first < 36_000, "the server was never asked for less"
    assert read(reader, window, table) == 12
    assert shown() - first < 200


@pytest.fixture
def client_of(source_uri: str) -> Any:
    with connect(source_uri) as client:
        yield client


def _counted(reader: OplogReader) -> Callable[[], int]:
    """The number of entries that the reader has yielded."""
    total = [0]
    inner = reader.read

    def counting(window: Window) -> Any:
        for batch in inner(window):
            total[0] += len(batch.events)
            yield batch

    reader.read = counting  # type: ignore[method-assign]
    return lambda: total[0]
