"""Rows that the target refuses: a letter holds its row until the source's document of now is accepted.

An index on two arrays refuses a document with an array in both (code 171), whatever the change that would make it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, timedelta
from itertools import count
from typing import Any

import bson
import pytest
from bson import ObjectId
from pymongo import ASCENDING
from pymongo.collection import Collection
from pymongo.monitoring import CommandListener, CommandStartedEvent

from changefeed.cluster_time import ClusterTime
from changefeed.errors import Divergence, RowRejected, SinkUnavailable
from changefeed.event import RowType
from changefeed.position import Position
from changefeed.records.status import LetterTotals
from changefeed.table import TableId, TableName
from devstack.mongodb.server import Client
from sink.mongodb.letters.dead_letter import request_id
from sink.mongodb.letters.open_letters import LetterBox, OpenLetters
from sink.mongodb.letters.stored_letters import StoredLetters
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.row import RowChange, SoleTable, SourceRow, TargetTable, Unfinished, WriteResult

_FEED = "orders-to-dr"
_READ = ClusterTime(9, 1)
_REFUSED = {"a": [1, 2], "b": [1, 2]}


class _Ended(Exception):
    """A run that is killed."""


class Letters:
    """A target with an index that refuses some documents, and a source that is a dictionary."""

    def __init__(self, client: Client, uri: str, database: str) -> None:
        self.rows: Collection[dict[str, Any]] = client[database]["rows"]
        self.letters: Collection[dict[str, Any]] = client[database]["letters"]
        self.rows.create_index([("a", ASCENDING), ("b", ASCENDING)])
        self.source: dict[Any, dict[str, Any]] | None = {}
        self.fetched: list[Any] = []
        self.table = TargetTable(
            id=TableId("ab" * 16), source=TableName("shop", "orders"), name=TableName(database, "rows")
        )
        self.uri = uri
        self._times = count(5)
        self.writer = self.made()

    def made(self, *, most: int = 1_000, fetches: bool = True) -> MongoRowWriter:
        box = LetterBox(collection=TableName(self.rows.database.name, "letters"), changefeed=_FEED, most=most)
        return MongoRowWriter(
            self.rows.database.client,
            permit=lambda: 30.0,
            options=RowWriterOptions(letters=box),
            fetch=self._fetch if fetches else None,
            repairs=False,
        )

    def _fetch(self, change: RowChange) -> SourceRow | None:
        if self.source is None:
            return None
        key = bson.decode(change.key)["_id"]
        self.fetched.append(key)
        document = self.source.get(key)
        return SourceRow(bson.encode({"_id": key, **document}) if document is not None else None, _READ)

    def slow_fetch(self, change: RowChange) -> SourceRow | None:
        time.sleep(0.4)
        return self._fetch(change)

    def insert(self, key: Any, **fields: Any) -> RowChange:
        return self._change(RowType.INSERT, key, document=bson.encode({"_id": key, **fields}))

    def replace(self, key: Any, **fields: Any) -> RowChange:
        return self._change(RowType.REPLACE, key, document=bson.encode({"_id": key, **fields}))

    def update(self, key: Any, **fields: Any) -> RowChange:
        described = {"updatedFields": fields, "removedFields": [], "truncatedArrays": []}
        return self._change(RowType.UPDATE, key, update=bson.encode(described))

    def delete(self, key: Any) -> RowChange:
        return self._change(RowType.DELETE, key)

    def _change(
        self, kind: RowType, key: Any, *, document: bytes | None = None, update: bytes | None = None
    ) -> RowChange:
        return RowChange(self.table, kind, bson.encode({"_id": key}), document, update, next(self._times) << 32, b"82")

    def write(self, *changes: RowChange, replay: bool = False) -> WriteResult:
        return self.writer.write(changes, replay=replay)

    def run(self, changes: Sequence[RowChange], *, replay: bool, unfinished: Unfinished) -> WriteResult:
        run = self.writer.begin(unfinished)
        result = run.prepare(changes, replay=replay)()
        result.add(run.settle())
        return result

    @property
    def open(self) -> list[dict[str, Any]]:
        return list(self.letters.find({"changefeed": _FEED, "event": {"$exists": True}}, sort=[("key", ASCENDING)]))


@pytest.fixture
def letters(target_client: Client, target_uri: str, database: str) -> Letters:
    return Letters(target_client, target_uri, database)


def test_a_letter_says_what_was_refused_since_when_and_why(letters: Letters) -> None:
    change = letters.insert(7, **_REFUSED)
    result = letters.write(change)
    assert result.tally.rejected == 1
    [letter] = letters.open
    assert (letter["table"], letter["table_id"], letter["key"]) == ("shop.orders", "ab" * 16, '{"_id": 7}')
    assert letter["position"] == letter["first_position"] == str(change.position)
    assert letter["first_rejected_at"] == letter["rejected_at"]
    assert (letter["tries"], letter["event"]["type"]) == (1, "insert")
    assert letter["event"]["document"] == change.document
    assert letter["event"]["text"] == '{"_id": 7, "a": [1, 2], "b": [1, 2]}'
    assert "171" in letter["error"]


def test_open_letters_are_counted_with_their_size_and_the_first_refusal(
    letters: Letters, target_client: Client
) -> None:
    box = LetterBox(collection=TableName(letters.rows.database.name, "letters"), changefeed=_FEED)
    stored = StoredLetters(target_client, box)
    assert stored.open(LetterTotals()) == LetterTotals()
    letters.write(letters.insert(7, **_REFUSED), letters.insert(8, **_REFUSED), letters.insert(9, v=1))
    letters.letters.insert_one({"_id": "another/x/y", "changefeed": "another"})
    found = stored.open(LetterTotals())
    assert found == LetterTotals(
        count=2,
        bytes=sum(len(bson.encode(letter)) for letter in letters.open),
        since=min(letter["first_rejected_at"].replace(tzinfo=UTC) for letter in letters.open),
    )
    stored.drop(list(stored.of(None, ())))
    assert stored.open(found) == LetterTotals()


def test_all_letters_and_requests_of_a_table_are_forgotten_and_those_of_others_stay(
    letters: Letters, target_client: Client
) -> None:
    box = LetterBox(collection=TableName(letters.rows.database.name, "letters"), changefeed=_FEED)
    stored = StoredLetters(target_client, box)
    letters.write(letters.insert(7, **_REFUSED), letters.insert(8, **_REFUSED))
    stored.request(list(stored.of(None, ()))[:1])
    table, other = letters.table.id, "f" * 32
    ids = [f"{_FEED}/{other}/x", f"{_FEED}:retry/{other}/x", f"another/{table}/x"]
    letters.letters.insert_many([{"_id": id, "changefeed": id.partition("/")[0]} for id in ids])
    assert letters.letters.count_documents({}) == 6
    stored.forget(table, lambda: 60.0)
    assert {letter["_id"] for letter in letters.letters.find()} == set(ids)


@pytest.mark.parametrize("kind", ["insert", "update", "replace"])
def test_each_later_change_of_the_row_writes_the_source_s_document_of_now(letters: Letters, kind: str) -> None:
    letters.write(letters.insert(7, **_REFUSED))
    assert letters.source is not None
    letters.source[7] = {"a": 1, "n": 2, "now": True}
    result = letters.write(letters.insert(1, v=1), getattr(letters, kind)(7, n=1), letters.insert(2, v=1))
    assert list(letters.rows.find(sort=[("_id", 1)])) == [
        {"_id": 1, "v": 1},
        {"_id": 2, "v": 1},
        {"_id": 7, "a": 1, "n": 2, "now": True},
    ]
    assert letters.open == []
    assert result.ahead == {letters.table.id: _READ}
    assert (result.tally.rejected, result.tally.repaired, result.unsettled) == (0, 0, set())


def test_a_row_that_the_source_has_no_more_is_deleted(letters: Letters) -> None:
    letters.write(letters.insert(7, a=1))
    letters.write(letters.update(7, **_REFUSED))
    assert (letters.rows.find_one(), len(letters.open)) == ({"_id": 7, "a": 1}, 1)
    letters.write(letters.delete(7))
    assert (letters.rows.find_one(), letters.open) == (None, [])


def test_a_row_that_is_refused_again_keeps_its_letter(letters: Letters) -> None:
    first = letters.insert(7, **_REFUSED)
    letters.write(first)
    assert letters.source is not None
    letters.source[7] = {**_REFUSED, "n": 1}
    second = letters.update(7, n=1)
    result = letters.write(second)
    [letter] = letters.open
    assert (letter["tries"], letter["first_position"], letter["position"]) == (
        2,
        str(first.position),
        str(second.position),
    )
    assert bson.decode(letter["event"]["document"]) == {"_id": 7, **_REFUSED, "n": 1}
    assert letter["rejected_at"] >= letter["first_rejected_at"]
    assert (result.tally.rejected, result.ahead) == (1, {})


def test_changes_after_the_refused_one_in_the_same_run_are_held_too(letters: Letters) -> None:
    assert letters.source is not None
    letters.source[7] = {"n": 3}
    letters.write(letters.insert(7, **_REFUSED), letters.update(7, n=2), letters.insert(8, v=1), letters.update(7, n=3))
    assert letters.fetched == [7], "the source is read once"
    assert list(letters.rows.find(sort=[("_id", 1)])) == [{"_id": 7, "n": 3}, {"_id": 8, "v": 1}]
    assert letters.open == []


def test_keys_that_the_server_calls_equal_have_one_letter(letters: Letters) -> None:
    letters.write(letters.insert(7, **_REFUSED))
    assert letters.source is not None
    letters.source[7.0] = {"n": 1}
    letters.write(letters.update(7.0, n=1))
    assert (letters.rows.find_one(), letters.open) == ({"_id": 7, "n": 1}, [])


def test_without_a_letter_deltas_are_sent_as_ever(letters: Letters) -> None:
    letters.write(letters.insert(7, **_REFUSED))
    letters.write(letters.insert(8, v=1))
    letters.write(letters.update(8, v=2), letters.delete(9))
    assert (letters.rows.find_one(), letters.fetched, len(letters.open)) == ({"_id": 8, "v": 2}, [], 1)


def test_a_table_that_the_source_has_dropped_leaves_its_letters(letters: Letters) -> None:
    letters.write(letters.insert(7, **_REFUSED))
    letters.source = None
    letters.write(letters.update(7, n=1))
    assert (letters.rows.find_one(), [letter["tries"] for letter in letters.open]) == (None, [1])


def test_a_unique_value_of_another_client_s_row_is_refused_at_the_end_of_the_run(letters: Letters) -> None:
    letters.rows.create_index([("u", ASCENDING)], unique=True)
    letters.rows.insert_one({"_id": "foreign", "u": 1})
    letters.write(letters.insert(7, u=1))
    assert letters.source is not None
    letters.source[7] = {"u": 1, "n": 1}
    result = letters.write(letters.update(7, n=1), letters.insert(8, u=2))
    assert [letter["tries"] for letter in letters.open] == [2]
    assert (result.unsettled, letters.rows.count_documents({"_id": 8})) == (set(), 1)
    letters.rows.delete_one({"_id": "foreign"})
    letters.write(letters.update(7, n=1))
    assert (letters.rows.find_one({"_id": 7}), letters.open) == ({"_id": 7, "u": 1, "n": 1}, [])


@pytest.mark.parametrize("returns", [False, True])
def test_a_unique_value_that_a_held_row_has_had(letters: Letters, returns: bool) -> None:
    """Row 8 waits for the value of row 7. If row 7 has it again when it is read, a later change takes it from row 8."""
    letters.rows.create_index([("u", ASCENDING)], unique=True)
    letters.write(letters.insert(7, u=1))
    letters.write(letters.update(7, u=2, **_REFUSED))
    assert letters.source is not None
    letters.source[7] = {"u": 1 if returns else 3}
    result = letters.write(letters.update(7, u=3), letters.insert(8, u=1))
    assert letters.rows.find_one({"_id": 7}) == {"_id": 7, **letters.source[7]}
    assert letters.rows.find_one({"_id": 8}) == (None if returns else {"_id": 8, "u": 1})
    assert result.unsettled == ({letters.table.id} if returns else set())
    assert (letters.open, result.ahead) == ([], {letters.table.id: _READ})


def test_a_target_that_is_ahead_leaves_the_letter_as_it_is(letters: Letters) -> None:
    letters.rows.create_index([("u", ASCENDING)], unique=True)
    letters.rows.insert_one({"_id": "other", "u": 1})
    letters.write(letters.insert(7, u=1))
    assert letters.source is not None
    letters.source[7] = {"u": 1}
    result = letters.run([letters.update(7, n=1)], replay=True, unfinished=lambda _: True)
    assert (result.unsettled, [letter["tries"] for letter in letters.open]) == ({letters.table.id}, [1])


@pytest.mark.parametrize("accepted", [False, True])
def test_a_run_that_is_repeated_after_a_crash_ends_the_same(letters: Letters, accepted: bool) -> None:
    """The first run ends at any point before `settle`; nothing that it holds is lost."""
    changes = [letters.insert(7, **_REFUSED), letters.insert(8, v=1), letters.update(7, n=2), letters.update(8, v=2)]
    assert letters.source is not None
    letters.source[7] = {"n": 2} if accepted else {**_REFUSED, "n": 2}
    for stop in range(1, len(changes) + 1):
        run = letters.writer.begin(lambda _: False)
        run.prepare(changes[:stop], replay=stop > 1)()
        assert len(letters.open) == 1
    letters.write(*changes, replay=True)
    assert letters.rows.find_one({"_id": 8}) == {"_id": 8, "v": 2}
    assert letters.rows.find_one({"_id": 7}) == ({"_id": 7, "n": 2} if accepted else None)
    assert len(letters.open) == (0 if accepted else 1)
    letters.write(*changes, replay=True)
    assert letters.rows.find_one({"_id": 8}) == {"_id": 8, "v": 2}


def test_an_error_of_the_source_closes_no_letter(letters: Letters) -> None:
    letters.write(letters.insert(7, **_REFUSED))
    source, letters.source = letters.source, {7: {"bad": object()}}
    with pytest.raises(bson.errors.InvalidDocument):
        letters.write(letters.update(7, n=1))
    assert (len(letters.open), letters.rows.find_one()) == (1, None)
    letters.source = source
    letters.write(letters.update(7, n=1), replay=True)
    assert letters.open == []


def test_a_table_stops_rather_than_have_too_many_letters(letters: Letters) -> None:
    writer = letters.made(most=3)
    changes = [letters.insert(key, **_REFUSED) for key in range(3)]
    writer.write(changes, replay=False)
    assert letters.source is not None
    letters.source |= dict.fromkeys(range(4), _REFUSED)
    writer.write([letters.update(0, n=1)], replay=False)
    last = letters.insert(3, **_REFUSED)
    with pytest.raises(
        RowRejected, match=r"3 open dead letters in .*\.letters, where 3 are allowed.*table resume"
    ) as raised:
        writer.write([last], replay=False)
    assert raised.value.table == letters.table.id
    letters.letters.delete_one({"key": '{"_id": 1}'})
    writer.write([last], replay=True)
    assert [letter["key"] for letter in letters.open] == ['{"_id": 0}', '{"_id": 2}', '{"_id": 3}']


@pytest.mark.parametrize("replay", [False, True])
def test_another_node_knows_that_a_row_of_a_letter_is_newer_than_its_next_changes(
    letters: Letters, *, replay: bool
) -> None:
    """The source had deleted the row when it was read, and has inserted it again since; a DDL holds the table before either."""
    letters.write(letters.insert(7, **_REFUSED))
    first, second = letters.update(7, n=1), letters.update(7, **{"a.b": 1})
    letters.write(letters.update(7, n=0))
    assert (list(letters.rows.find()), letters.open) == ([], [])
    letters.source = {7: {"n": 3}}
    other = letters.made()
    result = other.write([first, second], replay=replay)
    assert (result.tally.skipped, result.tally.repaired, list(letters.rows.find())) == (2, 0, [])
    late = letters.update(7, n=2)._replace(time=_READ.next().to_int())
    with pytest.raises(Divergence, match="'_id': 7}"):
        other.write([late], replay=replay)


def test_a_row_of_a_letter_that_is_newer_takes_what_fits_of_its_next_changes(letters: Letters) -> None:
    """The time of the read may be later than the document that was read."""
    letters.write(letters.insert(7, **_REFUSED))
    letters.source = {7: {"a": 1, "n": 1}}
    change = letters.update(7, **{"a.c": 1, "n": 2})
    letters.write(letters.update(7, n=0))
    assert letters.made().write([change], replay=False).tally.skipped == 1
    assert list(letters.rows.find()) == [{"_id": 7, "a": 1, "n": 2}]


@pytest.mark.parametrize("before", ["_note", "_delete"])
def test_a_row_of_a_letter_is_written_again_if_a_run_ends_before_its_letter_is_closed(
    letters: Letters, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """Whether it is noted by then when the row was read or not."""

    def ends(*_: object) -> None:
        raise _Ended

    letters.write(letters.insert(7, **_REFUSED))
    change, last = letters.update(7, n=1), letters.update(7, n=2)
    letters.source = {7: {"n": 1}}
    with monkeypatch.context() as patched:
        patched.setattr(OpenLetters, before, ends)
        with pytest.raises(_Ended):
            letters.write(change)
    assert (list(letters.rows.find()), len(letters.open)) == ([{"_id": 7, "n": 1}], 1)
    assert letters.letters.count_documents({"read": _READ.to_bson()}) == (before == "_delete")
    letters.source = {7: {"n": 2}}
    letters.made().write([change], replay=True)
    assert (list(letters.rows.find()), letters.open) == ([{"_id": 7, "n": 2}], [])
    assert letters.letters.count_documents({"read": _READ.to_bson()}) == 1
    result = letters.made().write([last], replay=False)
    assert (result.tally.repaired, list(letters.rows.find())) == (0, [{"_id": 7, "n": 2}])


def test_a_note_ends_once_its_table_has_passed_it_or_is_copied_anew(letters: Letters) -> None:
    def noted() -> int:
        return letters.letters.count_documents({"read": {"$exists": True}})

    letters.write(letters.insert(7, **_REFUSED))
    letters.write(letters.update(7, n=0))
    for start, left in ((_READ, 1), (_READ.next(), 0)):
        sole = SoleTable(letters.table, Position(start))
        run = letters.writer.begin(lambda _: False, {letters.table.id: sole}.get)
        run.prepare([letters.insert(8, n=1)], replay=False)()
        run.settle()
        assert noted() == left
    letters.write(letters.insert(9, **_REFUSED))
    letters.write(letters.update(9, n=0))
    assert noted() == 1
    box = LetterBox(collection=TableName(letters.rows.database.name, "letters"), changefeed=_FEED)
    with Client(letters.uri) as client:
        assert StoredLetters(client, box).open(LetterTotals()).count == 0
        StoredLetters(client, box).forget(letters.table.id, lambda: 60.0)
    assert noted() == 0


def test_a_task_that_wakes_after_its_permit_drops_no_letters(letters: Letters) -> None:
    """They are those of the copy that has begun since."""
    letters.write(letters.insert(7, **_REFUSED))
    box = LetterBox(collection=TableName(letters.rows.database.name, "letters"), changefeed=_FEED)
    with Client(letters.uri) as client, pytest.raises(SinkUnavailable):
        StoredLetters(client, box).forget(letters.table.id, lambda: 1e-9)
    assert len(letters.open) == 1


def test_a_user_s_request_is_tried_though_no_change_comes(letters: Letters) -> None:
    letters.write(letters.insert(7, **_REFUSED), letters.insert(8, **_REFUSED))
    assert letters.source is not None
    letters.source |= {7: {"n": 1}, 8: {"n": 1}}
    first, second = letters.open
    request = request_id(_FEED, first["_id"])
    letters.letters.insert_one({"_id": request, "changefeed": _FEED, "asked": ObjectId()})
    end = Position(ClusterTime(50, 0))
    letters.writer.begin(lambda _: False).settle()
    letters.writer.begin(lambda _: False, lambda _: None).settle()
    assert len(letters.open) == 2, "a run that does not have the table alone tries nothing"
    result = letters.writer.begin(lambda _: False, lambda _: SoleTable(letters.table, end)).settle()
    assert (list(letters.rows.find()), letters.open) == ([{"_id": 7, "n": 1}], [second])
    assert (result.ahead, letters.letters.count_documents({"_id": request})) == ({letters.table.id: _READ}, 0)


def test_a_request_for_a_letter_that_is_gone_ends(letters: Letters) -> None:
    letters.write(letters.insert(7, **_REFUSED))
    [letter] = letters.open
    letters.letters.insert_one({"_id": request_id(_FEED, letter["_id"]), "changefeed": _FEED, "asked": ObjectId()})
    letters.letters.delete_one({"_id": letter["_id"]})
    letters.writer.begin(lambda _: False, lambda _: SoleTable(letters.table, Position(ClusterTime(50, 0)))).settle()
    assert (letters.letters.count_documents({}), letters.fetched) == (0, [])


def test_requests_make_room_for_new_letters(letters: Letters) -> None:
    """A table that has stopped at the limit is resumed after its letters were requested: it stops no more before it has tried them."""
    writer = letters.made(most=1)
    writer.write([letters.insert(7, **_REFUSED)], replay=False)
    [letter] = letters.open
    letters.letters.insert_one({"_id": request_id(_FEED, letter["_id"]), "changefeed": _FEED, "asked": ObjectId()})
    assert letters.source is not None
    letters.source[7] = {"n": 1}
    run = writer.begin(lambda _: False, lambda _: SoleTable(letters.table, Position(ClusterTime(50, 0))))
    run.prepare([letters.insert(8, **_REFUSED)], replay=True)()
    run.settle()
    assert [letter["key"] for letter in letters.open] == ['{"_id": 8}']


def test_a_writer_without_a_source_tries_whole_documents_as_they_come(letters: Letters) -> None:
    """A copy's chunk is loaded again: its documents are of one time, and newer ones would not go with it."""
    loader = letters.made(fetches=False)
    loader.write([letters.insert(7, **_REFUSED)], replay=True)
    loader.write([letters.insert(7, **_REFUSED)], replay=True)
    assert [letter["tries"] for letter in letters.open] == [2]
    loader.write([letters.insert(7, n=1)], replay=True)
    assert (letters.rows.find_one(), letters.open) == ({"_id": 7, "n": 1}, [])


