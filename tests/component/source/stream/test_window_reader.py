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
from pymongo import WriteConcern

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import EventTooLarge, HistoryLost, SourceUnavailable
from changefeed.position import Position, Window
from devstack.mongodb.server import MongoDB
from source.connection import Client, connect
from source.stream.change_event import scan
from source.stream.window_reader import ReadOptions, WindowReader
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
    filling = bytes(16_000)  # the rows fill several replies
    with connect(server.uri) as client:
        start = now(client)
        rows = client["shop"].get_collection("rows", write_concern=WriteConcern("majority"))  # no kill may lose a row
        for first in range(0, 3000, 1000):
            rows.insert_many([{"_id": first + number, "filling": filling} for number in range(1000)])
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
    root = str(Path(__file__).parents[4])
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
        more_than_a_reply = [{"_id": number, "filling": bytes(10_000)} for number in range(3000)]
        client["shop"]["rows"].insert_many(more_than_a_reply)
        options = replace(only("shop"), patience=timedelta(seconds=1))
        batches = WindowReader(client, options).read(Window(start, now(client)))
        next(batches)
        server.kill()
        with pytest.raises(SourceUnavailable):
            list(batches)


_MB = 1 << 20
_LARGE = 16 * _MB - 1_000


def filled(id: Any, size: int, **fields: Any) -> dict[str, Any]:
    """A document with this many bytes of filling."""
    document = {"_id": id, "filling": b"", **fields}
    return {**document, "filling": bytes(size - len(bson.encode(document)))}


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("large")
    with (
        MongoDB("large", directory / "data", directory / "log") as server,
        connect(server.uri) as client,
    ):
        yield client


def test_events_larger_than_a_reply_are_read_in_parts(version: Client, database: str) -> None:
    rows, key = version[database]["rows"], "k" * 9_000
    start = now(version)
    rows.insert_many([{"_id": number} for number in range(100)])
    rows.insert_one(filled(key, _LARGE, t=1))
    rows.insert_many([{"_id": number} for number in range(100, 150)])
    rows.replace_one({"_id": key}, filled(key, _LARGE, u=2))
    rows.update_one({"_id": key}, {"$set": {"filling": bytes(_LARGE - 9_100) + b"x"}})
    rows.update_one({"_id": key}, {"$set": {"u": 3}})
    rows.delete_one({"_id": key})
    rows.insert_one({"_id": "last"})
    end = now(version)
    events = read(version, database, Window(start, end))
    large = [event for event in events if event["documentKey"]["_id"] == key]
    assert len({event["_id"]["_data"] for event in events}) == len(events)
    assert [event["documentKey"]["_id"] for event in events] == [
        *range(100), key, *range(100, 150), key, key, key, key, "last"
    ]  # fmt: skip
    assert [event["operationType"] for event in large] == ["insert", "replace", "update", "update", "delete"]
    assert bson.encode(large[0]["fullDocument"]) == bson.encode(filled(key, _LARGE, t=1))
    assert bson.encode(large[1]["fullDocument"]) == bson.encode(filled(key, _LARGE, u=2))
    assert large[2]["updateDescription"]["updatedFields"]["filling"] == bytes(_LARGE - 9_100) + b"x"


def test_a_large_update_below_the_top_level_is_whole(version: Client, database: str) -> None:
    """From 5.0 on it is read from the oplog, which has it as a diff."""
    rows, key, filling = version[database]["rows"], "k" * 9_000, bytes(_LARGE - 9_100)
    rows.insert_one({"_id": key, "deep": {"a": 1}})
    start = now(version)
    rows.update_one({"_id": key}, {"$set": {"deep.filling": filling}})
    [update] = read(version, database, Window(start, now(version)))
    assert update["updateDescription"]["updatedFields"] == {"deep.filling": filling}


