"""`MongoDdlApplier`: the `DdlApplier` of a MongoDB target.

Each DDL is applied exactly once: the owner records what it observed, then calls `apply`, which compares the target with that record
before it changes anything (`ddl_effect`). After a crash at any line, a broken connection during a command, or a change of owner,
`apply` is called again with the same record, and does not repeat what is done already.

A command whose connection broke may still be running at the target. An index build continues there; the repeated createIndexes
joins it, or gets a retryable error. One that waits there to build is not joined: no index is dropped as long as there is one. Any other
command may finish while its repetition runs; the repetition is then refused. So a refusal counts only when a second observation equals the first.

An owner that lost its session while it waited sends no more commands, by its own clock. A command that it has sent takes effect before
its session ends, or never; index builds, renames into another database and sharding are exceptions, because they may take hours. If an owner is suspended
between the check of its permit and the command, the target refuses the command by its UUID when another table has the name by then.

An effect that is found at the target may not have reached the majority, if the writer died before the acknowledgement; an election
then rolls it back. So a conclusion needs an observation that the majority confirmed in the same term:

    term of the primary ──▶ observe ──▶ a write that changes nothing, acknowledged by the majority ──▶ in which term?
            ▲                                                                                           │  the same: the observation is durable
            └──────────────────────────────────────── another: observe again ───────────────────────────┘

A refusal needs no such observation: the server waits for the majority before it refuses, too, and reports when that wait timed out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import Any

import pymongo
import structlog
from bson import ObjectId
from bson.binary import Binary
from bson.errors import BSONError
from pymongo.errors import OperationFailure, PyMongoError

from changefeed.config.configuration import Ttl
from changefeed.config.tables.filter import series_release_obstacle
from changefeed.documents.document import EMPTY, Document
from changefeed.errors import DdlAmbiguous, DdlRefused, FencedError, SinkUnavailable, SluiceError
from changefeed.records.ddl import DdlRecord, Observation, ObservedTable
from changefeed.table import COPY_ANEW, TableName, TableSchema
from changefeed.table_layout import TableLayout
from sink.ddl import (
    CreateTable,
    DownstreamDdl,
    DropIndexes,
    ShardTable,
    SingleDdl,
    Skip,
    names_of,
    parts_of,
    shard_copy,
)
from sink.mongodb.connection import LATE, Client, Clients, listed, listed_indexes, present, stalled
from sink.mongodb.ddl.ddl_commands import UUID_MISMATCH, DdlCommand, Target, commands
from sink.mongodb.ddl.ddl_effect import DdlEffect, effect, refusal
from sink.mongodb.ddl.table_spread import TableSpread
from sink.mongodb.target_errors import code_of, duplicate_key, translate, translated
from sink.sink import Permit

_log = structlog.get_logger(__name__)

_BUCKETS = "system.buckets."
_MAJORITY_SECONDS = 5.0
"""A majority that is unavailable for longer causes a retryable error, so that the changefeed can report what it waits for."""

_TAKES_NO_UUIDS = "collectionUUID parameter is not enabled"
"""The answer of a 6.0 that still has the featureCompatibilityVersion of 5.0, which `hello` does not show."""

_UNKNOWN_OPTION = "the target's version does not know this option: upgrade it, or let the filter ignore this DDL"
_REMEDIES: Mapping[int, str] = {
    48: "the target has another collection or view of this name: drop or rename it there",
    67: "the target cannot build this index: drop it at the source, or let the filter ignore it",
    85: "the target has an index of this name or key with other options: drop it there",
    86: "the target has an index of this name with another key: drop it there",
    197: _UNKNOWN_OPTION,
    40415: _UNKNOWN_OPTION,
}
_ANEW = f"or {COPY_ANEW}"
_WITHOUT = f", go on without it (`sluice ddl skip`), {_ANEW}"
_OTHER_REMEDIES = {"create": f", {_ANEW}", **dict.fromkeys(("createIndexes", "dropIndexes", "collMod"), _WITHOUT)}
_REMEDY = "remove the cause at the target, or let the filter ignore this DDL"


@dataclass(slots=True)
class MongoDdlApplier:
    clients: Clients
    """Closed by `close`, too."""
    _: KW_ONLY
    permit: Permit
    """That of the owner's session, called before each command."""
    ttl: Ttl = Ttl.DEFERRED
    source_release: Callable[[], tuple[int, int]] | None = None
    """Asked when a time series is created. None: it is known to be the target's."""
    layout_of: Callable[[TableSchema], TableLayout | None] | None = None
    """How the source shards a table, if the target is to do the same."""

    @property
    def _client(self) -> Client:
        return present(self.clients)

    def observe(self, names: Iterable[TableName]) -> Observation:
        """The state of the tables at the target, durable as far as this owner and its predecessors wrote it."""
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
        """The present state at the primary; an election may roll it back."""
        wanted: dict[str, list[TableName]] = defaultdict(list)
        tables: dict[TableName, ObservedTable | None] = {}
        for name in names:
            wanted[name.db].append(name)
            tables[name] = None
        with translated("reading the target's tables"):
            for db, of_db in wanted.items():
                tables |= self._observe_database(db, of_db)
        return Observation(tables=tables)

    def apply(self, ddl: DownstreamDdl, before: Observation, record: DdlRecord | None = None) -> str:
        notes = [self._apply(part, before) for part in parts_of(ddl, before)]
        if isinstance(ddl, CreateTable) and before.tables.get(ddl.name) is None and record is not None:
            notes.append(self._as_source(ddl, record))
        return "; ".join(dict.fromkeys(filter(None, notes)))

    def _apply(self, ddl: SingleDdl, before: Observation) -> str:
        if isinstance(ddl, Skip):
            return ddl.note
        target = self._target()
        if isinstance(ddl, ShardTable) and (found := self._sharded(ddl, target, before)) is not None:
            return found
        self._check_possible(ddl, before)
        absent = isinstance(ddl, CreateTable) and before.tables.get(ddl.name) is None
        now = before if absent else self._look(names_of(ddl))  # a create says by itself that the table is there
        if effect(ddl, before, now, self.ttl) is not DdlEffect.ABSENT:
            now = self.observe(names_of(ddl))
        while (found := effect(ddl, before, now, self.ttl)) is DdlEffect.ABSENT:
            steps = commands(ddl, now, target, self.ttl)
            if isinstance(ddl, DropIndexes) and not target.sharded:
                self._expect_no_build(ddl.name)
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

    def _check_possible(self, ddl: SingleDdl, before: Observation) -> None:
        if other := self._other_release(ddl):
            raise DdlRefused(f"{_subject(ddl)}: {other}; then resume the table")
        reason = refusal(ddl, before, self.ttl)
        if reason is not None:
            others = f", {_ANEW}" if isinstance(ddl, CreateTable) else ""
            raise DdlRefused(f"{_subject(ddl)}: {reason}; then resume the table{others}")

    def _sharded(self, ddl: ShardTable, target: Target, before: Observation) -> str | None:
        """The note; None if the command of the source is to be repeated here."""
        if not target.sharded:
            return "the target is not sharded"
        if ddl.layout is None:
            return None if self.layout_of is not None else "shard_target is false"
        return self._spread(ddl, ddl.layout, commands(ddl, before, target, self.ttl))

    def _as_source(self, ddl: CreateTable, record: DdlRecord) -> str:
        """Shards a table that has just been created, if the source has sharded it by now. Its creation and its sharding are two steps there."""
        event = record.event
        if self.layout_of is None or event.table is None or event.id is None:
            return ""
        schema = TableSchema(id=event.id, name=event.table, valid_from=event.position)
        if (layout := self.layout_of(schema)) is None:
            return ""
        share = shard_copy(ddl.name, layout)
        return self._apply(share, self.observe(names_of(share)))

    def _spread(self, ddl: ShardTable, layout: TableLayout, steps: Sequence[DdlCommand]) -> str:
        spread = TableSpread(self._client, self._send, self._check_permitted)
        if (present := spread.key(ddl.name)) is None:
            spread.make_zones(ddl.name, layout)
            self._expect_majority(steps, names_of(ddl))
            self.run(steps)
        elif present != layout.key:
            return f"it is sharded by {present} at the target already, and stays so"
        spread.divide(ddl.name, layout)
        return ""

    def _check_permitted(self) -> None:
        if self.permit() <= 0:
            raise FencedError("a new table is not divided further, because this node may no longer be the owner")

    def _other_release(self, ddl: SingleDdl) -> str:
        """Why the target is of no use for this time series. Empty: it is."""
        series = isinstance(ddl, CreateTable) and "timeseries" in ddl.options.decode()
        if not series or self.source_release is None:
            return ""
        with translated("reading the target's release"):
            major, minor = self._client.server_info()["versionArray"][:2]
        return series_release_obstacle(self.source_release(), (major, minor))

    def run(self, steps: Iterable[DdlCommand]) -> None:
        for command in steps:
            self._send(command)

    def close(self) -> None:
        self.clients.close()

    def _send(self, command: DdlCommand) -> Mapping[str, Any]:
        """The reply, after the majority acknowledged it. A refusal which means that the wanted state exists already is a reply, too."""
        permitted = self.permit()
        if permitted <= 0:
            raise FencedError(f"{command}: not sent, because this node may no longer be the owner")
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
            if command.guarded and _TAKES_NO_UUIDS in str(error):
                return self._send(command.unguarded())
            raise _refused(command, error) from error
        if not reply.get("ok", 1):
            log.info("ddl_command_found_it_done", answer=reply.get("errmsg"))
        return reply

    def _answer(self, command: DdlCommand, permitted: float) -> Mapping[str, Any]:
        """A refusal with a write concern error counts as unacknowledged, whatever its own code is.

        For a brief command `wtimeout` ends before the driver's time limit, so that the target reports a late majority.
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
        """A command without a time limit would wait silently for a stalled majority, so the majority is checked before it. The check writes
        to the database of one of the DDL's tables: a rename is a command of `admin`, where the sink's user may have no write privilege.
        """
        if names and not all(command.brief for command in steps):
            self._reach_majority(names[0].db)

    def _expect_no_build(self, name: TableName) -> None:
        """A createIndexes of an earlier owner may wait at the target, which builds three indexes at once, though another one has built its index
        since. It would build it again after it was dropped. Users see their own commands without any privilege.
        """
        mine = [{"$currentOp": {}}, {"$match": {"command.createIndexes": name.coll, "command.$db": name.db}}]
        with translated("reading what runs at the target"):
            reply = self._client.admin.command({"aggregate": 1, "pipeline": mine, "cursor": {}})
        if reply["cursor"]["firstBatch"]:
            raise SinkUnavailable(
                f"dropIndexes on {name}: a createIndexes on it that was sent before has not ended at the target; "
                "it goes on when the target has built its other indexes"
            )

    def _reach_majority(self, db: str) -> ObjectId | None:
        """Waits until the majority has everything that this primary has, and returns the term. A delete without a match creates nothing."""
        nothing = [{"q": {"_id": ObjectId()}, "limit": 1}]
        term: ObjectId | None = self._send(DdlCommand(db, {"delete": "sluice.majority", "deletes": nothing})).get(
            "electionId"
        )
        return term

    def _term(self) -> ObjectId | None:
        """None if the target does not report it, as a router."""
        with translated("reading the target's term"):
            term: ObjectId | None = self._client.admin.command("hello").get("electionId")
        return term

    def _target(self) -> Target:
        """Read again for each DDL: a target may be upgraded while replication runs."""
        with translated("reading the target's hello"):
            hello = self._client.admin.command("hello")
        return Target(wire=hello["maxWireVersion"], sharded=hello.get("msg") == "isdbgrid")

    def _observe_database(self, db: str, names: list[TableName]) -> dict[TableName, ObservedTable]:
        collections = [name.coll for name in names]
        asked = {"name": {"$in": [*collections, *(_BUCKETS + name for name in collections)]}}
        found = {entry["name"]: entry for entry in listed(self._client, db, "listCollections", filter=asked)}
        tables = {}
        for name in names:
            entry = found.get(name.coll)
            if entry is None:
                continue
            tables[name] = ObservedTable(
                uuid=_uuid(entry) or _uuid(found.get(_BUCKETS + name.coll, {})),
                options=Document.of(entry["options"]) if entry.get("options") else EMPTY,
                indexes=() if entry.get("type") == "view" else listed_indexes(self._client, name),
            )
        return tables


def _uuid(entry: Mapping[str, Any]) -> str | None:
    """None for a view, and for a time-series on servers with bucket collections: there the UUID of its buckets is used."""
    uuid = entry.get("info", {}).get("uuid")
    if entry.get("type") == "view" or not isinstance(uuid, Binary):
        return None
    return uuid.hex()


def _refused(command: DdlCommand, error: Exception) -> SluiceError:
    translation = translate(error, doing=str(command), refused=DdlRefused)
    if not isinstance(translation, DdlRefused):
        return translation
    if code_of(error) == UUID_MISMATCH:
        return DdlAmbiguous(f"{translation}; another client has just replaced the collection at the target")
    others = _OTHER_REMEDIES.get(next(iter(command.body)), "")
    return DdlRefused(
        f"{translation}; {_remedy(error)}, then resume the table (`sluice table resume`){others}; "
        f"command: {Document.of(command.body)}"
    )


def _remedy(error: Exception) -> str:
    duplicate = duplicate_key(error)
    if duplicate is not None:
        key, value = duplicate
        return (
            f"several documents at the target have {value} under the unique key {key}, unlike the source: remove them"
        )
    return _REMEDIES.get(code_of(error) or 0, _REMEDY)


def _subject(ddl: SingleDdl) -> str:
    return f"{type(ddl).__name__} {', '.join(map(str, names_of(ddl)))}"


def _unclear(ddl: SingleDdl, before: Observation, now: Observation) -> str:
    then = [
        f"{name} was {_shown(before.tables.get(name))}, is {_shown(now.tables.get(name))}" for name in names_of(ddl)
    ]
    return (
        f"{_subject(ddl)}: the target is neither as before this DDL nor as after it: {'; '.join(then)}. "
        "Another client changed it: bring it into either state, then resume the table"
    )


def _shown(table: ObservedTable | None) -> str:
    if table is None:
        return "absent"
    return f"collection {table.uuid}" if table.uuid else f"view {table.options}"