def test_letters_of_earlier_releases_and_other_changefeeds_hold_nothing(letters: Letters) -> None:
    letters.letters.insert_one(
        {"_id": f"{letters.table.id}/5.1", "table": "shop.orders", "key": {"_id": 7}, "error": ""}
    )
    letters.letters.insert_one({"_id": f"other/{letters.table.id}/x", "changefeed": "other", "table": "shop.orders"})
    letters.write(letters.insert(7, n=1), letters.update(7, n=2))
    assert (letters.rows.find_one(), letters.fetched) == ({"_id": 7, "n": 2}, [])


class _Waits(CommandListener):
    """How long each write may wait for the majority, in milliseconds."""

    def __init__(self) -> None:
        self.of: list[int] = []

    def started(self, event: CommandStartedEvent) -> None:
        if (concern := event.command.get("writeConcern")) is not None:
            self.of.append(concern["wtimeout"])

    def succeeded(self, event: object) -> None:
        pass

    def failed(self, event: object) -> None:
        pass


def test_each_held_row_that_was_written_gives_the_next_one_its_time(letters: Letters, target_uri: str) -> None:
    """The source takes as long for three rows as one command of the target may with its retries."""
    waits = _Waits()
    box = LetterBox(collection=TableName(letters.rows.database.name, "letters"), changefeed=_FEED)
    options = RowWriterOptions(letters=box, retry_for=timedelta(seconds=1))
    client = Client(target_uri, event_listeners=[waits])
    slow = MongoRowWriter(client, permit=lambda: 30.0, options=options, fetch=letters.slow_fetch)
    letters.write(*(letters.insert(key, **_REFUSED) for key in range(6)))
    assert letters.source is not None
    letters.source |= {key: {"n": 1} for key in range(6)}
    slow.write([letters.update(key, n=1) for key in range(6)], replay=False)
    client.close()
    assert min(waits.of) > 100
    assert (letters.rows.count_documents({"n": 1}), letters.open) == (6, [])
