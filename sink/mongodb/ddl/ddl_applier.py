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
acknowledgement; an election then takes it back. So what is concluded from a look rests on one that the majority confirmed in the same term:

    term of the primary ──▶ look ──▶ a write that changes nothing, acknowledged by the majority ──▶ in which term?
            ▲                                                                                        │  the same: what was seen is durable
            └──────────────────────────────────────── another: look again ───────────────────────────┘

A refusal needs no such look: the server waits for the majority before it says no, too, and says when it waited in vain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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

from changefeed.config.configuration import Ttl
from changefeed.documents.document import EMPTY, Document
from changefeed.errors import DdlAmbiguous, DdlRefused, FencedError, SluiceError
from changefeed.records import Observation, ObservedTable
from changefeed.table import TableName
from sink.ddl import DownstreamDdl, ShardTable, Skip, names_of
from sink.mongodb.codes import NAMESPACE_NOT_FOUND, UUID_MISMATCH
from sink.mongodb.command import DdlCommand
from sink.mongodb.commander import Permit
from sink.mongodb.connection import Client
from sink.mongodb.ddl.ddl_commands import Target, commands
from sink.mongodb.ddl.ddl_effect import DdlEffect, effect, refusal
from sink.mongodb.errors import code_of, duplicate_key, translate, translated
from sink.mongodb.majority import LATE, stalled

_log = structlog.get_logger(__name__)

_OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(
    dict, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_BUCKETS = "system.buckets."
_MAJORITY_SECONDS = 5.0
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
        """What stands there for good, as far as this writer and its predecessors are concerned."""
        asked = tuple(names)
        if not asked:
            return Observation(tables={})
        while True:
            term, seen = self._term(), self._look(asked)
            reached = self._reach_majority(asked[0].db)
            if term == reached if term is not None else seen == self._look(asked):
                return seen
            _log.info("ddl_target_looked_at_again", tables=", ".join(map(str, asked)))

    def _look(self, names: Iterable[TableName]) -> Observation:
        """As the primary has it now; an election may take it back."""
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
        now = self._look(names_of(ddl))
        if effect(ddl, before, now, self._ttl) is not DdlEffect.ABSENT:
            now = self.observe(names_of(ddl))
        while (found := effect(ddl, before, now, self._ttl)) is DdlEffect.ABSENT:
            steps = commands(ddl, now, target, self._ttl)
            try:
                self._expect_majority(steps, names_of(ddl))
                self.run(steps)
            except (DdlRefused, DdlAmbiguous):
                looked, now = now, self.observe(names_of(ddl))
                if now == looked:
                    raise
            else:
                return ""
        if found is DdlEffect.UNCLEAR:
            raise DdlAmbiguous(_unclear(ddl, before, now))
        return "it was done already"

    def run(self, steps: Iterable[DdlCommand]) -> None:
        for command in steps:
            self._send(command)

    def close(self) -> None:
        self._client.close()

    def _send(self, command: DdlCommand) -> Mapping[str, Any]:
        """The reply, once the majority has what it tells of. A refusal that means that it was so already is one, too."""
        permitted = self._permit()
        if permitted <= 0:
            raise FencedError(f"{command}: not sent, since this node may no longer be the owner")
        log = _log.bind(command=str(command))
        log.info("ddl_command_sent")
        try:
            with pymongo.timeout(permitted) if command.brief else nullcontext():
                reply = self._answer(command, permitted)
            # The driver reads no write concern errors from replies to plain commands.
            unacknowledged = reply.get("writeConcernError")
            if unacknowledged and unacknowledged.get("code") in LATE:
                raise stalled(self._client, str(command))
            if unacknowledged:
                raise OperationFailure(unacknowledged.get("errmsg", ""), unacknowledged.get("code"), unacknowledged)
        except (PyMongoError, BSONError) as error:
            raise _refused(command, error) from error
        if not reply.get("ok", 1):
            log.info("ddl_command_found_it_done", answer=reply.get("errmsg"))
        return reply

    def _answer(self, command: DdlCommand, permitted: float) -> Mapping[str, Any]:
        """A refusal that its majority does not have yet says nothing, whatever it says no to.

        The target is to say that its majority is late before the driver gives a brief command up.
        """
        seconds = min(_MAJORITY_SECONDS, permitted / 2) if command.brief else _MAJORITY_SECONDS
        concern = {"w": "majority", "wtimeout": max(1, int(1000 * seconds))}
        try:
            return self._client[command.db].command({**command.body, "writeConcern": concern})
        except OperationFailure as error:
            details = error.details or {}
            if error.code in command.settled or details.get("writeConcernError"):
                return details
            raise

    def _expect_majority(self, steps: Iterable[DdlCommand], names: Sequence[TableName]) -> None:
        """A command without a time limit waits for a majority that stands still without a word, so that is asked for before it: in the
        database of a table that the DDL is about, since a rename is a command of a database where the sink's user may write nothing.
        """
        if names and not all(command.brief for command in steps):
            self._reach_majority(names[0].db)

    def _reach_majority(self, db: str) -> ObjectId | None:
        """Waits until the majority has everything that this primary has; in which term. A delete that finds nothing creates nothing."""
        nothing = [{"q": {"_id": ObjectId()}, "limit": 1}]
        term: ObjectId | None = self._send(DdlCommand(db, {"delete": "sluice.majority", "deletes": nothing})).get(
            "electionId"
        )
        return term

    def _term(self) -> ObjectId | None:
        """None where the target does not tell, as a router."""
        with translated("asking the target who leads"):
            term: ObjectId | None = self._client.admin.command("hello").get("electionId")
        return term

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


def _refused(command: DdlCommand, error: Exception) -> SluiceError:
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
