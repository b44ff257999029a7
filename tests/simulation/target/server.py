"""`TargetServer`: collections in memory, the effects on them, and what an election rolls back. `client.py` and `ddl.py` have the commands.

An effect is visible at once and durable once a majority has it (`majority.py`). An index on rows is built beside other writes, and
its build goes on when its client is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pymongo.errors import OperationFailure

from changefeed.records.node import NodeId
from changefeed.table import TableId, TableName
from sink.mongodb.rows.rows_ahead import ROWS_AHEAD
from sink.mongodb.sync_marks import SYNC_POINTS
from tests.simulation.clockwork.machine import Machine, Thread, Violation
from tests.simulation.clockwork.network import Network
from tests.simulation.clockwork.substitutes import Waiters
from tests.simulation.source.tables import ID_INDEX
from tests.simulation.source.unique_index import duplicate_in, is_unique, key_value
from tests.simulation.target.letters import Letters
from tests.simulation.target.majority import Majority
from tests.simulation.target.sync_records import AlreadyDone, Snapshot, SyncRecords

Row = dict[str, Any]


@dataclass
class Collection:
    uuid: bytes
    options: dict[str, Any] = field(default_factory=dict)
    indexes: dict[str, dict[str, Any]] = field(default_factory=lambda: {"_id_": dict(ID_INDEX)})
    building: dict[str, Build] = field(default_factory=dict)
    rows: dict[Any, Row] = field(default_factory=dict)
    table: TableId | None = None
    """The table whose rows it contains, by the id that the changefeed gives it."""
    of_others: dict[Any, Row] = field(default_factory=dict)
    """Rows of another client whose keys the source never has: they stay."""

    def keep(self, key: Any, row: Row | None, majority: Majority) -> None:
        if "max" in self.options:
            self._keep_in_order(key, row, majority)
            return
        before = self.rows.pop(key, None)
        if row is not None:
            self.rows[key] = row

        def undo() -> None:
            self.rows.pop(key, None)
            if before is not None:
                self.rows[key] = before

        majority.lacks(undo)

    def _keep_in_order(self, key: Any, row: Row | None, majority: Majority) -> None:
        """A capped collection that is full drops its oldest row for a new one. An update leaves a row in its place."""
        before = dict(self.rows)
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row
        while len(self.rows) > self.options["max"]:
            del self.rows[next(iter(self.rows))]

        def undo() -> None:
            self.rows.clear()
            self.rows |= before

        majority.lacks(undo)


@dataclass
class Build:
    """An index build for a thread that may be gone when the build ends."""

    name: TableName
    collection: Collection
    spec: dict[str, Any]
    thread: Thread
    copies: TableId | None
    going: bool = True
    error: OperationFailure | None = None
    ended: Waiters = field(default_factory=Waiters)


class DdlEffect(NamedTuple):
    """`table`: the table that the DDL creates, by the id that the changefeed gives it. `forget`: called when an election rolls the effect back."""

    table: TableId | None
    forget: Callable[[], None]


class Judge(Protocol):
    """Called before each effect at the target."""

    def row(
        self, thread: Thread, name: TableName, table: TableId | None, kind: str, key: Any, row: Row | None
    ) -> None: ...

    def kept(self, table: TableId | None, key: Any) -> None:
        """Called after the effect: the row was not refused."""

    def taken(self, thread: Thread, name: TableName, table: TableId | None, row: Row, by: Row) -> None:
        """Called where the row is refused, since another one has its value."""

    def build_is_sent(self, thread: Thread, name: TableName) -> None: ...

    def node_of(self, thread: Thread) -> NodeId:
        """Whose task the thread works for."""
        ...

    def sync_point(self, record: Mapping[str, Any], there: Snapshot) -> None:
        """Called when a record says that the source and the target, `there`, are equal."""

    def ddl(
        self, thread: Thread, copies: TableId | None, name: TableName, what: str, *, late: bool = False
    ) -> DdlEffect:
        """`late`: the effect was started earlier, by a thread whose node may no longer have the table."""
        ...


class TargetServer:
    def __init__(self, machine: Machine, network: Network) -> None:
        self.machine = machine
        self.network = network
        self.collections: dict[TableName, Collection] = {}
        self.judge: Judge | None = None
        self.others: Callable[[Collection], None] = lambda created: None
        """Called when a copy has created a collection: what other clients write there."""
        self.wire = machine.random.choice((17, 25))
        self.majority = Majority(machine)
        self.letters = Letters(self.majority)
        self.sync = SyncRecords(self.majority)
        self.reached: Callable[[str], None] = lambda point: None
        """Called where an accident does most harm."""
        self.slow_ddl = self.slow_rows = self.slow_builds = 0.0
        """Seconds that a command may take."""
        self.slow_rows_of: dict[TableName, float] = {}
        """Seconds that each row takes."""
        self.refuses_ddl_of: set[str] = set()
        """Collections, in any database, of which it takes no DDL that it otherwise would."""
        self.refuses_kinds: AbstractSet[str] = frozenset()
        """Commands that it takes of no collection, like one with an option that it does not know."""
        self.refuses_rows_of: set[str] = set()
        self.refuses_key: set[tuple[str, Any]] = set()
        """Single rows, by collection and key."""
        self.breaks_tasks_with_rows_of: set[str] = set()
        """Collections whose rows meet a bug, so that nothing says whose fault the failure is."""
        self.builds_that_wait: dict[object, TableName] = {}
        """The tables of commands that are to build indexes and have not begun."""

    def sync_update(self, name: TableName, statement: Mapping[str, Any]) -> int:
        """A mark's time is that of its write: the target as of then can be read later. The judge looks at each record that says that it is done."""
        try:
            record = self.sync.update(name, statement)
        except AlreadyDone:
            raise duplicate(ID_INDEX, {"_id": statement["q"]["_id"]}) from None
        if record is None:
            return 0
        if record.get("done"):
            self.machine.count("sync point: done")
            assert self.judge is not None
            self.judge.sync_point(record, self.sync.history[record["target"]["at"]])
        elif name == SYNC_POINTS:
            self.machine.count("sync point: marked")
            rows = {name: dict(collection.rows) for name, collection in self.collections.items()}
            letters, ahead = tuple(self.letters.matching({})), tuple(self.sync.kept[ROWS_AHEAD].values())
            self.sync.history[self.majority.newest.to_bson()["ts"]] = Snapshot(rows, letters, ahead)
        return 1

    def sync_delete(self, name: TableName, statement: Mapping[str, Any]) -> int:
        return self.sync.delete(name, statement["q"])

    def refuses_row(self, name: TableName, key: Any) -> bool:
        return name.coll in self.refuses_rows_of or (name.coll, key) in self.refuses_key

    def elect(self) -> None:
        """Clients that wait for an answer get an error, since their primary is gone. No build ends by it."""
        self.majority.elect()
        for collection in self.collections.values():
            for build in collection.building.values():
                build.ended.wake_all()

    def end_build(self, build: Build, error: OperationFailure | None = None) -> None:
        build.going, build.error = False, error
        del build.collection.building[build.spec["name"]]
        build.ended.wake_all()

    def commit_build(self, build: Build) -> None:
        if not build.going:
            return
        indexes, spec = build.collection.indexes, build.spec
        taken = duplicate_in(spec, build.collection.rows) if is_unique(spec) else None
        if taken is not None:
            self.end_build(build, duplicate(spec, key_value(spec, taken)))
            return
        assert self.judge is not None
        what = f"createIndexes {spec['name']}"
        self.machine.note("target", f"{what} on {build.name}: built")
        try:
            effect = self.judge.ddl(build.thread, build.copies, build.name, what, late=True)
        except Violation as violation:
            self.machine.fail(violation)
            return
        indexes[spec["name"]] = {"v": 2, **spec}

        def undo() -> None:
            indexes.pop(spec["name"], None)
            effect.forget()

        self.majority.lacks(undo)
        self.end_build(build)

    def named(self, name: TableName) -> Collection:
        if name not in self.collections:
            raise failure(26, f"ns not found: {name}")
        return self.collections[name]

    def judged(self, name: TableName, what: str, undo: Callable[[], object]) -> TableId | None:
        """Calls the judge before the effect. `undo` rolls the effect back as long as no majority has it."""
        thread = self.machine.current
        assert thread is not None
        assert self.judge is not None
        self.note(f"{what} on {name}")
        effect = self.judge.ddl(thread, thread.copies, name, what)

        def undone() -> None:
            undo()
            effect.forget()

        self.majority.lacks(undone)
        return effect.table

    def check_taken(self, kind: str, *names: TableName) -> None:
        """Refuses a DDL, as servers do for an option that they do not know."""
        if kind in self.refuses_kinds or any(name.coll in self.refuses_ddl_of for name in names):
            self.machine.count("target: DDL that is refused")
            raise failure(72, f"cannot do this to {' and '.join(map(str, names))}")

    def note(self, what: str) -> None:
        thread = self.machine.current
        self.machine.note(f"target<{thread.process.name if thread else '-'}", what)


def duplicate(spec: Mapping[str, Any], value: Mapping[str, Any]) -> OperationFailure:
    message = f"E11000 duplicate key error index: {spec['name']} dup key: {value}"
    details = {"code": 11000, "errmsg": message, "keyPattern": spec["key"], "keyValue": value}
    return OperationFailure(message, 11000, details)


def failure(code: int, message: str) -> OperationFailure:
    return OperationFailure(message, code, {"code": code, "errmsg": message})
