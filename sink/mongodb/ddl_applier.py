"""`MongoDdlApplier`: the `DdlApplier` of a MongoDB target.

Exactly once, whatever happens: the owner records what it observed, then calls `apply`, which compares the target with that record
before it does anything (`ddl_effect`). A crash at any line, a broken connection during a command, a second owner that takes
over: each ends in `apply` being called again with the same record, and what is found done is not done again.

A command whose connection broke may still be running at the target. An index build goes on there; the repeated createIndexes
joins it, or is told to come back later (a retryable error). Any other command may finish under the feet of its repetition, which
is then refused: so a refusal counts only when another look finds the target as it was at the first.

An owner that lost its session while it waited sends nothing more, by its own clock, and what it has sent takes effect before its
session is over, or never: index builds, renames and sharding apart, which may take hours. One that was stopped between that question and the
command is refused by the UUIDs if the table is another by then.

What is found done may not have reached the majority yet, when the writer died between the target's effect and its
acknowledgement: a write that changes nothing, acknowledged by the majority, settles that before the DDL is called done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import pymongo
import structlog
from bson import ObjectId
from bson.binary import Binary
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

from changefeed.configuration import Ttl
from changefeed.document import EMPTY, Document
from changefeed.errors import DdlAmbiguous, DdlRefused, FencedError, SluiceError
from changefeed.records import Observation, ObservedTable
from changefeed.table import TableName
from sink.ddl import DownstreamDdl, ShardTable, Skip, names_of
from sink.mongodb.command import Command
from sink.mongodb.commander import Permit
from sink.mongodb.connection import Client
from sink.mongodb.ddl_commands import Target, commands
from sink.mongodb.ddl_effect import Effect, effect, refusal
from sink.mongodb.errors import (
    NAMESPACE_NOT_FOUND,
    UUID_MISMATCH,
    answer_of,
    code_of,
    duplicate_key,
    translate,
    translated,
)

_log = structlog.get_logger(__name__)

_OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(
    dict, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_BUCKETS = "system.buckets."
_MAJORITY = {"w": "majority", "wtimeout": 60_000}
"""A majority that is gone for longer makes a retryable error, so that the changefeed can say what it waits for."""

_REMEDIES: Mapping[int, str] = {
    48: "something else stands under this name at the target: drop or rename it there",
    67: "the target cannot build this index: drop it at the source, or let the filter ignore it",
    85: "an index of this name or key stands at the target with other options: drop it there",
    86: "an index of this name stands at the target with another key: drop it there",
    40415: "the target's version does not know this option: upgrade it, or let the filter ignore this DDL",
}
_REMEDY = "mend the cause at the target, or let the filter ignore this DDL"


class MongoDdlApplier:
    def __init__(self, client: Client, *, permit: Permit, ttl: Ttl = Ttl.DEFERRED) -> None:
        """Takes the client over: `close` closes it. `permit` is the owner's session: asked before each command."""
        self._client = client
        self._permit = permit
        self._ttl = ttl

    def observe(self, names: Iterable[TableName]) -> Observation:
        wanted: dict[str, list[TableName]] = defaultdict(list)
        tables: dict[TableName, ObservedTable | None] = {}
        for name in names:
            wanted[name.db].append(name)
            tables[name] = None
        with translated("looking at the target's tables"):
            for db, of_db in wanted.items():
                tables |= self._observe_database(db, of_db)
        return Observation(tables=tables)

    def apply(self, ddl: DownstreamDdl, before: Observation) -> str:
        if isinstance(ddl, Skip):
            return ddl.note
        target = self._target()
        if isinstance(ddl, ShardTable) and not target.sharded:
            return "the target is not sharded"
        reason = refusal(ddl, before, self._ttl)
        if reason is not None:
            raise DdlRefused(f"{_subject(ddl)}: {reason}; then resume the changefeed")
        now = self.observe(names_of(ddl))
        while (found := effect(ddl, before, now, self._ttl)) is Effect.ABSENT:
            try:
                self.run(commands(ddl, now, target, self._ttl))
            except (DdlRefused, DdlAmbiguous):
                looked, now = now, self.observe(names_of(ddl))
                if now == looked:
                    raise
            else:
                return ""
        if found is Effect.UNCLEAR:
            raise DdlAmbiguous(_unclear(ddl, before, now))
        self._reach_majority(names_of(ddl)[0].db)
        return "it was done already"

    def run(self, steps: Iterable[Command]) -> None:
        for command in steps:
            if not self._acknowledged(command):
                self._reach_majority(command.db)

    def close(self) -> None:
        self._client.close()

    def _acknowledged(self, command: Command) -> bool:
        """Whether the majority has it; a refusal that means that it was so already says nothing of the majority."""
        permitted = self._permit()
        if permitted <= 0:
            raise FencedError(f"{command}: not sent, since this node may no longer be the owner")
        log = _log.bind(command=str(command))
        log.info("ddl_command_sent")
        try:
            with pymongo.timeout(permitted) if command.brief else nullcontext():
                reply = self._client[command.db].command({**command.body, "writeConcern": dict(_MAJORITY)})
            # The driver reads no write concern errors from replies to plain commands.
            unacknowledged = reply.get("writeConcernError")
            if unacknowledged:
                raise OperationFailure(unacknowledged.get("errmsg", ""), unacknowledged.get("code"), unacknowledged)
        except (PyMongoError, BSONError) as error:
            if code_of(error) not in command.settled:
                raise _refused(command, error) from error
            log.info("ddl_command_found_it_done", answer=answer_of(error))
            return False
        return True

    def _reach_majority(self, db: str) -> None:
        """Waits until the majority has everything that this primary has: a delete that finds nothing creates nothing."""
        nothing = [{"q": {"_id": ObjectId()}, "limit": 1}]
        self._acknowledged(Command(db, {"delete": "sluice.majority", "deletes": nothing}))

    def _target(self) -> Target:
        """Asked anew for each DDL: a target may be upgraded while replication runs."""
        with translated("asking the target who it is"):
            hello = self._client.admin.command("hello")
        return Target(wire=hello["maxWireVersion"], sharded=hello.get("msg") == "isdbgrid")

    def _observe_database(self, db: str, names: list[TableName]) -> dict[TableName, ObservedTable]:
        database = self._client.get_database(db, codec_options=_OPTIONS)
        collections = [name.coll for name in names]
        asked = {"name": {"$in": [*collections, *(_BUCKETS + name for name in collections)]}}
        listed = database.cursor_command("listCollections", filter=asked, codec_options=_OPTIONS)
        found = {entry["name"]: entry for entry in listed}
        tables = {}
        for name in names:
            entry = found.get(name.coll)
            if entry is None:
                continue
            is_view = entry.get("type") == "view"
            indexes: Iterable[Mapping[str, Any]] = [] if is_view else _indexes(database, name)
            tables[name] = ObservedTable(
                uuid=_uuid(entry) or _uuid(found.get(_BUCKETS + name.coll, {})),
                options=Document.of(entry["options"]) if entry.get("options") else EMPTY,
                indexes=tuple(map(Document.of, indexes)),
            )
        return tables


