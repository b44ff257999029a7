"""`TableSpread`: shards a new table at the target as the source shards it, and divides it among the target's shards before rows come.

    source                        target with two shards, at most 16 chunks on each
    key {customer: 1}, 100 chunks the same key, 32 chunks: the first 16 on one shard, the others on the other
    zone "eu" [a, n)              the same zone, if a shard of the target has it; otherwise it is left out, and logged
    key {_id: "hashed"}           divided by the target itself

A table that is sharded at the target already stays as it is: a user made it so. Each step may be repeated; after an interruption between two
divisions the target's balancer does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from pymongo.errors import OperationFailure

from changefeed.documents.document import Document
from changefeed.errors import DdlRefused
from changefeed.table import TableName
from changefeed.table_layout import TableLayout
from sink.mongodb.connection import Client
from sink.mongodb.ddl.ddl_commands import DdlCommand
from sink.mongodb.target_errors import translate, translated

_MOST_ON_A_SHARD = 16

_log = structlog.get_logger(__name__)


class TableSpread:
    def __init__(
        self, client: Client, run: Callable[[DdlCommand], object], check_permitted: Callable[[], None]
    ) -> None:
        """`run` sends a command with the wait for the majority, which those about single chunks do not take."""
        self._client = client
        self._run = run
        self._check_permitted = check_permitted

    def key(self, name: TableName) -> Document | None:
        """By which the target shards the table."""
        with translated(f"reading how the target shards {name}"):
            entry = self._client["config"]["collections"].find_one({"_id": str(name)})
        sharded = entry is not None and not entry.get("dropped") and not entry.get("unsplittable")
        return Document.of(entry["key"]) if entry is not None and sharded else None

    def make_zones(self, name: TableName, layout: TableLayout) -> None:
        """Before the table is sharded: then the target divides it by its zones at once."""
        carried = {zone for shard in self._shards() for zone in shard.get("tags", ())}
        for range in layout.zones:
            if range.zone not in carried:
                _log.warning("zone_left_out", table=str(name), zone=range.zone, reason="no shard of the target has it")
                continue
            body = {"min": range.lower.decode(), "max": range.upper.decode(), "zone": range.zone}
            self._run(DdlCommand("admin", {"updateZoneKeyRange": str(name), **body}))

    def divide(self, name: TableName, layout: TableLayout) -> None:
        """Does nothing where the table is divided: by the target itself, for its zones or hashes, or by a call that was interrupted."""
        if len(self._chunks(name)) > 1:
            return
        shards = [str(shard["_id"]) for shard in self._shards() if not shard.get("draining")]
        for bound in layout.bounds_of(_MOST_ON_A_SHARD * len(shards)):
            self._about_chunks({"split": str(name), "middle": bound.decode()})
        chunks = self._chunks(name)
        for number, chunk in enumerate(chunks):
            to = shards[number * len(shards) // len(chunks)]
            if chunk["shard"] != to:
                self._move(name, chunk, to)

    def _move(self, name: TableName, chunk: Mapping[str, Any], to: str) -> None:
        """The target's balancer does what is refused here."""
        try:
            self._about_chunks({"moveChunk": str(name), "bounds": [chunk["min"], chunk["max"]], "to": to})
        except DdlRefused as error:
            _log.warning("chunk_not_moved", table=str(name), to=to, reason=str(error))

    def _about_chunks(self, body: Mapping[str, Any]) -> None:
        self._check_permitted()
        try:
            self._client.admin.command(dict(body))
        except OperationFailure as error:
            raise translate(error, doing=f"{next(iter(body))} of a new table", refused=DdlRefused) from error

    def _shards(self) -> list[dict[str, Any]]:
        with translated("reading the target's shards"):
            return list(self._client["config"]["shards"].find(sort=[("_id", 1)]))

    def _chunks(self, name: TableName) -> list[dict[str, Any]]:
        with translated(f"reading the chunks of {name} at the target"):
            entry = self._client["config"]["collections"].find_one({"_id": str(name)})
            return (
                list(self._client["config"]["chunks"].find({"uuid": entry["uuid"]}, sort=[("min", 1)])) if entry else []
            )
