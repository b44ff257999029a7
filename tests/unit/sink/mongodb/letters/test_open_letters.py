"""A letter is on the majority before its change counts as handled, and is closed after its row is."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.raw_bson import RawBSONDocument

from changefeed.cluster_time import ClusterTime
from changefeed.errors import RowRejected, SinkRefused
from changefeed.event import RowType
from changefeed.position import Position
from changefeed.table import TableId, TableName
from sink.mongodb.commander import Commander, TargetReply
from sink.mongodb.letters.dead_letter import Kept, id_of, request_id, row_of
from sink.mongodb.letters.open_letters import LetterBox, OpenLetters
from sink.row import RowChange, SoleTable, SourceRow, TargetTable

NAME, ID = TableName("shop", "rows"), TableId("ab" * 16)
TABLE = TargetTable(id=ID, source=NAME, name=NAME)
KEY = bson.encode({"_id": 1})
LETTER = id_of("feed", Kept.LETTER, ID, row_of(KEY))
REFUSED = {"n": 0, "writeErrors": [{"index": 0, "code": 121, "errmsg": "the document failed validation"}]}


class Target(Commander):
    """What is stored of letters and requests. `refuses`: the box takes no document."""

    def __init__(self, *stored: dict[str, Any]) -> None:
        self.stored = list(stored)
        self.refuses = False
        self.sent: list[dict[str, Any]] = []

    def go_on(self) -> None: ...

    def send(self, database: str, command: dict[str, Any], doing: str, *, divisible: bool = False) -> TargetReply:
        self.sent.append(command)
        refused = self.refuses and "update" in command
        return TargetReply(document=REFUSED if refused else {"n": 1, "ok": 1}, results=[], again=False)

    def found(self, find: tuple[str, dict[str, Any]], doing: str) -> list[RawBSONDocument]:
        wanted = find[1]["filter"]
        ranges = [condition["_id"] for condition in wanted.get("$or", [wanted])]
        there = [each for each in self.stored if any(_within(each["_id"], range) for range in ranges)]
        return [RawBSONDocument(bson.encode(each)) for each in there]

    def glance(self, find: tuple[str, dict[str, Any]], doing: str) -> list[RawBSONDocument]:
        return self.found(find, doing)

    @property
    def verbs(self) -> list[str]:
        return [next(iter(command)) for command in self.sent]


def _within(id: str, range: dict[str, Any]) -> bool:
    return id in range["$in"] if "$in" in range else bool(range["$gte"] <= id < range["$lt"])


def change(kind: RowType = RowType.UPDATE) -> RowChange:
    update = bson.encode({"updatedFields": {"n": 1}, "removedFields": [], "truncatedArrays": []})
    return RowChange(TABLE, kind, KEY, None, update if kind is RowType.UPDATE else None, 100 << 32, b"")


def letters(target: Target, *, notes: bool = False) -> OpenLetters:
    box = LetterBox(collection=TableName("sluice", "letters"), changefeed="feed")
    row = SourceRow(bson.encode({"_id": 1, "n": 2}), ClusterTime(105, 1))
    return OpenLetters(target, box, lambda _: row, notes=notes)


def test_a_letter_is_written_when_the_majority_has_it() -> None:
    target = Target()
    box = letters(target)
    box.write(change(), "u is taken")
    [sent] = target.sent
    assert sent["update"] == "letters"
    assert sent["writeConcern"] == {"w": "majority"}
    assert box.any_open


def test_a_letter_that_the_box_refuses_is_none_and_its_table_stops() -> None:
    target = Target()
    target.refuses = True
    box = letters(target)
    with pytest.raises(RowRejected, match="refuses the dead letter: the document failed validation") as refused:
        box.write(change(), "u is taken")
    assert refused.value.table == ID
    assert not box.any_open
    box = letters(Target({"_id": LETTER}))
    box.commander.refuses = True  # type: ignore[attr-defined]  # it is a `Target`
    box.meet([ID])
    with pytest.raises(RowRejected):
        box.write(change(), "u is taken again")


def test_the_changes_of_a_row_with_a_letter_are_held_until_it_is_written_as_the_source_has_it() -> None:
    target = Target({"_id": LETTER})
    box = letters(target)
    box.meet([ID])
    assert box.holds(change())
    [(whole, _)] = box.rows_of_now()
    assert (whole.type, bson.decode(whole.document or b"")) == (RowType.REPLACE, {"_id": 1, "n": 2})
    assert not box.holds(change()), "it was tried"
    assert target.sent == [], "the letter is closed when its row is durable"
    box.close()
    assert target.verbs == ["delete"]
    assert target.sent[0]["deletes"][0]["q"] == {"_id": {"$in": [LETTER]}}


def test_where_rows_are_not_repaired_a_note_is_there_before_the_letter_is_closed() -> None:
    target = Target({"_id": LETTER})
    box = letters(target, notes=True)
    box.meet([ID])
    box.holds(change())
    list(box.rows_of_now())
    box.close()
    assert target.verbs == ["update", "delete"]
    assert all(command["writeConcern"] == {"w": "majority"} for command in target.sent)
    target.refuses = True
    again = letters(target, notes=True)
    again.meet([ID])
    again.holds(change())
    list(again.rows_of_now())
    with pytest.raises(SinkRefused, match="noting when 1 rows were read"):
        again.close()
    assert target.verbs[-1] == "update", "the letter stays"


def test_only_the_request_that_was_seen_is_ended() -> None:
    """A user may ask again meanwhile: that one is another."""
    asked = {"_id": request_id("feed", LETTER), "asked": ObjectId()}
    target = Target({"_id": LETTER, "event": {"key": KEY}}, asked)
    box = letters(target)
    place = SoleTable(table=TABLE, start=Position(ClusterTime(100, 1)))
    box.hold_requested(lambda _: place)
    [(whole, _)] = box.rows_of_now()
    assert whole.type is RowType.REPLACE
    box.close()
    ended = target.sent[-1]["deletes"][0]["q"]
    assert ended == asked
