"""A target that is unreachable for a while, and one that stays unreachable."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import bson
import pytest

from changefeed.errors import FencedError, RowRejected, SinkUnavailable
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from devstack.mongodb.server import Client, MongoDB
from sink.mongodb.commander import Commander
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.row import RowChange, TargetTable
from tests.until import PATIENCE_SECONDS

_LONG = timedelta(seconds=30)
_INSERT: dict[str, Any] = {"insert": "rows", "documents": [{"_id": 1}], "writeConcern": {"w": "majority"}}


def _client(server: MongoDB) -> Client:
    return Client(server.uri, serverSelectionTimeoutMS=300)


def test_a_command_whose_answer_was_lost_is_sent_again_and_says_so(own_mongodb: Callable[[str], MongoDB]) -> None:
    server = own_mongodb("target")
    permits = iter([1.0])
    with _client(server) as client:
        client.admin.command("ping")
        server.pause()
        commander = Commander(
            client,
            permit=lambda: next(permits, 30.0),
            retry_for=_LONG,
            patience=_LONG,
            pause=lambda _: server.resume(),
        )
        commander.begin()
        reply = commander.send("shop", dict(_INSERT), "insert")
        assert (reply.again, commander.retries) == (True, 1)
        assert client["shop"]["rows"].count_documents({}) == 1


@pytest.mark.since("5.0")  # 4.4.2 does not restart if it is killed in its first second
def test_a_command_waits_for_the_target_to_come_back(own_mongodb: Callable[[str], MongoDB]) -> None:
    server = own_mongodb("target")
    with _client(server) as client, ThreadPoolExecutor(1) as pool:
        client.admin.command("ping")
        server.kill()
        commander = Commander(client, permit=lambda: 30.0, retry_for=_LONG, patience=_LONG)
        commander.begin()
        sent = pool.submit(commander.send, "shop", dict(_INSERT), "insert")
        server.start()
        assert sent.result(PATIENCE_SECONDS).document["n"] == 1


def test_waiting_ends_with_the_error_when_the_target_stays_away(own_mongodb: Callable[[str], MongoDB]) -> None:
    server = own_mongodb("target")
    options = RowWriterOptions(retry_for=_LONG, patience=timedelta(seconds=1))
    client = _client(server)
    writer = MongoRowWriter(client, permit=lambda: 3.0, options=options)
    server.kill()
    name = TableName("shop", "rows")
    table = TargetTable(id=TableId("ab" * 16), source=name, name=name)
    key = bson.encode({"_id": 1})
    with pytest.raises(SinkUnavailable, match="cannot be reached"):
        writer.write([RowChange(table, RowType.INSERT, key, key, None, 1, b"82")], replay=False)
    client.close()


def test_a_target_that_is_slow_is_not_taken_for_one_that_is_away(own_mongodb: Callable[[str], MongoDB]) -> None:
    server = own_mongodb("target")
    permits = iter([0.5, 0.5])
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            server.resume()

    with _client(server) as client:
        client.admin.command("ping")
        server.pause()
        commander = Commander(
            client,
            permit=lambda: next(permits, 30.0),
            retry_for=_LONG,
            patience=timedelta(seconds=0.4),
            pause=pause,
        )
        commander.begin()
        assert commander.send("shop", dict(_INSERT), "insert").again
        assert client["shop"]["rows"].count_documents({}) == 1
    assert len(pauses) == 2


def test_the_permit_is_asked_before_each_attempt(own_mongodb: Callable[[str], MongoDB]) -> None:
    server = own_mongodb("target")
    server.kill()
    permits = iter([0.5, 0.5, 0.0])
    with _client(server) as client:
        commander = Commander(
            client, permit=lambda: next(permits), retry_for=_LONG, patience=_LONG, pause=lambda _: None
        )
        commander.begin()
        with pytest.raises(FencedError, match="permit to write has ended"):
            commander.send("shop", dict(_INSERT), "insert")
    assert next(permits, None) is None


def test_a_command_that_makes_no_sense_is_refused_at_once(target_client: Client, database: str) -> None:
    commander = Commander(target_client, permit=lambda: 30.0, retry_for=_LONG, patience=_LONG)
    commander.begin()
    with pytest.raises(RowRejected, match="doing nonsense"):
        commander.send(database, {"nonsense": 1}, "doing nonsense")
    assert commander.retries == 0