def _indexes(database: Database[dict[str, Any]], name: TableName) -> Iterable[Mapping[str, Any]]:
    """Asked by hand, as the collections are, since the driver's own helpers cannot read every date that may stand in definitions."""
    try:
        return list(database.cursor_command("listIndexes", name.coll, codec_options=_OPTIONS))
    except OperationFailure as error:
        if error.code != NAMESPACE_NOT_FOUND:
            raise
        return []


def _uuid(entry: Mapping[str, Any]) -> str | None:
    """A view has none. A time-series has none of its own before the servers without bucket collections: its buckets' is used."""
    uuid = entry.get("info", {}).get("uuid")
    if entry.get("type") == "view" or not isinstance(uuid, Binary):
        return None
    return uuid.hex()


def _refused(command: Command, error: Exception) -> SluiceError:
    translation = translate(error, doing=str(command), refused=DdlRefused)
    if not isinstance(translation, DdlRefused):
        return translation
    if code_of(error) == UUID_MISMATCH:
        return DdlAmbiguous(f"{translation}; somebody replaced the collection at the target a moment ago")
    return DdlRefused(
        f"{translation}; command: {Document.of(command.body)}; {_remedy(error)}, then resume the changefeed"
    )


def _remedy(error: Exception) -> str:
    duplicate = duplicate_key(error)
    if duplicate is not None:
        key, value = duplicate
        return f"several documents at the target have {value} under the unique key {key}, which the source's do not: remove them"
    return _REMEDIES.get(code_of(error) or 0, _REMEDY)


def _subject(ddl: DownstreamDdl) -> str:
    return f"{type(ddl).__name__} {', '.join(map(str, names_of(ddl)))}"


def _unclear(ddl: DownstreamDdl, before: Observation, now: Observation) -> str:
    then = [
        f"{name} was {_shown(before.tables.get(name))}, is {_shown(now.tables.get(name))}" for name in names_of(ddl)
    ]
    return (
        f"{_subject(ddl)}: the target is neither as before this DDL nor as after it: {'; '.join(then)}. "
        "Somebody else changed it: bring it into either state, then resume the changefeed"
    )


def _shown(table: ObservedTable | None) -> str:
    if table is None:
        return "absent"
    return f"collection {table.uuid}" if table.uuid else f"view {table.options}"
