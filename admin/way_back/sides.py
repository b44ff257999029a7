"""`CutOverSide`: what a cut-over does at the source and at the target, as their users.

Blocked writes bind no user that may bypass the block, and no server that expires documents: so expiry is suspended apart, as a target's is.
What may be written all the same, or where a server cannot block (before 6.0), is found in the oplog afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import json_util
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure
from pymongo.write_concern import WriteConcern

from admin.preflight.privileges import Privileges
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Ttl
from changefeed.config.uri import ConnectionUri
from changefeed.documents.document import Document
from changefeed.errors import PermanentError, RetryableError, SluiceError
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId, Expiry
from changefeed.table import TableName, TableSchema
from credentials.redaction import redacted
from credentials.secrets import expanded
from sink.mongodb.commander import Commander
from sink.mongodb.ddl.ddl_commands import Target
from sink.mongodb.ddl.target_definition import EXPIRY, index_expiry, modified_expiry
from source.connection import HELLO, Client, connect, is_config_server, is_router, session_time
from source.errors import translated
from source.oplog.window import newest_time, read_oplog_window
from source.tables.catalog import read_catalog

_NAME = "sluice-cut-over"
CUT_OVERS = TableName("sluice", "cut_overs")
_RETRY_FOR = timedelta(seconds=30)
LIFTED_BY = "db.adminCommand({setUserWriteBlockMode: 1, global: false})"
"""A block stays, over restarts of its servers too, until somebody lifts it."""
_BLOCKS_SINCE = (6, 0)
_TO_BLOCK = ("setUserWriteBlockMode", "bypassWriteBlockingMode")
_OF_SERVERS = frozenset({"", "admin", "config", "local", "sluice"})
_MOST_NAMED = 20
_GONE = frozenset({26, 27})
"""NamespaceNotFound, IndexNotFound."""

Renamed = Callable[[TableName], TableName]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """`failed`: may succeed another time. `gone`: the table or the index was dropped or renamed, so it never does."""

    failed: Sequence[str] = ()
    gone: Sequence[str] = ()

    @property
    def problems(self) -> list[str]:
        return [*self.failed, *self.gone]


class CutOverSide:
    """`name`: source or target, for messages."""

    def __init__(self, name: str, uri: ConnectionUri) -> None:
        self._name = name
        self._uri = uri

    def obstacles(self, *, blocks: bool) -> Iterator[str]:
        """Why it cannot have a part in a way back, or its users cannot be kept from writing."""
        with self._client() as client, translated(f"reading the type of the {self._name}"):
            if is_router(client) or is_config_server(client):
                yield f"{self._name}: it is a sharded cluster; there is a way back between replica sets only"
                return
        if blocks:
            yield from self.unblockable(_TO_BLOCK, ("backup", "admin"), ("restore", "admin"))

    def unblockable(self, needed: Collection[str], *roles: tuple[str, str]) -> Iterator[str]:
        """Why its users cannot be kept from writing. Those who may bypass it (`restore`, `root`) go on, and so does the server itself."""
        with self._client() as client, translated(f"reading the type of the {self._name}"):
            if is_config_server(client):
                yield "the writes of a cluster's users are blocked through a router; stop the writers, and leave --block-writes out"
                return
            version = tuple(client.server_info()["versionArray"][:2])
            if version < _BLOCKS_SINCE:
                yield (
                    f"{self._name}: it is MongoDB {version[0]}.{version[1]}, which cannot block the writes of its users (6.0 can); stop the writers, and "
                    "leave --block-writes out"
                )
                return
            user = Privileges.of(client.admin.command("connectionStatus", showPrivileges=True))
            if missing := user.lacking_on_the_cluster(needed):
                yield f"{self._name}: {user.problem(missing, 'on the cluster', *roles)}"

    def block(self, *, blocked: bool) -> None:
        """Returns once the writes that were being executed have ended. May be called again."""
        doing = f"{'blocking' if blocked else 'allowing'} the writes of the {self._name}'s users"
        with self._client() as client, translated(doing):
            client.admin.command({"setUserWriteBlockMode": 1, "global": blocked})

    def expiries(self, wanted: Callable[[TableName], bool]) -> tuple[Expiry, ...]:
        with self._client() as client:
            return tuple(each for table in read_catalog(client, wanted).tables for each in expiries_of(table))

    def suspend(self, expiries: Iterable[Expiry]) -> None:
        """Raises what cannot be suspended. May be called again. What is gone expires nothing."""
        with self._client() as client:
            with translated(f"reading the version of the {self._name}"):
                wire = client.admin.command(HELLO)["maxWireVersion"]
            never = Target(wire=wire, sharded=False).never_seconds
            modified = _modify(client, expiries, lambda changes: modified_expiry(changes, Ttl.DEFERRED, never))
        if modified.failed:
            raise PermanentError("; ".join(modified.failed))

    def restore(self, expiries: Iterable[Expiry], renamed: Renamed = lambda name: name) -> Restored:
        """Tries each, even if others fail. Raises `SourceUnavailable` at once if nobody answers."""
        with self._client() as client:
            with translated(f"reaching the {self._name}"):
                client.admin.command("ping")
            return _modify(client, expiries, _as_it_was, renamed)

    def newest(self) -> ClusterTime:
        """At or after all that it acknowledged before this call. Its majority may have some of that only later."""
        with self._client() as client:
            return newest_time(client)

    def mark(self, id: ChangefeedId, back: ChangefeedId) -> ClusterTime:
        """The time of a write of our own. Users' writes come after it."""
        with (
            self._client() as client,
            translated(f"marking the cut-over at the {self._name}"),
            client.start_session() as session,
        ):
            table = client[CUT_OVERS.db].get_collection(CUT_OVERS.coll, write_concern=WriteConcern("majority"))
            written = {"way_back": back, "at": datetime.now(UTC)}
            table.update_one({"_id": id}, {"$set": written}, upsert=True, session=session)
            return session_time(session)

    def reaches(self, ts: ClusterTime) -> bool:
        """Whether its oplog still has all that was written after that time."""
        with self._client() as client:
            window = read_oplog_window(client)
        return window is not None and window.holds(Position(ts))

    def foreign(self, wanted: Callable[[TableName], bool], after: ClusterTime, until: ClusterTime) -> tuple[str, ...]:
        """What was written in (after, until] to the tables that are wanted, as texts."""
        found: Counter[TableName] = Counter()
        with self._client() as client, translated(f"reading what was written at the {self._name} meanwhile"):
            between = {
                "$gt": Timestamp(after.seconds, after.increment),
                "$lte": Timestamp(until.seconds, until.increment),
            }
            fields = {"op": 1, "ns": 1, "fromMigrate": 1, "o": 1}
            for entry in client["local"]["oplog.rs"].find({"ts": between, "op": {"$ne": "n"}}, fields):
                found.update(name for name in _written(entry) if name.db not in _OF_SERVERS and wanted(name))
        texts = [
            f"{self._name}: {name}: {number:,} {'write' if number == 1 else 'writes'}"
            for name, number in sorted(found.items())
        ]
        if not self.reaches(after):  # asked after the range was read: entries are removed in order
            texts.insert(
                0, f"{self._name}: its oplog does not reach back to {after}: what was written since then is not known"
            )
        left = len(texts) - _MOST_NAMED
        return (*texts[:_MOST_NAMED], *([f"{self._name}: {left:,} more tables"] if left > 0 else []))

    @contextmanager
    def _client(self) -> Iterator[Client]:
        with closing(connect(expanded(self._uri), app_name=_NAME, capture=None)) as client:
            yield client


