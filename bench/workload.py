"""What is written to a source before or while it is replicated."""

from __future__ import annotations

from dataclasses import dataclass

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import UpdateOne

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from source.connection import Client

DATABASE = "bench"
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)


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

    def insert(self, client: Client) -> Window:
        """Returns the range of positions in which the events lie."""
        start = newest(client)
        filling = "x" * max(0, self.document_bytes - 40)
        for first in range(0, self.events, self.batch):
            numbers = range(first, min(first + self.batch, self.events))
            documents = [RawBSONDocument(bson.encode({"_id": number, "a": number, "s": filling})) for number in numbers]
            table = client[self.database][self.names()[first // self.batch % self.tables]]
            client[self.database].get_collection(table.name, _RAW).insert_many(documents, ordered=False)
        return Window(start, self._resolved(client))

    def update(self, client: Client) -> Window:
        """One update of each document that `insert` wrote."""
        start = newest(client)
        for first in range(0, self.events, self.batch):
            numbers = range(first, min(first + self.batch, self.events))
            table = client[self.database][self.names()[first // self.batch % self.tables]]
            table.bulk_write(
                [UpdateOne({"_id": number}, {"$set": {"a": -1 - number}}) for number in numbers], ordered=False
            )
        return Window(start, self._resolved(client))

    def _resolved(self, client: Client) -> Position:
        """The end of what was written, followed by something else, so that a reader is not held up by a quiet source."""
        end = newest(client)
        client[f"{self.database}_later"]["later"].insert_one({})
        return end


def newest(client: Client) -> Position:
    """After everything that was written."""
    return Position(ClusterTime.from_bson(client.admin.command("ping")["operationTime"]).next())
