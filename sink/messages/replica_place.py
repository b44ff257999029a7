"""`ReplicaPlace`: how far a replica has come, kept in a document of its target, so that a reader that was killed goes on there.

    {_id: {feed: "orders", life: "7/1"}, reader: "5e0f..", place: {mark: W1, now: W2, step: [pos, rank, table], rows: [pos 7, pos 9], copying: [u1]}}

    everything before W1     written; between W1 and W2 stands the present round, None between two rounds
    step                     the last message of the round that is not a row, and was handled; everything before it is written
    rows                     behind it, rows before pos 7 are written; those from 7 up to and including 9 perhaps; none after 9
    ddl                      begun: what the target looked like before it; everything before it is written
    copying                  tables whose copy is not complete
    reading                  from where the reader finds what is not before W1, if it cannot know that itself

Each save is acknowledged by the majority before the next row or DDL is written, and says whose it is: a reader that finds another one's
number there ends.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from pydantic import TypeAdapter
from pymongo import ReturnDocument
from pymongo.write_concern import WriteConcern

from changefeed.errors import FencedError, SinkRefused
from changefeed.records.ddl import Observation
from changefeed.table import TableId
from sink.mongodb.connection import Client
from sink.mongodb.target_errors import translated
from sluice_client.feed_reader import NOTHING, Rank, Round, Shown, Watermark

COLLECTION = "sluice", "readers"
_OBSERVATION = TypeAdapter(Observation)
_MAJORITY = WriteConcern(w="majority")

Step: TypeAlias = tuple[str, int, str]


def step_of(shown: Shown) -> Step:
    return shown.at, int(shown.rank), shown.table


@dataclass(frozen=True, slots=True)
class Begun:
    """Of a step that is several DDLs, the DDL with this number. `before`: the target as it was."""

    step: Step
    number: int
    before: Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlace:
    mark: Watermark = NOTHING
    now: Watermark | None = None
    step: Step | None = None
    rows: tuple[str, str] | None = None
    ddl: Begun | None = None
    copying: frozenset[TableId] = frozenset()
    reading: str = ""

    @property
    def round(self) -> Round | None:
        return Round(self.mark, self.now) if self.now is not None else None

    def passed(self, shown: Shown) -> bool:
        """Everything that it says is written."""
        if self.step is not None and step_of(shown) <= self.step:
            return True
        if self.ddl is not None and step_of(shown) < self.ddl.step:
            return True  # written again, rows would make a table that it has dropped
        return self.rows is not None and (shown.at, shown.rank) < (self.rows[0], Rank.ROW)

    def reached(self, shown: Shown) -> bool:
        """A row may be written."""
        return self.rows is not None and (shown.at, shown.rank) <= (self.rows[1], Rank.ROW)


class StoredPlace:
    """`place` is what the target has, as long as no other reader takes it."""

    def __init__(self, client: Client, feed: str, life: str) -> None:
        database, collection = COLLECTION
        self._stored = client.get_database(database, write_concern=_MAJORITY)[collection]
        self._feed = feed
        self._id = {"feed": feed, "life": life}
        self._reader = secrets.token_hex(8)
        self.place = ReplicaPlace()

    def take(self, *, from_start: bool) -> None:
        """Another reader that is still at work ends at its next save."""
        with translated("taking the reader's place", SinkRefused):
            if from_start:
                self._stored.delete_one({"_id": self._id})
            found = self._stored.find_one_and_update(
                {"_id": self._id},
                {"$set": {"reader": self._reader}},
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        self.place = _parsed((found or {}).get("place", {}))

    def save(self, **changes: Any) -> None:
        place = replace(self.place, **changes)
        names = [
            each.name for each in fields(ReplicaPlace) if getattr(place, each.name) != getattr(self.place, each.name)
        ]
        if not names:
            return
        written = {f"place.{name}": self._written(getattr(place, name)) for name in names}
        with translated("saving the reader's place", SinkRefused):
            found = self._stored.update_one({"_id": self._id, "reader": self._reader}, {"$set": written})
        if not found.matched_count:
            raise FencedError(
                f"changefeed {self._feed!r}: another reader with --to has begun to write into this target, and this one ends; "
                f"let one of them run"
            )
        self.place = place

    def _written(self, value: Any) -> Any:
        match value:
            case Watermark():
                return value.message(self._feed).decode()
            case Begun(step, number, before):
                return {"step": list(step), "number": number, "before": _OBSERVATION.dump_json(before).decode()}
            case frozenset():
                return sorted(value)
            case tuple():
                return list(value)
        return value


def _parsed(stored: Mapping[str, Any]) -> ReplicaPlace:
    known = {name: value for name, value in stored.items() if value is not None}
    for name, parse in _PARSERS.items():
        if name in known:
            known[name] = parse(known[name])
    return ReplicaPlace(**known)


def _step(stored: list[Any]) -> Step:
    at, rank, table = stored
    return at, rank, table


def _begun(stored: Mapping[str, Any]) -> Begun:
    return Begun(_step(stored["step"]), stored["number"], _OBSERVATION.validate_json(stored["before"]))


_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "mark": Watermark.parse,
    "now": Watermark.parse,
    "step": _step,
    "rows": tuple,
    "ddl": _begun,
    "copying": frozenset,
}