def expiries_of(table: TableSchema) -> Iterator[Expiry]:
    options = table.options.decode()
    if EXPIRY in options:
        yield Expiry(table=table.name, after=Document.of({EXPIRY: options[EXPIRY]}))
    for index in (specification.decode() for specification in table.indexes):
        if EXPIRY in index:
            yield Expiry(table=table.name, index=index["name"], after=Document.of({EXPIRY: index[EXPIRY]}))


def left_at(name: str, error: SluiceError, expiries: Iterable[Expiry], *, blocks: bool) -> Iterator[str]:
    """What a user has to do by hand at a side that does not answer, should it come back."""
    silent = f"{name}: it does not answer ({redacted(str(error))}); should it come back"
    if blocks:
        yield f"{silent}, its users' writes are blocked until an administrator lifts that: {LIFTED_BY}"
    for each in expiries:
        yield f"{silent}, documents of {each.table} may not expire until you run {_by_hand(each.table, _changes(each, _as_it_was))}"


def _by_hand(name: TableName, changes: Mapping[str, Any]) -> str:
    command = json_util.dumps({"collMod": name.coll, **changes}, json_options=json_util.RELAXED_JSON_OPTIONS)
    return f'db.getSiblingDB("{name.db}").runCommand({command})'


def _changes(expiry: Expiry, how: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Mapping[str, Any]:
    after = expiry.after.decode()
    return how({"index": {"name": expiry.index, **after}} if expiry.index else after)


def _as_it_was(changes: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**changes, "index": index_expiry(changes["index"], Ttl.COPIED)} if "index" in changes else changes


def _modify(
    client: Client,
    expiries: Iterable[Expiry],
    how: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    renamed: Renamed = lambda name: name,
) -> Restored:
    commander = Commander(client, permit=_RETRY_FOR.total_seconds, retry_for=_RETRY_FOR, patience=_RETRY_FOR)
    failed, gone = [], []
    for each in expiries:
        name, changes = renamed(each.table), _changes(each, how)
        commander.begin()
        try:
            body = {"collMod": name.coll, **changes, "writeConcern": {"w": "majority"}}
            commander.send(name.db, body, f"changing the expiry of {name}")
        except (PermanentError, RetryableError) as error:
            cause = error.__cause__
            if not (isinstance(cause, OperationFailure) and cause.code in _GONE):
                failed.append(str(error))
                continue
            what = f"index {each.index} of {name}" if each.index else f"{name}"
            gone.append(
                f"{what} is not there any more; if it was renamed, run this with its new name: {_by_hand(name, changes)}"
            )
    return Restored(failed=failed, gone=gone)


def _written(entry: Mapping[str, Any]) -> Iterator[TableName]:
    """The tables of an oplog entry. Of a transaction, each of its writes counts."""
    operation = entry.get("o", {})
    if entry.get("op") == "c":
        inner = operation.get("applyOps")
        if inner is not None:
            for each in inner:
                yield from _written(each)
            return
        verb, *_ = operation or ("",)
        name = operation.get(verb)
        text = name if verb == "renameCollection" else f"{entry['ns'].partition('.')[0]}.{name}"
    else:
        text = entry.get("ns", "")
    try:
        yield TableName.parse(str(text))
    except ValueError:
        return