def test_a_window_that_begins_or_ends_at_a_large_event(version: Client, database: str) -> None:
    rows, key = version[database]["rows"], "k" * 9_000
    start = now(version)
    rows.insert_one({"_id": 1})
    rows.insert_one(filled(key, _LARGE))
    rows.insert_one({"_id": 2})
    end = now(version)
    batches = WindowReader(version, only(database)).read(Window(start, end))
    [place] = [scan(event).position for batch in batches for event in batch.events if len(event) > _MB]
    before, after = (read(version, database, window) for window in (Window(start, place), Window(place, end)))
    assert [event["documentKey"]["_id"] for event in before] == [1]
    assert [event["documentKey"]["_id"] for event in after] == [key, 2]


def test_a_large_event_in_a_transaction_is_whole(version: Client, database: str) -> None:
    """From 5.0 on the reply's own token leaves no room for the event, so it is read from the transaction's oplog entries."""
    rows, key = version[database]["rows"], "k" * 9_000
    rows.insert_one({"_id": "first"})
    start = now(version)
    with version.start_session() as session, session.start_transaction():
        rows.insert_one({"_id": 1}, session=session)
        rows.insert_one(filled(key, _LARGE), session=session)
        rows.insert_one({"_id": 2}, session=session)
    events = read(version, database, Window(start, now(version)))
    assert [event["documentKey"]["_id"] for event in events] == [1, key, 2]
    assert events[1]["fullDocument"] == filled(key, _LARGE)


def test_a_document_that_a_transaction_changes_twice_is_told(version: Client, database: str) -> None:
    """The event does not say which of the operations it belongs to."""
    rows, key = version[database]["rows"], "k" * 9_000
    rows.insert_one({"_id": "first"})
    start = now(version)
    with version.start_session() as session, session.start_transaction():
        rows.insert_one(filled(key, _LARGE, n=0), session=session)
        rows.update_one({"_id": key}, {"$set": {"n": 1}}, session=session)
    batches = list(WindowReader(version, only(database)).read(Window(start, now(version))))
    unreadable = [batch.unreadable for batch in batches if batch.unreadable]
    assert len(unreadable) == (0 if version.server_info()["versionArray"][0] < 5 else 1)


@pytest.mark.since("6.0")
def test_images_that_are_too_large_together_are_read_one_by_one(source: Client, database: str) -> None:
    rows = source[database].create_collection("rows", changeStreamPreAndPostImages={"enabled": True})
    start = now(source)
    rows.insert_one(filled(1, 9 * _MB))
    rows.update_one({"_id": 1}, {"$set": {"filling": bytes(9 * _MB), "a": 1}})
    images = replace(only(database), after=True, before=True)
    batches = list(WindowReader(source, images).read(Window(start, now(source))))
    _, update = [bson.decode(event) for batch in batches for event in batch.events]
    assert update["fullDocumentBeforeChange"] == filled(1, 9 * _MB)
    assert update["fullDocument"] == {"_id": 1, "filling": bytes(9 * _MB), "a": 1}


def test_a_change_whose_key_has_megabytes_is_told_by_name(version: Client, database: str) -> None:
    """The resume token holds the key twice, and the reply of 5.0 and later holds the token. Before 5.0 the reader may continue after the event."""
    rows, key = version[database]["rows"], "k" * (6 * _MB)
    start = now(version)
    rows.insert_one({"_id": "small"})
    rows.insert_one({"_id": key})
    rows.insert_one({"_id": "behind"})
    end, found = now(version), []
    try:
        for batch in WindowReader(version, only(database)).read(Window(start, end)):
            found += [batch.unreadable or scan(event).key for event in batch.events]
    except EventTooLarge as error:
        found += [str(error)]
    small, told, *behind = found
    assert small == bson.encode({"_id": "small"})
    assert f"insert of {database}.rows, its " in told
    assert "--start initial" in told
    assert len(told) < 1_000
    assert behind == ([bson.encode({"_id": "behind"})] if version.server_info()["versionArray"][0] < 5 else [])
