"""`Tables`: the tables of a source as its users see them, with the whole history of their rows, and what is possible with them.

What a server writes for it is the business of `log_row` and its like: a replica set has one oplog, a cluster several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName
from tests.simulation.clockwork.machine import Machine
from tests.simulation.source.row_diff import row_diff
from tests.simulation.source.unique_index import conflict, is_unique

_NEVER = ClusterTime(0, 0)
ID_INDEX: Mapping[str, Any] = {"v": 2, "key": {"_id": 1}, "name": "_id_"}

Row = dict[str, Any]


class NotPossible(Exception):
    """The server refuses this write; nothing has changed. `code` is the server's error code."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Build:
    """An index build from its start to its commit. Rows that are written meanwhile are shown before it."""

    table: Table
    spec: dict[str, Any]
    uuid: bytes
    going: bool = True


@dataclass
class Table:
    id: TableId
    name: TableName
    options: dict[str, Any] = field(default_factory=dict)
    indexes: dict[str, dict[str, Any]] = field(default_factory=lambda: {"_id_": dict(ID_INDEX)})
    building: dict[str, Build] = field(default_factory=dict)
    rows: dict[Any, Row] = field(default_factory=dict)
    history: list[tuple[Position, Any, Row | None]] = field(default_factory=list)
    """The changes of all keys, in order."""
    named_at: ClusterTime = _NEVER
    """When it got its name: no earlier snapshot shows it."""

    @property
    def uuid(self) -> bytes:
        return bytes.fromhex(self.id)

    def rows_at(self, ts: ClusterTime) -> dict[Any, Row]:
        return self._rows_while(lambda at: at.ts <= ts)

    def rows_before(self, position: Position) -> dict[Any, Row]:
        return self._rows_while(lambda at: at < position)

    def _rows_while(self, counts: Callable[[Position], bool]) -> dict[Any, Row]:
        found: dict[Any, Row] = {}
        for at, key, row in self.history:
            if not counts(at):
                break
            if row is None:
                found.pop(key, None)
            else:
                found[key] = row
        return found

    @property
    def versions(self) -> dict[Any, list[tuple[Position, Row | None]]]:
        """Of each key, in order."""
        found: dict[Any, list[tuple[Position, Row | None]]] = {}
        for at, key, row in self.history:
            found.setdefault(key, []).append((at, row))
        return found

    def last_change_of(self, key: Any) -> Position:
        return max((at for at, each, _ in self.history if each == key), default=Position(_NEVER))

    def copy(self) -> Table:
        """A copy for a rollback."""
        return replace(
            self,
            options=dict(self.options),
            indexes=dict(self.indexes),
            building=dict(self.building),
            rows=dict(self.rows),
            history=list(self.history),
        )


@dataclass(frozen=True)
class Ddl:
    """One DDL as it happened, for the judge: the ids and names that it touched at the source."""

    position: Position
    type: DdlType
    ids: frozenset[TableId]
    names: frozenset[TableName]
    dropped: frozenset[TableId] = frozenset()
    to: TableName | None = None
    by_shard: Mapping[str, Position] = field(default_factory=dict)
    """A rename's entries on the shards of a cluster."""


