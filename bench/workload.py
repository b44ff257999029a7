"""`Workload`: the writes at a source, before or during its replication."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from source.connection import Client

DATABASE = "bench"
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
_OVERHEAD = 40
Write = InsertOne[dict[str, Any]] | UpdateOne | ReplaceOne[dict[str, Any]] | DeleteOne


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    events: int
    tables: int = 1
    document_bytes: int = 200
    batch: int = 2_500
    database: str = DATABASE

    def names(self) -> list[str]:
        return [f"table{number:02}" for number in range(self.tables)]

    def prepare(self, client: Client) -> None:
        client.drop_database(self.database)
        for name in self.names():
            client[self.database].create_collection(name)

    def insert(self, client: Client, *, batches_a_second: int | None = None) -> Window:
        """Inserts the documents; returns the range of positions of the events."""
        start = newest(client)
        for table, numbers in self._batches():
            time.sleep(1 / batches_a_second if batches_a_second else 0)
            documents = [RawBSONDocument(bson.encode(self._document(number))) for number in numbers]
            client[self.database].get_collection(table, _RAW).insert_many(documents, ordered=False)
        return Window(start, resolved(client, self.database))

    def mix(self, client: Client) -> Window:
        """Of ten events five are inserts, three updates, one a replace and one a delete, applied to the documents of `insert`."""
        start = newest(client)
        for table, numbers in self._batches():
            client[self.database][table].bulk_write([self._write(number) for number in numbers], ordered=False)
        return Window(start, resolved(client, self.database))

    def _batches(self) -> Iterator[tuple[str, range]]:
        names = self.names()
        for first in range(0, self.events, self.batch):
            yield names[first // self.batch % self.tables], range(first, min(first + self.batch, self.events))

    def _document(self, number: int) -> dict[str, Any]:
        return {"_id": number, "a": number, "s": "x" * max(0, self.document_bytes - _OVERHEAD)}

    def _write(self, number: int) -> Write:
        match number % 10:
            case 0 | 2 | 4 | 6 | 8:
                return InsertOne(self._document(self.events + number))
            case 1 | 3 | 5:
                return UpdateOne({"_id": number}, {"$set": {"a": -1 - number}})
            case 7:
                return ReplaceOne({"_id": number}, self._document(-1 - number) | {"_id": number})
            case _:
                return DeleteOne({"_id": number})


def resolved(client: Client, database: str) -> Position:
    """The end of the writes. It adds one more write after it, so that a reader does not wait on a quiet source."""
    end = newest(client)
    client[f"{database}_later"]["later"].insert_one({})
    return end


def newest(client: Client) -> Position:
    """The position after all writes so far."""
    return Position(ClusterTime.from_bson(client.admin.command("ping")["operationTime"]).next())
