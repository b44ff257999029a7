"""Streams with much to skip, on each version: readers wait for them, a closed or killed reader leaves nothing running, windows end at heartbeats."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pymongo import WriteConcern

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.position import Position, Window
from devstack.mongodb.server import MongoDB
from source.connection import Client, connect
from source.one_deployment import open_ddl_watch
from source.stream.change_event import scan
from source.stream.window_reader import ReadOptions, WindowReader
from tests.component.source.stream.silent_reader import NOTHING_SLOWLY
from tests.until import until

_ENTRIES = 20_000

_SOON_SECONDS = 5.0
"""The server checks its client's connection twice a second."""


@dataclass(frozen=True)
class Quiet:
    """A source whose other tables fill the oplog from `start` on. A row of our table is at the end."""

    server: MongoDB
    client: Client
    window: Window

    def busy(self) -> list[dict[str, Any]]:
        """The operations at the server that read change streams."""
        with self.server.client() as client:
            seen = client.admin.aggregate([{"$currentOp": {"allUsers": True}}, {"$match": {"active": True}}])
            return [each for each in seen if _reads_stream(each)]

    def until(self, condition: Callable[[], object]) -> None:
        until(condition, told=self.busy)


def _reads_stream(operation: dict[str, Any]) -> bool:
    asked = operation.get("cursor", {}).get("originatingCommand") or operation.get("command", {})
    pipeline = asked.get("pipeline") or [{}]
    return "$changeStream" in pipeline[0]


def _now(client: Client) -> Position:
    return Position(ClusterTime.from_bson(client.admin.command("ping")["operationTime"]).next())


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quiet]:
    directory = tmp_path_factory.mktemp("quiet")
    server = MongoDB("quiet", directory / "data", directory / "log")
    with server, connect(server.uri) as client:
        client["ours"]["rows"].insert_one({"_id": "before"})
        start = _now(client)
        others = client["others"].get_collection("rows", write_concern=WriteConcern(1))
        others.insert_many([{"s": "x" * 150} for _ in range(_ENTRIES)], ordered=False)
        client["ours"]["rows"].insert_one({"_id": "ours"})
        yield Quiet(server, client, Window(start, _now(client)))


def _options() -> ReadOptions:
    return ReadOptions(match=Document.of({"ns.db": "ours"}))


def _reading(quiet: Quiet) -> subprocess.Popen[bytes]:
    """Starts a reader in a process of its own, and returns once the source executes the read."""
    script = Path(__file__).with_name("silent_reader.py")
    window = quiet.window
    process = subprocess.Popen([sys.executable, str(script), quiet.server.uri, str(window.start), str(window.end)])
    quiet.until(quiet.busy)
    return process


def test_what_a_killed_reader_had_running_ends(quiet: Quiet) -> None:
    process = _reading(quiet)
    process.kill()
    process.wait()
    quiet.until(lambda: not quiet.busy())


def test_silence_is_told_each_second_and_whoever_gives_up_leaves_nothing(quiet: Quiet) -> None:
    with closing(WindowReader(quiet.client, NOTHING_SLOWLY).read(quiet.window)) as batches:
        batch = next(batches)
        assert (batch.events, batch.reached) == ([], quiet.window.start)
        assert quiet.busy()
    assert not quiet.busy()


def test_a_row_behind_what_is_skipped_arrives(quiet: Quiet) -> None:
    batches = list(WindowReader(quiet.client, _options()).read(quiet.window))
    assert [scan(event).ns for batch in batches for event in batch.events]
    assert batches[-1].reached == quiet.window.end
    assert not quiet.busy()


def test_a_ddl_watch_that_is_closed_leaves_nothing(quiet: Quiet) -> None:
    with closing(open_ddl_watch(quiet.client, quiet.window.start, Capture.CHANGE_STREAM)) as watch:
        watch.poll()
    assert not quiet.busy()
