"""`Shard`: one replica set of a simulated cluster: an oplog with a clock of its own, what it holds, its prepared transactions.

An election takes back rows and no-ops at the end of the oplog that no majority has. Everything else is written by commands that go on only
when a majority has it, and that a new primary would take up again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bson.binary import Binary
from bson.int64 import Int64

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableName
from tests.simulation.clockwork.machine import Machine
from tests.simulation.clockwork.network import Outage
from tests.simulation.source import oplog
from tests.simulation.source.oplog import Document, Entry, Operation, optime
from tests.simulation.source.replica_set import FIRST_SECOND, ReplicaSet
from tests.simulation.source.tables import ID_INDEX

_USER = Binary(b"\xe3" * 32, 0)
_TAKEN_BACK = 0.85
"""How often the next of the entries that no majority has is lost, too."""


@dataclass(frozen=True)
class ShardEntry(Entry):
    event: Position | None = None
    """The last event of users that this entry completes, by its effective time."""
    undo: Callable[[], bool] | None = None
    """Makes the state what it was before, or says that this cannot be. None: no election takes the entry back."""


@dataclass
class Local:
    """A collection as one shard has it. `since_ts`: no earlier snapshot shows it."""

    name: TableName
    uuid: bytes
    since_ts: ClusterTime
    options: dict[str, Any] = field(default_factory=dict)
    indexes: dict[str, dict[str, Any]] = field(default_factory=lambda: {"_id_": dict(ID_INDEX)})
    building: dict[str, dict[str, Any]] = field(default_factory=dict)
    orphans: dict[Any, dict[str, Any]] = field(default_factory=dict)
    """The documents that are here and are not owned."""


@dataclass
class Prepared:
    """A transaction as one shard has it: `index` is that of its prepare in the oplog."""

    session: Mapping[str, Any]
    index: int
    first: Entry
    last: Entry
    decided_index: int | None = None

    @property
    def ts(self) -> ClusterTime:
        return self.last.ts


class Shard(ReplicaSet):
    def __init__(self, machine: Machine, name: str, *, skew: float) -> None:
        super().__init__(machine, version=(6, 0))
        self.name = name
        self._skew = skew
        self.down = Outage()
        self.removed_ts: ClusterTime | None = None
        self.collections: dict[TableName, Local] = {}
        self.transactions: list[Prepared] = []
        self.begin()

    # time

    def learn(self, ts: ClusterTime) -> None:
        """Hears of a time that another server has reached."""
        self._last = max(self._last, ts)

    def tick(self) -> ClusterTime:
        second = FIRST_SECOND + int(max(0.0, self.machine.now + self._skew))
        self._last = max(ClusterTime(second, 1), self._last.next())
        return self._last

    def durable(self, upto: int) -> bool:
        """Whether a majority has so many entries."""
        return self._has >= min(upto, len(self.oplog))

    def nudged(self, to_ts: ClusterTime) -> None:
        """A read waits for a time that it has not reached: it writes a no-op."""
        if self.newest < to_ts:
            self.note("noop write for afterClusterTime read concern")

    # entries

    def note(self, message: str = "a note") -> None:
        self.append(oplog.note(self.tick(), self.election, message), undo=lambda: True)

    def write(
        self,
        operation: Operation,
        *,
        head: Document | None = None,
        of_users: Callable[[ClusterTime], Position] | None = None,
        undo: Callable[[], bool] | None = None,
    ) -> ClusterTime:
        """`of_users`: the place of the event that this is to users."""
        ts = self.tick()
        made = oplog.entry(ts, self.election, head or {}, operation.body())
        self.append(made, of_users(ts) if of_users is not None else None, undo)
        return ts

    def apply(
        self, operations: Iterable[Operation], *, session: Document, parts: int, **more: Any
    ) -> tuple[Entry, Entry]:
        """Operations of one transaction, in a chain of so many entries. Returns the first and the last one. `more`: fields of the last one."""
        left = list(operations)
        parts = max(1, min(parts, len(left)))
        made: list[Entry] = []
        for number in range(parts):
            part = left[len(left) * number // parts : len(left) * (number + 1) // parts]
            last = number == parts - 1
            flags = (more | ({"count": Int64(len(left))} if parts > 1 else {})) if last else {"partialTxn": True}
            head = {**session, "prevOpTime": optime(made[-1] if made else None)}
            body = {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": [each.body() for each in part], **flags}}
            made.append(oplog.entry(self.tick(), self.election, head, body))
            if not last:
                self.append(made[-1])
        return made[0], made[-1]

    def transact(
        self, operations: Iterable[Operation], session: Document, *, parts: int, at: Callable[[ClusterTime], Position]
    ) -> ClusterTime:
        """A transaction of this shard alone counts at once."""
        _, last = self.apply(operations, session=session, parts=parts)
        self.append(last, at(last.ts))
        return last.ts

    def prepare(self, operations: Iterable[Operation], session: Document, *, parts: int) -> Prepared:
        first, last = self.apply(operations, session=session, parts=parts, prepare=True)
        prepared = Prepared(session, len(self.oplog), first, last)
        self.transactions.append(prepared)
        self.append(last)
        return prepared

    def decide(self, prepared: Prepared, commit_ts: ClusterTime | None, event: Position | None = None) -> ClusterTime:
        """None: it is aborted."""
        o = (
            {"abortTransaction": 1}
            if commit_ts is None
            else {"commitTransaction": 1, "commitTimestamp": commit_ts.to_bson()}
        )
        prepared.decided_index = len(self.oplog)
        head = {**prepared.session, "prevOpTime": optime(prepared.last)}
        made = oplog.entry(self.tick(), self.election, head, {"op": "c", "ns": "admin.$cmd", "o": o})
        self.append(made, event)
        return made.ts

    def prepared(self, visible: int) -> list[Prepared]:
        """Those that are undecided in a member's committed snapshot."""
        return [
            each
            for each in self.transactions
            if each.index < visible and (each.decided_index is None or each.decided_index >= visible)
        ]

    def undecided_before(self, ts: ClusterTime) -> bool:
        """Whether a snapshot of that time depends on a decision."""
        return any(each.decided_index is None and each.ts <= ts for each in self.transactions)

    def begin_of_transactions(self, ts: ClusterTime) -> ClusterTime:
        """The time of the first entry of all transactions that are decided at that time or later, or not yet."""
        needed = [
            each.first.ts
            for each in self.transactions
            if each.decided_index is None or self.oplog[each.decided_index].ts >= ts
        ]
        return min([ts, *needed, super().begin_of_transactions(ts)])

    def append(self, entry: Entry, event: Position | None = None, undo: Callable[[], bool] | None = None) -> None:
        self.oplog.append(ShardEntry(entry.ts, entry.term, entry.document, entry.raw, (), event, undo))
        self._commit_later(len(self.oplog))

    def _take_back(self) -> None:
        lost = 0
        while len(self.oplog) > self._has and self.machine.random.random() < _TAKEN_BACK:
            last = self.oplog[-1]
            assert isinstance(last, ShardEntry)
            if last.undo is None or not last.undo():
                break
            self.oplog.pop()
            lost += 1
        self.taken_back += lost
        self._told = min(self._told, len(self.oplog))
        self.machine.count("source: entries that an election took back", lost)
        if lost:
            self.machine.note(self.name, f"an election takes {lost} entries back")

    def last_event(self, seconds: float) -> Position | None:
        """The last event that a majority had at that moment."""
        visible = self.visible_at(seconds)
        events = [
            entry.event for entry in self.oplog[:visible] if isinstance(entry, ShardEntry) and entry.event is not None
        ]
        return max(events, default=None)

    # what it holds

    def held(self, uuid: bytes) -> Local | None:
        return next((each for each in self.collections.values() if each.uuid == uuid), None)

    def drop(self, name: TableName, **how: Any) -> ClusterTime:
        local = self.collections.pop(name)
        return self.command(name, {"drop": name.coll}, local, o2={"numRecords": 0}, **how)

    def command(
        self,
        name: TableName,
        o: Document,
        local: Local | None,
        *,
        o2: Document | None = None,
        flagged: bool = False,
        of_users: Callable[[ClusterTime], Position] | None = None,
    ) -> ClusterTime:
        operation = Operation("c", f"{name.db}.$cmd", o, o2, local.uuid if local else None, from_migrate=flagged)
        return self.write(operation, of_users=of_users)

    def create(self, name: TableName, uuid: bytes, options: Document, **how: Any) -> ClusterTime:
        local = Local(name, uuid, ClusterTime(0, 0), dict(options))
        self.collections[name] = local
        ts = self.command(name, {"create": name.coll, **options, "idIndex": dict(ID_INDEX)}, local, **how)
        local.since_ts = ts
        return ts

    def rename(self, name: TableName, to: TableName, **how: Any) -> ClusterTime:
        """Replaces a collection that has the new name."""
        local, replaced = self.collections.pop(name), self.collections.pop(to, None)
        o: dict[str, Any] = {"renameCollection": str(name), "to": str(to), "stayTemp": False}
        if replaced is not None:
            o["dropTarget"] = Binary(replaced.uuid, 4)
        self.collections[to] = local
        local.name = to
        ts = self.command(name, o, local, o2={"numRecords": 0} if replaced else None, **how)
        local.since_ts = ts
        return ts

    def build(self, name: TableName, spec: dict[str, Any], **how: Any) -> ClusterTime:
        """An index of an empty collection."""
        local = self.collections[name]
        local.indexes[spec["name"]] = spec
        return self.command(name, {"createIndexes": name.coll, **spec}, local, **how)


def new_session(number: int) -> dict[str, Any]:
    identity = Binary(number.to_bytes(16, "big"), 4)
    return {"lsid": {"id": identity, "uid": _USER}, "txnNumber": Int64(number)}
