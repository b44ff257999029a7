"""`StoredLetters`: a changefeed's dead letters as a user lists, requests and drops them.

It writes no row: a row has one writer, the task that has its table. So a request to try a row again is a document beside the letter, which
that task finds (`open_letters.py`). To drop a letter changes nothing of its row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import bson
import pymongo
from bson import ObjectId, json_util
from bson.errors import BSONError
from pymongo import DeleteOne, UpdateOne
from pymongo.errors import OperationFailure
from pymongo.write_concern import WriteConcern

from changefeed.documents.document import DICT
from changefeed.errors import SinkRefused
from changefeed.records.status import LetterTotals
from changefeed.table import TableId
from sink.mongodb.connection import Client
from sink.mongodb.letters.dead_letter import Kept, beginning_with, ids_of, request_id, row_of, text_of
from sink.mongodb.letters.open_letters import LetterBox, parts
from sink.mongodb.target_errors import translated
from sink.sink import Permit

_SECONDS = 20.0
_AT_ONCE = 1_000
_UNKNOWN_EXPRESSION = 168
_WITHOUT_CONTENT = {"event.key": 0, "event.document": 0, "event.update": 0, "event.text": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLetter:
    id: str
    table: str
    table_id: str
    key: str
    first_position: str
    position: str
    first_rejected_at: datetime | None
    rejected_at: datetime | None
    tries: int
    error: str
    type: str
    requested: bool

    @property
    def row(self) -> str:
        return self.id.rpartition("/")[2]


class StoredLetters:
    def __init__(self, client: Client, box: LetterBox) -> None:
        self._box = box
        database = client.get_database(
            box.collection.db,
            codec_options=DICT,
            write_concern=WriteConcern("majority", wtimeout=int(_SECONDS * 1000)),
        )
        self._letters = database[box.collection.coll]

    def of(self, table: str | None, ids: Collection[TableId]) -> Iterator[StoredLetter]:
        """All letters, or those of a table. `table` is a name at the source or an id; `ids` are those of the tables that it names now."""
        requested = self._requested()
        for letter in self._found({"_id": beginning_with(ids_of(self._box.changefeed))}):
            if table is None or letter["table_id"] in ids or table in (letter["table"], letter["table_id"]):
                yield _stored(letter, requested=request_id(self._box.changefeed, letter["_id"]) in requested)

    def request(self, letters: Sequence[StoredLetter]) -> None:
        """Every request is a new one, so that a task which tries an earlier one does not end it."""
        changefeed = self._box.changefeed
        for part in parts(letters, _AT_ONCE):
            asked = {"$set": {"changefeed": changefeed, "asked": ObjectId()}}
            updates = [UpdateOne({"_id": request_id(changefeed, letter.id)}, asked, upsert=True) for letter in part]
            with self._writing(f"requesting {len(part)} rows in {self._box.collection}"):
                self._letters.bulk_write(updates, ordered=False)

    def open(self, before: LetterTotals) -> LetterTotals:
        """How many rows are refused. To count reads the index alone; the sizes are read only if the number is not that of `before`."""
        condition = {"_id": beginning_with(ids_of(self._box.changefeed))}
        with translated(f"counting the dead letters in {self._box.collection}", SinkRefused):
            count = self._letters.count_documents(condition, hint="_id_", maxTimeMS=int(_SECONDS * 1000))
            if count == before.count:
                return before
            return LetterTotals(count=count, **self._sums(condition)) if count else LetterTotals()

    def _sums(self, condition: Mapping[str, Any]) -> dict[str, Any]:
        """A target of 4.2 cannot say the size."""
        since = {"_id": None, "since": {"$min": "$first_rejected_at"}}
        try:
            found = self._grouped(condition, {**since, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}})
        except OperationFailure as error:
            if error.code != _UNKNOWN_EXPRESSION:
                raise
            found = self._grouped(condition, since)
        return {name: value for group in found for name, value in group.items() if name != "_id"}

    def _grouped(self, condition: Mapping[str, Any], group: Mapping[str, Any]) -> list[dict[str, Any]]:
        stages = [{"$match": condition}, {"$group": group}]
        return list(self._letters.aggregate(stages, maxTimeMS=int(_SECONDS * 1000)))

    def drop(self, letters: Sequence[StoredLetter]) -> int:
        dropped = 0
        for part in parts(letters, _AT_ONCE):
            requests = [DeleteOne({"_id": request_id(self._box.changefeed, letter.id)}) for letter in part]
            with self._writing(f"dropping {len(part)} dead letters of {self._box.collection}"):
                self._letters.bulk_write(requests, ordered=False)
                dropped += self._letters.delete_many({"_id": {"$in": [each.id for each in part]}}).deleted_count
        return dropped

    def forget(self, table: TableId, permit: Permit) -> None:
        """Drops all of a table, without a look at those of others. Each command takes effect within the permit or never: a late one would drop
        the letters of the next copy.
        """
        changefeed = self._box.changefeed
        for kept in (Kept.REQUEST, Kept.NOTE, Kept.LETTER):
            condition = {"_id": beginning_with(ids_of(changefeed, kept, table))}
            with (
                pymongo.timeout(permit()),
                self._writing(f"dropping the dead letters of a table in {self._box.collection}"),
            ):
                self._letters.delete_many(condition)

    @staticmethod
    @contextmanager
    def _writing(doing: str) -> Iterator[None]:
        with translated(doing, SinkRefused), pymongo.timeout(_SECONDS):
            yield

    def _requested(self) -> set[str]:
        ids = self._found({"_id": beginning_with(ids_of(self._box.changefeed, Kept.REQUEST))})
        return {request["_id"] for request in ids}

    def _found(self, condition: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        with translated(f"reading the dead letters in {self._box.collection}", SinkRefused):
            yield from self._letters.find(condition, _WITHOUT_CONTENT, max_time_ms=int(_SECONDS * 1000))


def named(letters: Sequence[StoredLetter], key: str) -> list[StoredLetter]:
    """The letters of the row that a user names: by the key as it is listed, by the `_id` as Extended JSON, or by its plain text."""
    rows = {row_of(bson.encode({"_id": id})) for id in _ids(key)}
    return [letter for letter in letters if letter.key == key or letter.row in rows]


def _ids(text: str) -> Iterator[Any]:
    yield text
    if ObjectId.is_valid(text):
        yield ObjectId(text)
    try:
        value = json_util.loads(text, json_options=json_util.RELAXED_JSON_OPTIONS)
        bson.encode({"_id": value})
    except (json.JSONDecodeError, BSONError, ValueError, TypeError, OverflowError):
        return
    yield value["_id"] if isinstance(value, dict) and value.keys() == {"_id"} else value


def _stored(letter: Mapping[str, Any], *, requested: bool) -> StoredLetter:
    key, event = letter.get("key", ""), letter.get("event", {})
    position = str(letter.get("position", ""))
    return StoredLetter(
        id=letter["_id"],
        table=letter.get("table", ""),
        table_id=letter.get("table_id") or letter["_id"].partition("/")[0],
        key=key if isinstance(key, str) else text_of(bson.encode(key)),
        first_position=letter.get("first_position", position),
        position=position,
        first_rejected_at=letter.get("first_rejected_at"),
        rejected_at=letter.get("rejected_at"),
        tries=letter.get("tries", 1),
        error=str(letter.get("error", "")),
        type=event.get("type", ""),
        requested=requested,
    )