class Tables:
    machine: Machine

    def __init__(self) -> None:
        self.tables: dict[TableName, Table] = {}
        self.by_id: dict[TableId, Table] = {}
        self.ddls: list[Ddl] = []
        self.versions: dict[int, Row] = {}
        self.version_at: dict[tuple[TableId, int], Position] = {}
        """When a table got a version of a row, without rollbacks. A copy that a server makes contains the versions of another table."""
        self.moved: set[tuple[TableId, int]] = set()
        """The versions of a row that came to another shard: as a delete there and an insert here, between which the row may be nowhere."""
        self.half_dropped: dict[TableId, Position] = {}
        """Since when routers no longer find the parts of a table that its shards have. The drop counts when the last one has none: a copy that reads in
        between finds less."""

    def table_id(self, uuid: TableId) -> TableId:
        """The id of the table that has, or had, this UUID."""
        return uuid

    def earliest(self, ddl: Ddl) -> Position:
        """Where it may stand: a watch that cannot read the last shard any more knows of the entries of the others only."""
        return ddl.position

    def ids_of(self, table: TableId) -> tuple[TableId, ...]:
        """All UUIDs that it has had."""
        return (table,)

    def _row(
        self,
        op: str,
        table: Table,
        o: Mapping[str, Any],
        o2: Any = None,
        *,
        before: Row | None = None,
        after: Row | None = None,
    ) -> Position:
        raise NotImplementedError

    @property
    def building(self) -> bool:
        return any(table.building for table in self.tables.values())

    def _specs(self, table: Table) -> list[dict[str, Any]]:
        return [*table.indexes.values(), *(build.spec for build in table.building.values())]

    @staticmethod
    def _refuse_another(there: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        unlike = there["key"] != spec["key"] or there.get("unique", False) != spec.get("unique", False)
        if there["name"] == spec["name"]:
            if unlike:
                raise NotPossible("an index of this name is there, and another", 86)
        elif not unlike:
            raise NotPossible("the index is there under another name", 85)

    def _ddl(
        self,
        kind: DdlType,
        position: Position,
        ids: set[TableId],
        names: set[TableName],
        dropped: set[TableId] | None = None,
        to: TableName | None = None,
        by_shard: Mapping[str, Position] | None = None,
    ) -> None:
        dropped, by_shard = dropped or set(), by_shard or {}
        self.ddls.append(Ddl(position, kind, frozenset(ids), frozenset(names), frozenset(dropped), to, by_shard))

    def insert(self, name: TableName, row: Row) -> None:
        """A full capped table drops its oldest row. Since 5.0 that has an entry of its own, behind that of the insert."""
        table = self._known(name)
        if row["_id"] in table.rows:
            raise NotPossible("the key is there", 11000)
        row = self._versioned(row)
        self._check_unique(table, row)
        at = self._row("i", table, row, {"_id": row["_id"]})
        self._keep(table, row["_id"], row, at)
        while len(table.rows) > table.options.get("max", len(table.rows)):
            self.machine.count("source: row that a full capped table drops")
            self.delete(name, next(iter(table.rows)))

    def replace(self, name: TableName, row: Row) -> None:
        table = self._known(name)
        if row["_id"] not in table.rows:
            raise NotPossible("no such row")
        row = self._versioned(row)
        self._check_unique(table, row)
        before = table.rows[row["_id"]]
        at = self._row("u", table, row, {"_id": row["_id"]}, before=before)
        self._keep(table, row["_id"], row, at)

    def update(self, name: TableName, key: Any, sets: Row, removed: list[str]) -> None:
        table = self._known(name)
        if key not in table.rows:
            raise NotPossible("no such row")
        before = table.rows[key]
        row = {field_name: value for field_name, value in before.items() if field_name not in removed}
        changed = dict(sorted(self._versioned(sets).items()))
        row |= changed
        self._check_unique(table, row)
        o = {"$v": 2, "diff": row_diff(before, row)}
        at = self._row("u", table, o, {"_id": key}, before=before, after=row)
        self._keep(table, key, row, at)

    def delete(self, name: TableName, key: Any) -> None:
        table = self._known(name)
        if key not in table.rows:
            raise NotPossible("no such row")
        at = self._row("d", table, {"_id": key}, before=table.rows[key])
        self._keep(table, key, None, at)

    def _versioned(self, row: Row) -> Row:
        """Each version of a row has a unique number, so that a row at the target shows which event it comes from."""
        return {**row, "v": len(self.versions) + 1}

    def _keep(self, table: Table, key: Any, row: Row | None, at: Position) -> None:
        if row is None:
            del table.rows[key]
        else:
            table.rows[key] = row
            self.versions[row["v"]] = row
            self.version_at[table.id, row["v"]] = at
        table.history.append((at, key, row))

    def _check_unique(self, table: Table, row: Row) -> None:
        for spec in table.indexes.values():
            if is_unique(spec) and conflict(spec, table.rows, row["_id"], row):
                raise NotPossible("the value is taken", 11000)

    def _known(self, name: TableName) -> Table:
        if name not in self.tables:
            raise NotPossible(f"no {name}", 26)
        return self.tables[name]
