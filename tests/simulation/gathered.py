"""`GatheredTables`: tables of two databases that a rule brings under one name at the target, as users do who make one table of many.

Their rows have keys that name their table, so that each row at the target says whose it is. A table that is dropped leaves its rows there while
another one has the name. All is chosen apart from everything else, so that seeds without it do not change by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from changefeed.event import DdlType
from changefeed.table import TableId, TableName
from tests.simulation.judgement.agreement import GATHERED, GATHERED_TABLE
from tests.simulation.source.server import SourceServer
from tests.simulation.source.tables import Build, Ddl, NotPossible, Row, Table, Tables
from tests.simulation.target.server import Collection

_KEYS = 6
_AT_ONCE = (1, 2, 2, 4, 8)
_DDL = 0.12
_THERE_BEFORE = 0.7
_ROWS_BEFORE = (0, 3, 20)


class GatheredTables:
    def __init__(self, source: SourceServer) -> None:
        self._source = source
        self._random = Random(f"gathered tables {source.machine.seed}")

    def begin(self) -> None:
        """What there is before the changefeed."""
        with self._source.batch(shared_time=False):
            for db in GATHERED:
                if self._random.random() < _THERE_BEFORE:
                    name = TableName(db, GATHERED_TABLE)
                    self._source.create(name)
                    for _ in range(self._random.choice(_ROWS_BEFORE)):
                        with suppress(NotPossible):
                            self._write(name)

    def act(self) -> None:
        with self._source.batch(shared_time=self._random.random() < 0.4):
            for _ in range(self._random.choice(_AT_ONCE)):
                with suppress(NotPossible):
                    self._one(TableName(self._random.choice(GATHERED), GATHERED_TABLE))

    def _one(self, name: TableName) -> None:
        source, random = self._source, self._random
        if name not in source.tables:
            source.create(name)
        elif random.random() >= _DDL:
            self._write(name)
            return
        match random.choice(("index", "index", "drop index", "drop", "drop database")):
            case "index":
                field = random.choice(("f", "g"))
                build = source.create_index(name, {"v": 2, "key": {field: 1}, "name": f"{field}_1"})
                if build is not None:
                    source.machine.after(random.choice((0.0, 0.5, 3.0)), partial(self._end_build, build))
            case "drop index":
                source.drop_index(name, random.choice(sorted(source.tables[name].indexes)))
            case "drop":
                source.drop(name)
            case _:
                source.drop_database(name.db)

    def _end_build(self, build: Build) -> None:
        with self._source.batch(shared_time=False), suppress(NotPossible):
            self._source.commit_index(build)

    def _write(self, name: TableName) -> None:
        source, random = self._source, self._random
        table = source.tables[name]
        key = f"{table.id} {random.randrange(_KEYS)}"
        if key not in table.rows:
            source.insert(name, {"_id": key, "f": random.randrange(100)})
            return
        match random.choice(("update", "update", "replace", "delete")):
            case "update":
                source.update(name, key, {random.choice(("f", "g")): random.randrange(100)}, [])
            case "replace":
                source.replace(name, {"_id": key, "g": random.randrange(100)})
            case _:
                source.delete(name, key)


def table_of(key: Any) -> TableId:
    """The table whose row has this key."""
    return TableId(str(key).partition(" ")[0])


def parts(collection: Collection, source: Tables) -> dict[TableId, Collection]:
    """The rows of each table as if it had a collection of its own."""
    rows: dict[TableId, dict[Any, Row]] = {table.id: {} for table in _gathered(source.by_id.values())}
    for key, row in collection.rows.items():
        rows.setdefault(table_of(key), {})[key] = row
    return {table: replace(collection, table=table, rows=own) for table, own in rows.items()}


def of_their_name(source: Tables) -> Iterable[Ddl]:
    """The DDLs of one table that change what all of them have at the target."""
    kinds = (DdlType.CREATE_INDEXES, DdlType.DROP_INDEXES)
    return (ddl for ddl in source.ddls if ddl.type in kinds and any(name.db in GATHERED for name in ddl.names))


def differences_of(collection: Collection | None, source: Tables, early: AbstractSet[TableId]) -> list[str]:
    """Rows of a table that is gone may be there, as they were at its end. Tables that have ended `early`, in their copies or where they stood, may
    be in any state.
    """
    living = {table.id for table in _gathered(source.tables.values())}
    if collection is None or not living:
        return ["the gathered table is missing"] * bool(living) + ["the gathered table is too much"] * (
            collection is not None
        )
    found = []
    for id, part in parts(collection, source).items():
        if id not in living and id in early:
            continue
        due = source.by_id[id].rows
        found += [
            f"gathered row {key}: {part.rows.get(key)} instead of {due.get(key)}"
            for key in sorted(part.rows.keys() | (due.keys() if id in living else set()))
            if part.rows.get(key) != due.get(key)
        ]
    return found


def _gathered(tables: Iterable[Table]) -> Iterable[Table]:
    return (table for table in tables if table.name.db in GATHERED)
