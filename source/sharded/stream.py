"""`ClusterStream`: the oplog of one shard, or of the config servers, read on behind its majority commit point.

It takes the commands and the few rows that tell what happens to tables, follows prepared transactions, and says whether a row of a user
was written that is not resolved yet. Rows themselves are read elsewhere (`row_reader.py`).

Before its first range it reads which transactions are prepared: those of before its start may still commit after it.

    hello             majority point 100.7 >= the start
    find              config.transactions, {state: prepared}, as a majority has it
    hello             majority point 100.9: what was decided in between is in [start, 100.10)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

import bson
from pymongo.client_session import ClientSession
from pymongo.errors import ExecutionTimeout

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SourceMajorityStalled, SourceUnavailable
from source.connection import HELLO, Client, config_documents, member_read, read_command
from source.ddl_description import ANY_TEXT
from source.errors import translated
from source.majority_watch import MajorityWatch
from source.oplog.command_entry import CommandEntry
from source.oplog.find import OPLOG, commands, entries, entry_at, parts
from source.oplog.window import majority_time_of, oldest_time_for_message
from source.read_size import Stride
from source.sharded.cluster_clients import nudge
from source.sharded.effective_order import (
    Operation,
    Prepares,
    StreamPoint,
    TransactionKey,
    Unit,
    commit_ts,
    digits_of,
    effective_ts,
    key_of_entry,
    transaction_key,
)
from source.sharded.tables.cluster_state import CHUNKS, COLLECTIONS, COORDINATORS, DATABASES, SHARDS
from source.sharded.tables.orphan_guard import FEATURES, MIGRATIONS, RANGES, VERSIONS

_WITHOUT_ROWS = {"o.applyOps.o": 0, "o.applyOps.o2": 0}
"""A prepared transaction may be large, and only its commands matter here."""
_CONFIG_NAMES = [str(name) for name in (COLLECTIONS, DATABASES, SHARDS, CHUNKS)]
CONFIG_WANTED: Mapping[str, object] = {
    "$or": [
        {"ns": {"$in": _CONFIG_NAMES}},
        {"op": "c", "o.applyOps.ns": {"$in": _CONFIG_NAMES}},
        {"ns": str(VERSIONS), "$or": [{"o._id": FEATURES}, {"o2._id": FEATURES}]},
    ]
}
SHARD_WANTED: Mapping[str, object] = {
    "$or": [
        commands(
            {"o.applyOps": {"$exists": False}},
            {"o.applyOps.op": "c"},
            {"o.prepare": True},
            {"o.partialTxn": {"$ne": True}, "prevOpTime.ts": {"$gt": ClusterTime(0, 0).to_bson()}},
        ),
        {"ns": {"$regex": r"\.system\.views$"}},
        {"ns": {"$in": [str(name) for name in (COORDINATORS, MIGRATIONS, RANGES)]}, "op": {"$in": ["i", "d"]}},
    ]
}
_OF_USERS = {
    "$or": [
        {
            "op": {"$in": ["i", "u", "d", "c"]},
            "ns": {"$not": {"$regex": r"^(config|admin|local)\."}},
            "fromMigrate": {"$ne": True},
        },
        {"op": "c", "ns": "admin.$cmd", "o.applyOps.ns": {"$regex": r"^(?!(config|admin|local)\.)"}},
        {"op": "c", "ns": "admin.$cmd", "o.commitTransaction": {"$exists": True}},
    ]
}
_LONGEST_MS = 10_000
_PATIENCE_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.1


class ClusterStream:
    """For one thread at a time."""

    def __init__(self, name: str, client: Client, start_ts: ClusterTime, *, config: bool = False) -> None:
        self.name = name
        self.prepares = Prepares()
        self._client = client
        self._wanted = CONFIG_WANTED if config else SHARD_WANTED
        self._of_users = not config
        self._read_ts = self.start_ts = start_ts
        self._looked_ts = start_ts
        """Below it no row of a user waits, except at `_waiting_ts`."""
        self._waiting_ts: ClusterTime | None = None
        self._listed_ts: ClusterTime | None = None
        """Where the member's majority point was after its prepared transactions were listed: only beyond it is the list whole."""
        self._rows_only: set[TransactionKey] = set()
        """Undecided transactions that are one entry, without a command."""
        self._stride = Stride()
        self._majority_ts = start_ts
        """Of the member, before the last poll."""
        self._session: ClientSession | None = None
        self._majority_watch = MajorityWatch(client, of="the config servers" if config else f"shard {name}")
        self.stalled: SourceMajorityStalled | None = None
        """Its primary goes on, and its majority does not."""

    @property
    def point(self) -> StreamPoint:
        return StreamPoint(
            read_ts=self._read_ts if self._whole else self.start_ts,
            prepared_ts=self.prepares.oldest_ts,
            waiting_ts=self._waiting_ts,
        )

    @property
    def quiet_ts(self) -> ClusterTime:
        """From here to where it was read there is no entry that commits a prepared transaction."""
        last_ts = self.prepares.last_commit_ts
        return last_ts.next() if last_ts is not None else self.start_ts

    @property
    def caught_up(self) -> bool:
        """Whether it has read up to where the member's majority was before the last poll, or beyond."""
        return self._whole and self._majority_ts < self._read_ts

    @property
    def _whole(self) -> bool:
        return self._listed_ts is not None and self._listed_ts < self._read_ts

    def close(self) -> None:
        if self._session is not None:
            self._session.end_session()

    def give_up(self, removed_ts: ClusterTime) -> None:
        """Nobody can read the shard any more. It counts as read up to its removal, without a prepared transaction."""
        self.prepares = Prepares()
        self._listed_ts = self._listed_ts or ClusterTime(0, 0)
        self._read_ts = self._looked_ts = max(self._read_ts, removed_ts.next())
        self._waiting_ts = None

    def poll(self) -> list[Unit]:
        """What was read in one stride, in the order of the entries. Raises `SourceUnavailable` if the member is behind: poll again.

        A stride that takes the server too long is no error, unless it could not be shorter.
        """
        with translated(f"reading the oplog of {self.name}"):
            if self._listed_ts is None:
                self._listed_ts = self._list_prepared()
            self._majority_ts = self._majority()
            self.stalled = self._majority_watch.look_at(self._majority_ts)
            end_ts = self._stride.end_of(self._read_ts, self._majority_ts.next())
            if end_ts <= self._read_ts:
                return []
            began = time.monotonic()
            try:
                found, seen = self._read(end_ts)
            except ExecutionTimeout:
                shorter = self._stride.given_up()
                if shorter == self._stride:
                    raise
                self._stride = shorter
                return []
            self._stride = self._stride.after(time.monotonic() - began)
            for entry in seen:
                self.prepares.take(entry)
            self._rows_only &= self.prepares.undecided
            self._read_ts = end_ts
            return found

    def look_for_rows(self, resolved_ts: ClusterTime) -> None:
        """Looks for rows of users from the resolved time on, as far as was read. They may be of tables that nobody wants."""
        if self._waiting_ts is not None and self._waiting_ts < resolved_ts:
            self._waiting_ts = None
        self._looked_ts = max(self._looked_ts, resolved_ts)
        if not self._of_users or self._looked_ts >= self._read_ts:
            return
        with translated(f"looking for rows in the oplog of {self.name}"):
            bounds = {"$gte": self._looked_ts.to_bson(), "$lt": self._read_ts.to_bson()}
            command = {
                "find": OPLOG.coll,
                "filter": {"ts": bounds, **_OF_USERS},
                "projection": {"ts": 1},
                "limit": 1,
                "readConcern": {"level": "majority"},
                "maxTimeMS": _LONGEST_MS,
            }
            found = read_command(self._client, OPLOG.db, command)["cursor"]["firstBatch"]
        self._looked_ts = self._read_ts
        if found:
            self._waiting_ts = self._read_ts.previous()

    @property
    def cluster_time(self) -> Mapping[str, Any] | None:
        """Signed by this member, for `nudge`."""
        return self._own_session().cluster_time

    def at_start(self) -> bool:
        """Whether the member's majority has reached the start."""
        with translated(f"reading the majority commit point of {self.name}"):
            return self._majority().next() >= self.start_ts

    def reach_start(self, cluster_time: Mapping[str, Any] | None) -> None:
        """Has a shard that has not reached its start go there, if the cluster has. Otherwise its next no-op does, within ten seconds."""
        before_ts = self.start_ts.previous()
        if (
            not self.at_start()
            and cluster_time is not None
            and ClusterTime.from_bson(cluster_time["clusterTime"]) >= before_ts
        ):
            self.nudge(before_ts, cluster_time)

    def nudge(self, to_ts: ClusterTime, cluster_time: Mapping[str, Any] | None) -> None:
        """Has the shard write a no-op at or after that time. `cluster_time` proves that the cluster has reached it."""
        nudge(self.name, self._client, self._own_session(), to_ts, cluster_time)

    def _own_session(self) -> ClientSession:
        if self._session is None:
            self._session = self._client.start_session(causal_consistency=False)
        return self._session

    def _list_prepared(self) -> ClusterTime:
        majority_ts = self._majority()
        if majority_ts.next() < self.start_ts:
            raise SourceUnavailable(
                f"{self.name} has not reached {self.start_ts} yet: its majority point is {majority_ts}"
            )
        member = member_read(self._client)
        for each in config_documents(self._client, "transactions", {"state": "prepared"}):
            started = each.get("startOpTime") or each["lastWriteOpTime"]
            self.prepares.listed(transaction_key(each["_id"], each["txnNum"]), ClusterTime.from_bson(started["ts"]))
        majority_ts = self._majority()
        if member_read(self._client) != member:
            raise SourceUnavailable(f"{self.name} is read from another member now")
        return majority_ts

    def _majority(self) -> ClusterTime:
        return majority_time_of(read_command(self._client, "admin", {HELLO: 1}, session=self._own_session()))

    def _read(self, end_ts: ClusterTime) -> tuple[list[Unit], list[Operation]]:
        found: list[Unit] = []
        seen: list[Operation] = []
        try:
            with closing(entries(self._client, self._read_ts, end_ts, self._wanted, _WITHOUT_ROWS)) as replies:
                for raw in chain.from_iterable(replies):
                    entry = bson.decode(raw, ANY_TEXT)
                    seen.append(entry)
                    # what took effect before the start was done before
                    if (commit_ts(entry) or self.start_ts) >= self.start_ts and (
                        operations := self._operations(raw, entry)
                    ):
                        found.append(
                            Unit(
                                ts=effective_ts(entry),
                                stream=self.name,
                                entry_ts=ClusterTime.from_bson(entry["ts"]),
                                operations=operations,
                                wall=entry.get("wall"),
                            )
                        )
        except HistoryLost as error:
            raise HistoryLost(
                f"{self._read_ts} is no longer in the oplog of {self.name}: {error}; {oldest_time_for_message(self._client)}; "
                "remove the changefeed and create it again with a new initial copy"
            ) from error
        return found, seen

    def _operations(self, raw: bytes, entry: Operation) -> tuple[Operation, ...]:
        """Those that matter here. `raw` may lack the content of rows."""
        o = entry["o"]
        if entry["op"] != "c" or not {"applyOps", "commitTransaction", "abortTransaction"} & o.keys():
            return (entry,)
        command = CommandEntry.of(raw)
        if not command.visible:
            self._note_prepare(command, entry)
            return ()
        if key_of_entry(entry) in self._rows_only:
            return ()
        found: list[Operation] = []
        for part in parts(self._part_at, command):
            decoded = bson.decode(part.entry, ANY_TEXT)
            if any(each["op"] == "c" or self._matters(each["ns"]) for each in decoded["o"].get("applyOps", ())):
                decoded = bson.decode(entry_at(self._client, part.ts, None), ANY_TEXT)
                found += self._applied(decoded, decoded.get("fromMigrate", False))
        return tuple(found)

    def _note_prepare(self, command: CommandEntry, entry: Operation) -> None:
        key, o = key_of_entry(entry), entry["o"]
        if key is None or command.previous_ts is not None or not o.get("prepare"):
            return
        if not any(each["op"] == "c" or self._matters(each["ns"]) for each in o["applyOps"]):
            self._rows_only.add(key)

    def _part_at(self, ts: ClusterTime, projection: Mapping[str, object] | None) -> bytes:
        return entry_at(self._client, ts, projection if projection is not None else _WITHOUT_ROWS)

    def _applied(self, entry: Operation, from_migrate: bool) -> Iterator[Operation]:
        for operation in entry["o"].get("applyOps", ()):
            flagged = {**operation, "fromMigrate": True} if from_migrate else operation
            if operation["op"] == "c" and "applyOps" in operation["o"]:
                yield from self._applied(operation, from_migrate or operation.get("fromMigrate", False))
            elif operation["op"] == "c" or self._matters(operation["ns"]):
                yield flagged

    def _matters(self, ns: str) -> bool:
        return ns.endswith(".system.views") if self._of_users else ns in _CONFIG_NAMES


