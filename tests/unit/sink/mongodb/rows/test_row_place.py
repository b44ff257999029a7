"""One row of a table that source and target shard, each in its own way: whatever of its history is replayed, however often, the target converges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import bson
import pytest
from bson.int64 import Int64
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.documents.row_key import id_alone
from changefeed.errors import SinkRefused
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.mongodb.rows.placing import shard_key_of
from sink.mongodb.rows.row_place import (
    Move,
    as_written,
    is_looked_for,
    key_of_document,
    key_of_event,
    of_different_rows,
    place,
    touches,
    unplaced_key,
)
from sink.row import RowChange, TargetTable

PATHS = ("customer", "at.day")


def _raw(fields: dict[str, Any]) -> bytes:
    return bson.encode(fields)


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ({"_id": 7, "x": 1, "at": {"day": 2, "hour": 3}, "customer": "c"}, {"_id": 7, "customer": "c", "at.day": 2}),
        ({"_id": Int64(7), "customer": None}, {"_id": Int64(7), "customer": None, "at.day": None}),
        ({"_id": {"a": 1}, "at": 5}, {"_id": {"a": 1}, "customer": None, "at.day": None}),
    ],
)
def test_a_document_says_its_whole_key(document: dict[str, Any], key: dict[str, Any]) -> None:
    assert key_of_document(_raw(document), PATHS) == _raw(key)


def test_the_rest_of_a_document_and_of_an_update_need_not_be_decoded() -> None:
    def odd(fields: dict[str, Any]) -> bytes:
        return _raw(fields).replace(b"??", b"\xff\xfe")

    document = odd({"a": "??", "_id": 7, "at": {"place": "??", "day": 2}, "z": "??"})
    assert key_of_document(document, PATHS) == _raw({"_id": 7, "customer": None, "at.day": 2})
    assert touches(odd({"updatedFields": {"a": "??", "at.day": 1}}), PATHS)
    assert not touches(odd({"updatedFields": {"a": "??", "at.place": "??"}}), PATHS)


def test_the_key_of_an_event_is_whole_if_it_has_each_field() -> None:
    event = _raw({"customer": 3, "at.day": 2, "more": 1, "_id": 7})
    assert key_of_event(event, PATHS) == _raw({"_id": 7, "customer": 3, "at.day": 2})
    assert key_of_event(_raw({"customer": 3, "_id": 7}), PATHS) is None
    latin = _raw({"customer": "caf?", "_id": 7, "at.day": 2}).replace(b"?", b"\xe9")
    assert key_of_event(latin, PATHS) == _raw({"_id": 7, "customer": "caf?", "at.day": 2}).replace(b"?", b"\xe9")
    assert unplaced_key(event, PATHS) == _raw({"_id": 7, "customer": None, "at.day": None})
    assert id_alone(event) == _raw({"_id": 7})


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ({"updatedFields": {"customer": 1}}, True),
        ({"updatedFields": {"at": {}}}, True),
        ({"removedFields": ["at.day.x"]}, True),
        ({"truncatedArrays": [{"field": "at.day", "newSize": 1}]}, True),
        ({"updatedFields": {"customers": 1, "at.hour": 1}, "removedFields": ["a"]}, False),
    ],
)
def test_an_update_touches_the_key_at_above_or_below_its_fields(update: dict[str, Any], expected: bool) -> None:
    assert touches(_raw(update), PATHS) is expected


def test_the_shard_key_is_what_the_target_says() -> None:
    assert shard_key_of({"_id": "a.b", "key": {"customer": "hashed", "_id": 1}}) == ("customer",)
    assert shard_key_of({"_id": "a.b", "key": {"_id": "hashed"}}) == ()
    for unsharded in (None, {"key": {"k": 1}, "dropped": True}, {"key": {"_id": 1}, "unsplittable": True}):
        assert shard_key_of(unsharded) == ()
    with pytest.raises(SinkRefused, match=r"a\.b.*collation"):
        shard_key_of({"_id": "a.b", "key": {"k": 1}, "defaultCollation": {"locale": "de"}})


NAME = TableName("shop", "rows")
TABLE = TargetTable(id=TableId("ab" * 16), source=NAME, name=NAME, shard_key=("k",))
_ID = 7
Document = dict[str, Any]


@dataclass
class Target:
    """What a router has of the row, by its key. `shard_of`: documents of one shard have different `_id`s."""

    shard_of: dict[int, int]
    documents: dict[Any, Document] = field(default_factory=dict)

    def found(self) -> list[bytes]:
        return [key_of_document(bson.encode(document), TABLE.shard_key) for document in self.documents.values()]

    def apply(self, change: RowChange, *, replay: bool) -> None:
        """As the run that writes does it."""
        written = as_written(change, replay=replay)
        placed = place(written, self.found() if is_looked_for(written) else ())
        if isinstance(placed, Move):
            before = next(iter(self.documents.values()))
            self.documents = {}
            self._put(self._changed(before, placed.change))
            return
        for each in placed:
            self._write(each, replay=replay)

    def _write(self, change: RowChange, *, replay: bool) -> None:
        key = bson.decode(change.key)["k"]
        match change.type:
            case RowType.INSERT:
                assert not self.documents, "an insert that is no replay meets no document of its row"
                self._put(self._changed({}, change))
            case RowType.REPLACE:
                self.documents.pop(key, None)
                self._put(self._changed({}, change))
            case RowType.DELETE:
                assert replay or key in self.documents, "a delete that is no replay finds its row"
                self.documents.pop(key, None)
            case RowType.UPDATE:
                assert replay or key in self.documents, "an update that is no replay finds its row"
                if key in self.documents:
                    self.documents[key] = self._changed(self.documents[key], change)

    def _put(self, document: Document) -> None:
        shards = [self.shard_of[key] for key in self.documents]
        assert self.shard_of[document["k"]] not in shards, "the shard refuses a second document of this _id"
        self.documents[document["k"]] = document
        assert len(self.documents) == 1, "the target has the row twice"

    @staticmethod
    def _changed(document: Document, change: RowChange) -> Document:
        if change.document is not None:
            return bson.decode(change.document)
        return {**document, **bson.decode(change.update or b"")["updatedFields"]}


def _change(
    kind: RowType, key: Document, document: Document | None = None, update: Document | None = None
) -> RowChange:
    raw = None if document is None else bson.encode(document)
    described = None if update is None else bson.encode({"updatedFields": update, "removedFields": []})
    return RowChange(TABLE, kind, bson.encode(key), raw, described, 5 << 32, b"")


KEYS = st.integers(0, 2)
ACTIONS = st.tuples(st.sampled_from(["write", "delete", "update", "key", "replace", "move"]), KEYS, st.integers(0, 9))


def _history(actions: list[tuple[str, int, int]], *, whole: bool) -> tuple[list[RowChange], Document | None]:
    """The changes as the source's oplogs show them, and the row that it has in the end. `whole`: its shard key is the target's."""
    changes: list[RowChange] = []
    row: Document | None = None

    def key_of(document: Document) -> Document:
        return {"k": document["k"], "_id": _ID} if whole else {"_id": _ID}

    for action, k, n in actions:
        if row is None:
            if action == "write":
                row = {"_id": _ID, "k": k, "n": n}
                changes.append(_change(RowType.INSERT, key_of(row), row))
            continue
        match action:
            case "delete":
                changes.append(_change(RowType.DELETE, key_of(row)))
                row = None
            case "update":
                changes.append(_change(RowType.UPDATE, key_of(row), update={f"f{n % 3}": n}))
                row = {**row, f"f{n % 3}": n}
            case "key":
                changes.append(_change(RowType.UPDATE, key_of(row), update={"k": k}))
                row = {**row, "k": k}
            case "replace":
                new = {"_id": _ID, "k": k, "n": n}
                changes.append(_change(RowType.REPLACE, key_of(row), new))
                row = new
            case "move":
                changes.append(_change(RowType.DELETE, key_of(row)))
                row = {**row, "k": k}
                changes.append(_change(RowType.INSERT, key_of(row), row))
    return changes, row


@settings(max_examples=600, deadline=None)
@given(
    actions=st.lists(ACTIONS, min_size=1, max_size=12),
    whole=st.booleans(),
    shards=st.tuples(*[st.integers(0, 1)] * 3),
    turns=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=4),
)
def test_however_windows_are_replayed_the_target_converges(
    actions: list[tuple[str, int, int]],
    whole: bool,
    shards: tuple[int, ...],
    turns: list[tuple[float, float]],
) -> None:
    """Each turn goes on to a place and breaks off there; the next one begins anywhere before it."""
    changes, row = _history([("write", 0, 0), *actions], whole=whole)
    target, begin, reached = Target(dict(enumerate(shards))), 0, 0
    for upto, back in [*turns, (1.0, 0.0)]:
        end = max(begin, reached if upto == 1 else 0, round(upto * len(changes)))
        for at in range(begin, end):
            target.apply(changes[at], replay=at < reached)
        reached = max(reached, end)
        begin = round(back * end)
    for at in range(begin, len(changes)):
        target.apply(changes[at], replay=at < reached)
    assert list(target.documents.values()) == ([] if row is None else [row])


def test_a_row_is_looked_for_only_where_the_change_does_not_say_its_place() -> None:
    whole, half = {"k": 1, "_id": _ID}, {"_id": _ID}
    row = {"_id": _ID, "k": 1}
    assert not is_looked_for(_change(RowType.INSERT, half, row))
    assert not is_looked_for(_change(RowType.UPDATE, whole, update={"n": 1}))
    assert not is_looked_for(_change(RowType.DELETE, whole))
    for change in (
        _change(RowType.REPLACE, whole, row),
        _change(RowType.UPDATE, whole, update={"k": 1}),
        _change(RowType.UPDATE, half, update={"n": 1}),
        _change(RowType.DELETE, half),
    ):
        assert is_looked_for(change)


@pytest.mark.parametrize("kind", [RowType.UPDATE, RowType.DELETE])
def test_a_row_that_the_target_does_not_have_is_not_written_elsewhere(kind: RowType) -> None:
    change = _change(kind, {"_id": _ID}, update={"n": 1} if kind is RowType.UPDATE else None)
    placed = place(change, [])
    assert not isinstance(placed, Move)
    assert [bson.decode(each.key) for each in placed] == ([{"_id": _ID, "k": None}] if kind is RowType.UPDATE else [])


def test_a_row_occurs_once_in_a_stretch() -> None:
    changes = [_change(RowType.REPLACE, {"_id": id, "k": k}, {"_id": id, "k": k}) for id, k in [(1, 1), (2, 1), (1, 2)]]
    assert [len(part) for part in of_different_rows(changes)] == [2, 1]
