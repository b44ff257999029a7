from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.document import Document
from changefeed.errors import HistoryLost, SourceUnavailable
from changefeed.position import Position, Window
from devstack.mongodb import MongoDB
from source.connection import Client, connect
from source.raw_event import scan
from source.window_reader import ReadOptions, WindowReader
from tests.forgetful import forget


def now(client: Client) -> Position:
    return Position(ClusterTime.from_bson(client.admin.command("ping")["operationTime"]).next())


def only(database: str) -> ReadOptions:
    rows = {"$in": ["insert", "update", "replace", "delete"]}
    return ReadOptions(match=Document.of({"ns.db": database, "operationType": rows}))


def read(client: Client, database: str, window: Window) -> list[dict[str, Any]]:
    batches = list(WindowReader(client, only(database)).read(window))
    assert window.empty or batches[-1].reached == window.end
    return [bson.decode(event) for batch in batches for event in batch.events]


@pytest.fixture
def source(source_uri: str) -> Iterator[Client]:
    with connect(source_uri) as client:
        yield client


def test_a_window_has_what_was_written_in_it_and_nothing_else(source: Client, database: str) -> None:
    rows = source[database]["rows"]
    rows.insert_one({"_id": "before"})
    start = now(source)
    rows.insert_many([{"_id": number} for number in range(1000)])
    rows.update_one({"_id": 1}, {"$set": {"a": 1}})
    rows.delete_one({"_id": 2})
    end = now(source)
    rows.insert_one({"_id": "after"})
    events = read(source, database, Window(start, end))
    assert [event["documentKey"]["_id"] for event in events] == [*range(1000), 1, 2]
    assert [event["operationType"] for event in events[-3:]] == ["insert", "update", "delete"]


def test_a_window_on_an_idle_source_is_empty_and_ends(source: Client, database: str) -> None:
    start = now(source)
    source[database]["rows"].insert_one({})
    source[database]["rows"].delete_many({})
    end = now(source)
    assert read(source, f"{database}_other", Window(start, end)) == []


def test_windows_that_meet_inside_a_transaction_share_its_events_without_loss(source: Client, database: str) -> None:
    rows = source[database]["rows"]
    rows.insert_one({"_id": "before"})
    start = now(source)
    with source.start_session() as session, session.start_transaction():
        for number in range(6):
            rows.insert_one({"_id": number}, session=session)
    end = now(source)
    batches = WindowReader(source, only(database)).read(Window(start, end))
    places = [scan(event).position for batch in batches for event in batch.events]
    assert len({place.ts for place in places}) == 1
    for cut in places:
        parts = [Window(start, cut), Window(cut, end)]
        assert [event["documentKey"]["_id"] for part in parts for event in read(source, database, part)] == list(
            range(6)
        )


def test_contiguous_slices_give_what_the_whole_window_gives(source: Client, database: str) -> None:
    start = now(source)
    times = [start]
    for number in range(40):
        source[database]["rows"].insert_one({"_id": number})
        times.append(now(source))
    slices = [Window(times[a], times[b]) for a, b in ((0, 7), (7, 8), (8, 33), (33, 40))]
    found = [event["documentKey"]["_id"] for part in slices for event in read(source, database, part)]
    assert found == list(range(40))


def test_a_window_is_read_to_its_end_when_the_source_is_killed_in_the_middle(
    own_mongodb: Callable[[str], MongoDB],
) -> None:
    server = own_mongodb("restarted")
    filling = bytes(16_000)  # of several replies
    with connect(server.uri) as client:
        start = now(client)
        for first in range(0, 3000, 1000):
            client["shop"]["rows"].insert_many([{"_id": first + number, "filling": filling} for number in range(1000)])
        batches = WindowReader(client, only("shop")).read(Window(start, now(client)))
        seen = [scan(event).key for event in next(batch for batch in batches if batch.events).events]
        assert 0 < len(seen) < 3000
        server.kill()
        server.start()
        seen += [scan(event).key for batch in batches for event in batch.events]
    assert seen == [bson.encode({"_id": number}) for number in range(3000)]


def test_memory_is_bounded_by_replies_and_not_by_the_window(source_uri: str, source: Client, database: str) -> None:
    rows = source[database]["rows"]
    rows.insert_one({"_id": "before"})
    start = now(source)
    for first in range(0, 1010, 101):
        rows.insert_many([{"_id": first + number, "filling": bytes(160_000)} for number in range(101)])
    rows.insert_one({"_id": "largest", "filling": bytes(16 * 1024 * 1024 - 200)})
    end = now(source)
    rows.insert_one({"_id": "after"})
    script = Path(__file__).parent / "window_memory.py"
    reading = [sys.executable, str(script), source_uri, database, str(start), str(end)]
    root = str(Path(__file__).parents[3])
    done = subprocess.run(reading, check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root})
    assert done.returncode == 0, done.stderr
    events, grown = map(int, done.stdout.split()[-2:])
    assert events == 1011
    assert grown < 128 * 1024 * 1024


def test_a_window_that_left_the_oplog_is_lost_and_the_message_says_what_is_left(
    forgetful: MongoDB,
) -> None:
    with connect(forgetful.uri) as client:
        client["shop"]["rows"].insert_one({})
        start = now(client)
        client["shop"]["rows"].insert_many([{"_id": number} for number in range(100)])
        forget(client, start.ts.to_bson())
        with pytest.raises(
            HistoryLost, match=rf"reading \[{start}, .* the oldest time available is .* --start initial"
        ):
            list(WindowReader(client, only("shop")).read(Window(start, now(client))))


def test_a_source_that_stays_away_is_an_error_after_the_reader_lost_its_patience(
    own_mongodb: Callable[..., MongoDB],
) -> None:
    server = own_mongodb("gone")
    with connect(f"{server.uri}&serverSelectionTimeoutMS=200") as client:
        start = now(client)
        client["shop"]["rows"].insert_many([{"_id": number} for number in range(3000)])
        options = replace(only("shop"), patience=timedelta(seconds=1))
        batches = WindowReader(client, options).read(Window(start, now(client)))
        next(batches)
        server.kill()
        with pytest.raises(SourceUnavailable):
            list(batches)