def in_order(units: Sequence[Unit]) -> list[Unit]:
    """By effective time, then by stream, then as the entries stand: in the order of `place_of`."""
    return sorted(units, key=lambda unit: (unit.ts, digits_of(unit.stream), unit.entry_ts))


def wait_for_start(stream: ClusterStream) -> None:
    """What is read of a catalog afterwards is not older than the start: a new primary may show less than its predecessor did."""
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while not stream.at_start():
        if time.monotonic() > give_up_at:
            raise SourceUnavailable(f"{stream.name} has not reached {stream.start_ts} within {_PATIENCE_SECONDS:g} s")
        time.sleep(_LOOK_AGAIN_SECONDS)


def caught_up(stream: ClusterStream) -> list[Unit]:
    """From its start up to a majority point of now, so that the reading of a catalog before this call is not newer.

    That may take minutes, and another opening would begin again: it gives up only while no poll is answered.
    """
    units: list[Unit] = []
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while not stream.caught_up:
        try:
            units += stream.poll()
        except SourceUnavailable:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(_LOOK_AGAIN_SECONDS)
        else:
            give_up_at = time.monotonic() + _PATIENCE_SECONDS
    return units


def operations_of(units: Iterable[Unit]) -> list[Operation]:
    return [operation for unit in in_order(list(units)) for operation in unit.operations]
