"""Several tables in one batch: whatever is under way at the same time, each ends as the history says."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from typing import Any

import bson
import pytest

from changefeed.errors import FencedError, SinkUnavailable
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from devstack.mongodb.server import Client
from sink.mongodb.commander import Commander, TargetReply
from sink.mongodb.rows.row_writer import MongoRowWriter
from sink.row import RowChange, TargetTable
from tests.until import PATIENCE_SECONDS

_KEYS = 12
_CHANGES = 150


class History:
    """Random changes of five tables, and what becomes of their documents."""

    def __init__(self, seed: int, database: str) -> None:
        self._random = random.Random(seed)
        self.documents: dict[str, dict[int, Any]] = {name: {} for name in ("a", "b", "c", "d", "e")}
        self._tables = {
            name: TargetTable(id=TableId(name * 32), source=TableName(database, name), name=TableName(database, name))
            for name in self.documents
        }
        self.changes = [self._change(time) for time in range(1, _CHANGES)]

    def _change(self, time: int) -> RowChange:
        name = self._random.choice("aabbcde")
        key, documents = self._random.randrange(_KEYS), self.documents[name]
        document = update = None
        if key not in documents:
            kind, document = RowType.INSERT, {"_id": key, "n": time}
        else:
            kind = self._random.choice([RowType.UPDATE, RowType.REPLACE, RowType.DELETE])
        if kind is RowType.REPLACE:
            document = {"_id": key, "r": time}
        if kind is RowType.UPDATE:
            update = bson.encode({"updatedFields": {"u": time}, "removedFields": [], "truncatedArrays": []})
            documents[key] = {**documents[key], "u": time}
        elif document is not None:
            documents[key] = document
        else:
            del documents[key]
        raw = bson.encode(document) if document is not None else None
        return RowChange(self._tables[name], kind, bson.encode({"_id": key}), raw, update, time, b"82")


@pytest.fixture
def writer(target_uri: str) -> MongoRowWriter:
    return MongoRowWriter(Client(target_uri), permit=lambda: 30.0)


def _found(client: Client, database: str) -> dict[str, dict[int, Any]]:
    return {name: {each["_id"]: each for each in client[database][name].find()} for name in "abcde"}


@pytest.mark.parametrize("seed", range(6))
def test_each_table_ends_as_its_history_says(
    writer: MongoRowWriter, target_client: Client, database: str, seed: int
) -> None:
    history = History(seed, database)
    cut = random.Random(seed).randrange(_CHANGES)
    writer.write(history.changes[:cut], replay=False)
    target_client[database]["a"].update_many({}, {"$set": {"stranger": 1}})
    target_client[database]["a"].delete_many({})
    first = [change for change in history.changes[:cut] if change.table.name.coll == "a"]
    writer.write([*first, *history.changes[cut:]], replay=False)
    assert _found(target_client, database) == history.documents
    writer.write(history.changes, replay=True)
    assert _found(target_client, database) == history.documents


@pytest.mark.parametrize("seed", range(6))
def test_a_command_whose_answer_is_lost_is_sent_again_as_one_that_may_have_been_applied(
    monkeypatch: pytest.MonkeyPatch, writer: MongoRowWriter, target_client: Client, database: str, seed: int
) -> None:
    chance, lost, real = random.Random(seed), [], Commander.attempt

    def attempt(commander: Commander, database: str, command: dict[str, Any], doing: str) -> TargetReply:
        before, after = chance.random() < 0.2, chance.random() < 0.3
        if before:
            lost.append(doing)
            raise SinkUnavailable("lost before it was sent")
        reply = real(commander, database, command, doing)
        if after:
            lost.append(doing)
            raise SinkUnavailable("the answer is lost")
        return reply

    monkeypatch.setattr(Commander, "attempt", attempt)
    history = History(seed, database)
    for at in range(0, _CHANGES, 50):
        run = writer.begin(lambda _: False)
        run.prepare(history.changes[at : at + 50], replay=False)()
        run.settle()
    assert _found(target_client, database) == history.documents
    assert lost


def test_an_insert_that_is_there_is_replaced_before_the_next_command_of_its_table(
    writer: MongoRowWriter, target_client: Client, database: str
) -> None:
    history = History(1, database)
    for table in (target_client[database][name] for name in "ab"):
        table.insert_many([{"_id": key, "stranger": 1} for key in range(_KEYS)])
    result = writer.write(history.changes, replay=False)
    assert result.tally.duplicates
    for name in "ab":
        for key, document in history.documents[name].items():
            assert target_client[database][name].find_one({"_id": key}) == document


def test_two_tables_are_on_two_connections(
    monkeypatch: pytest.MonkeyPatch, writer: MongoRowWriter, database: str
) -> None:
    """Each waits until the other one is under way."""
    both, real = threading.Barrier(2, timeout=PATIENCE_SECONDS), Commander.attempt
    met: set[str] = set()

    def attempt(commander: Commander, database: str, command: dict[str, Any], doing: str) -> TargetReply:
        name = next(iter(command.values()))
        if name in "ab" and name not in met:
            met.add(name)
            both.wait()
        return real(commander, database, command, doing)

    monkeypatch.setattr(Commander, "attempt", attempt)
    history = History(2, database)
    writer.write([change for change in history.changes if change.table.name.coll in "ab"], replay=False)
    assert met == {"a", "b"}


def test_a_permit_that_ends_ends_both(target_uri: str, target_client: Client, database: str) -> None:
    left = iter([30.0] * 3)
    writer = MongoRowWriter(Client(target_uri), permit=lambda: next(left, 0.0))
    with pytest.raises(FencedError):
        writer.write(History(3, database).changes, replay=False)
    written = _found(target_client, database)
    assert sum(map(len, written.values())) < sum(map(len, History(3, database).documents.values()))


def test_answers_of_two_primaries_make_the_batch_be_written_again(
    monkeypatch: pytest.MonkeyPatch, writer: MongoRowWriter, database: str
) -> None:
    """The target elects another primary between the commands of two tables: what the first one answered may be lost."""
    real = Commander.attempt

    def attempt(commander: Commander, database: str, command: dict[str, Any], doing: str) -> TargetReply:
        reply = real(commander, database, command, doing)
        written = dict(reply.document["opTime"])
        later = {**reply.document, "opTime": {**written, "t": written["t"] + 1}}
        return replace(reply, document=later) if "b" in command.values() else reply

    monkeypatch.setattr(Commander, "attempt", attempt)
    with pytest.raises(SinkUnavailable, match="elected another primary before its majority had the write"):
        writer.write(History(4, database).changes, replay=False)
