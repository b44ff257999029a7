"""`Workload`: random but valid writes at the source: tables are created, dropped, renamed, and written all the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any

from changefeed.table import TableName
from tests.simulation.judgement.agreement import DATABASES
from tests.simulation.source.row_keys import KEYS, keys_of, ordered
from tests.simulation.source.server import SourceServer
from tests.simulation.source.sharded.cluster import ClusterSource
from tests.simulation.source.sharded.placement import PlacedTable
from tests.simulation.source.tables import Build, NotPossible
from tests.simulation.unique_rows import UniqueRows

_OUTSIDE = "x_out"
"""Of the filter."""
COLLECTIONS = ("a", "b", "c", _OUTSIDE)
_VALUES = 8
_MOVES_FAIL = 0.2
_NESTED, _NESTED_ANEW = 0.6, 0.1
"""The part of the rows, and of their updates, with a nested document; and of these, those that write it whole."""
_ASIDE = 100
"""A value that a row has temporarily."""
_AT_EACH_OWNER = 0.3
"""The part of the batches at a cluster that are one transaction across all owners of a table."""


class NestedFields:
    """A document with an array of documents in most rows. Chosen apart from everything else, so that seeds do not change by it."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def made(self) -> dict[str, Any]:
        return {"n": {"x": self._value(), "l": self._array()}} if self._random.random() < _NESTED else {}

    def changed(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What an update sets besides: a part of the document, or the whole of it."""
        if self._random.random() >= _NESTED:
            return {}
        if "n" not in row or self._random.random() < _NESTED_ANEW:
            return self.made()
        nested = deepcopy(row["n"])
        array: list[Any] = nested.setdefault("l", [])
        match self._random.choice(("set", "add", "remove", "append", "shorten", "element", "inside")):
            case "set":
                nested["x"] = self._value()
            case "add":
                nested["y"] = self._value()
            case "remove":
                nested.pop("y", None)
            case "append":
                array.append({"z": self._value()})
            case "shorten":
                del array[self._random.randrange(len(array) + 1) :]
            case "element" if array:
                array[self._random.randrange(len(array))] = self._value()
            case _:
                for each in [each for each in array if isinstance(each, dict)][:1]:
                    each["z"] = self._value()
        return {"n": nested}

    def _array(self) -> list[Any]:
        return [{"z": self._value()} for _ in range(self._random.randrange(4))]

    def _value(self) -> int:
        return self._random.randrange(100)


class FullTables:
    """Tables of which some are capped and hold few rows. Chosen apart from everything else."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def options(self) -> dict[str, Any]:
        return {"capped": True, "size": 4096, "max": self._random.choice((2, 4))} if self._random.random() < 0.7 else {}

    def exchanges(self, source: SourceServer | ClusterSource, name: TableName, free: Sequence[Any]) -> bool:
        """A user deletes a row of a full table, and another one takes its room: the oldest row stays."""
        rows, most = source.tables[name].rows, source.tables[name].options.get("max")
        if len(rows) != most or not free or self._random.random() < 0.6:
            return False
        number = self._random.randrange(100)
        source.delete(name, self._random.choice(list(rows)))
        source.insert(name, {"_id": self._random.choice(free), "u": _ASIDE + number, "f": number})
        return True


class Workload:
    def __init__(
        self,
        source: SourceServer | ClusterSource,
        random: Random,
        *,
        ddl_share: float,
        clones: bool,
        in_place: bool = False,
        unique: UniqueRows | None = None,
        full: FullTables | None = None,
    ) -> None:
        """`clones`: servers also clone tables; no change stream shows the rows of a clone. `in_place`: nothing happens for which a copy
        would need its target's table anew. `unique`: there are more unique indexes than those of `u`. `full`: some tables are capped from the beginning.
        """
        self._source = source
        self._random = random
        self._ddl_share = ddl_share
        self._keys = keys_of(source.machine.seed)
        self._nested = NestedFields(Random(f"nested fields of {source.machine.seed}"))
        self._databases: tuple[str, ...] = DATABASES
        """The databases in which it acts at the moment."""
        self._in_place = in_place
        self._unique = unique
        self._full = full
        self._indexed = ("f", "g") if in_place else ("u", "u", "f", "g")
        self._ddls: list[tuple[int, Callable[[], None]]] = [
            (6, self._create),
            (5, self._create_index),
            (3, self._drop_index),
            (2, self._modify),
            (4, self._drop),
            (5, self._rename),
            (2, self._swap),
            (2, self._drop_and_create),
            (1, self._drop_database),
            (1, self._convert),
            (1 if clones else 0, self._clone),
        ]
        if isinstance(source, ClusterSource):
            self._ddls = self._of_a_cluster(source)
        if in_place:
            self._ddls = [
                (3, self._create_with_rows),
                (5, self._create_index),
                (4, self._drop_index),
                (3, self._modify),
                (12, self._purge),
                (2, self._drop),
                (1, self._drop_and_create),
            ]

    def _of_a_cluster(self, cluster: ClusterSource) -> list[tuple[int, Callable[[], None]]]:
        """Most of it takes time. `_swap` and what needs the name of a table that it drops are not done there."""
        return [
            (4, self._create),
            (
                5,
                lambda: cluster.create_sharded(
                    self._random.choice(self._free()), self._random.choice(("_id", "f", "f"))
                ),
            ),
            (3, lambda: cluster.shard_table(self._some(), self._random.choice(("_id", "f")))),
            (8, lambda: cluster.move_chunk(self._some())),
            (3, lambda: cluster.reshard(self._some(), self._random.choice((1, 2, 3)))),
            (
                3,
                lambda: cluster.move_primary(
                    self._random.choice(self._databases), fails=self._random.random() < _MOVES_FAIL
                ),
            ),
            (5, self._create_index),
            (3, self._drop_index),
            (2, self._modify),
            (4, self._drop),
            (6, self._rename),
            (1, self._drop_database),
        ]

    def _free(self) -> list[TableName]:
        free = [name for name in self._names() if name not in self._source.tables]
        if not free:
            raise NotPossible("all names are taken")
        return free

    def act(self) -> None:
        """Writes a batch, with or without DDLs; or a batch in one database during a transaction in the other."""
        if isinstance(self._source, ClusterSource):
            inside = [self._source.tables[name] for name in self._tables() if name.coll != _OUTSIDE]
            spread = [table for table in inside if len(table.owners) > 1]
            if not spread:
                with suppress(NotPossible):
                    self._begin_to_spread(self._source, inside)
            elif self._random.random() < _AT_EACH_OWNER:
                self._write_at_each_owner(self._source, self._random.choice(spread))
                return
        shared = self._random.random() < 0.4
        if shared and self._random.random() < 0.3:
            one, other = self._random.sample(DATABASES, 2)
            with self._source.batch(shared_time=True, between=partial(self._some_of, one)):
                self._some_of(other)
        else:
            with self._source.batch(shared_time=shared):
                self._some_of(*DATABASES)

    def _some_of(self, *databases: str) -> None:
        self._databases = databases
        for _ in range(self._random.choice((1, 1, 2, 3, 6))):
            with suppress(NotPossible):
                self._one()
        self._databases = DATABASES

    def _begin_to_spread(self, cluster: ClusterSource, tables: list[PlacedTable]) -> None:
        """Moves a chunk of a sharded table. If there is no such table, one is created."""
        sharded = [table for table in tables if table.key]
        if sharded:
            cluster.move_chunk(self._random.choice(sharded).name)
        else:
            cluster.create_sharded(self._random.choice(self._free()), "f")

    def _write_at_each_owner(self, cluster: ClusterSource, table: PlacedTable) -> None:
        """A row at each shard, in one transaction, of which each shard logs the commit at a time of its own. Some come from another shard."""
        written = set[Any]()
        with cluster.batch(shared_time=True):
            for owner in table.owners:
                rows = [{"_id": self._keys[u], "u": u, "f": f} for u in range(KEYS) for f in range(0, 100, 9)]
                fitting = [row for row in rows if table.owner(row) == owner and row["_id"] not in written]
                if not fitting:
                    continue
                row = self._random.choice(fitting)
                written.add(row["_id"])
                with suppress(NotPossible):
                    if row["_id"] in table.rows:
                        cluster.update(table.name, row["_id"], {"f": row["f"]}, [])
                    else:
                        cluster.insert(table.name, row)

    def begin(self) -> None:
        with self._source.batch(shared_time=False):
            for name in self._names():
                if self._random.random() < 0.4:
                    self._source.create(name)
                    self._begin_unique(name)
                    if self._in_place:
                        self._insert_old(name)
                    for _ in range(self._random.choice((0, 2, 8, 40))):
                        with suppress(NotPossible):
                            self._write(name)
                    if self._random.random() < 0.5:
                        with suppress(NotPossible):
                            self._index(name, (1.0, 5.0))

    def _one(self) -> None:
        if self._random.random() < self._ddl_share or not self._tables():
            weights = [weight for weight, _ in self._ddls]
            [chosen] = self._random.choices([ddl for _, ddl in self._ddls], weights)
            chosen()
        else:
            self._write(self._some())

    def _begin_unique(self, name: TableName) -> None:
        if self._unique is not None:
            self._unique.begin(name)

    def _more_fields(self) -> dict[str, Any]:
        return self._unique.made() if self._unique is not None else {}

    def _write(self, name: TableName) -> None:
        random = self._random
        if self._unique is not None and self._unique.write(name):
            return
        if self._full is not None:
            free = [key for key in self._keys[:KEYS] if key not in self._source.tables[name].rows]
            if self._full.exchanges(self._source, name, free):
                return
        if random.random() < 0.05:
            self._exchange(name)
            return
        if random.random() < 0.05:
            self._insert_many(name)
            return
        key = self._keys[random.randrange(KEYS)]
        row = {"_id": key, "u": random.randrange(_VALUES), "f": random.randrange(100), **self._nested.made()}
        row |= self._more_fields()
        kind = random.choice(("insert", "insert", "update", "update", "update", "replace", "delete"))
        match kind:
            case "insert":
                self._source.insert(name, row)
            case "replace":
                self._source.replace(name, {**row, "g": random.randrange(100)})
            case "delete":
                self._source.delete(name, key)
            case _:
                changed = random.choice(
                    ({"f": row["f"]}, {"g": row["f"]}, {"u": row["u"]}, {"f": row["f"], "u": row["u"]})
                )
                removed = [field for field in ("g", "h") if field not in changed and random.random() < 0.2]
                known = self._source.tables[name].rows.get(key, {})
                changed |= self._nested.changed(known)
                changed |= self._unique.changed() if self._unique is not None else {}
                self._source.update(name, key, changed, [field for field in removed if field in known])

    def _insert_many(self, name: TableName) -> None:
        def others() -> None:
            for row in parts[0]:
                with suppress(NotPossible):
                    self._source.update(name, row["_id"], {"f": self._random.randrange(100)}, [])

        keys = self._random.sample(self._keys[:KEYS], 4)
        rows = [
            {"_id": key, "u": self._random.randrange(_VALUES), "f": self._random.randrange(100), **self._more_fields()}
            for key in keys
        ]
        parts = rows[:2], rows[2:]
        self._source.insert_many(name, *parts, between=others)

    def _exchange(self, name: TableName) -> None:
        """Two rows exchange their values."""
        rows = self._source.tables[name].rows
        if len(rows) < 2:
            raise NotPossible("nobody to exchange with")
        one, other = self._random.sample(ordered(rows), 2)
        value, others = rows[one].get("u"), rows[other].get("u")
        for key, given in ((one, _ASIDE), (other, value), (one, others)):
            self._source.update(name, key, {"u": given}, [])

    def _names(self) -> list[TableName]:
        return [TableName(db, coll) for db in self._databases for coll in COLLECTIONS]

    def _tables(self) -> list[TableName]:
        return sorted(name for name in self._source.tables if name.db in self._databases)

    def _some(self) -> TableName:
        tables = self._tables()
        if not tables:
            raise NotPossible("there are no tables")
        return self._random.choice(tables)

    def _create(self) -> None:
        free = self._free()
        options = self._random.choice(({}, {}, {"validationLevel": "moderate"}))
        name = self._random.choice(free)
        self._source.create(name, {**options, **(self._full.options() if self._full is not None else {})})
        self._begin_unique(name)

    def _create_with_rows(self) -> None:
        name = self._random.choice(self._free())
        self._source.create(name)
        self._insert_old(name)

    def _insert_old(self, name: TableName) -> None:
        for number, key in enumerate(self._keys[KEYS:], KEYS):
            self._source.insert(name, {"_id": key, "u": number, "f": self._random.randrange(100)})

    def _create_index(self) -> None:
        self._index(self._some(), (0.0, 0.05, 0.5, 3.0))

    def _index(self, name: TableName, seconds: tuple[float, ...]) -> None:
        """`seconds`: how long the build may take, if there are rows."""
        field = self._random.choice(self._indexed)
        spec = {"v": 2, "key": {field: 1}, "name": f"{field}_1"}
        if field == "u":
            spec["unique"] = True
        if self._unique is not None and field != "f":
            spec = self._unique.spec()
        build = self._source.create_index(name, spec)
        if build is not None:
            self._source.machine.after(self._random.choice(seconds), partial(self._end_build, build))

    def _end_build(self, build: Build) -> None:
        assert isinstance(self._source, SourceServer)
        with self._source.batch(shared_time=False), suppress(NotPossible):
            self._source.commit_index(build)
            self._source.machine.count("source: index built while rows were written")

    def _drop_index(self) -> None:
        name = self._some()
        table = self._source.tables[name]
        self._source.drop_index(name, self._random.choice(sorted({**table.indexes, **table.building})))

    def _modify(self) -> None:
        self._modify_of(self._some())

    def _modify_of(self, name: TableName) -> None:
        self._source.modify(name, self._random.choice(("off", "moderate", "strict")))

    def _purge(self) -> None:
        """Marks rows, deletes them, and changes the table's options before and after."""
        name = self._some()
        rows = ordered(self._source.tables[name].rows)
        marked = self._random.sample(rows, min(len(rows), 3))
        for key in marked:
            self._source.update(name, key, {"g": 0}, [])
        self._modify_of(name)
        for key in marked:
            self._source.delete(name, key)
        self._modify_of(name)

    def _drop(self) -> None:
        self._source.drop(self._some())

    def _rename(self) -> None:
        name = self._some()
        to = TableName(name.db, self._random.choice(COLLECTIONS))
        self._source.rename(name, to, replace=self._random.random() < 0.5)

    def _swap(self) -> None:
        name, other = self._some(), self._some()
        aside = TableName(name.db, "aside")
        if other.db != name.db or other == name or aside in self._source.tables:
            raise NotPossible("nothing to swap with")
        self._source.rename(name, aside, replace=False)
        self._source.rename(other, name, replace=False)
        self._source.rename(aside, other, replace=False)
        self._source.machine.count("source: swap of two names")

    def _drop_and_create(self) -> None:
        name = self._some()
        self._source.drop(name)
        self._source.create(name)
        self._source.insert(name, {"_id": self._keys[0], "u": 0, "f": 0})

    def _convert(self) -> None:
        assert isinstance(self._source, SourceServer)
        name = self._some()
        if self._source.tables[name].options.get("capped"):
            raise NotPossible("it is capped already")
        self._source.convert_to_capped(name, 4096)
        self._source.machine.count("source: table made capped")

    def _clone(self) -> None:
        assert isinstance(self._source, SourceServer)
        name = self._some()
        free = [each for each in self._names() if each.db == name.db and each not in self._source.tables]
        if not free:
            raise NotPossible("all names are taken")
        self._source.clone_as_capped(name, self._random.choice(free), 4096)
        self._source.machine.count("source: table cloned as a capped one")

    def _drop_database(self) -> None:
        self._source.drop_database(self._random.choice(self._databases))
