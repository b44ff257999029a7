"""User actions at a sharded cluster of sa and sb: commands to real servers, methods of the model. After each, all shards are at one time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from bson.max_key import MaxKey
from bson.min_key import MinKey

from changefeed.table import TableName
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import MAJORITY
from source.sharded.cluster_clients import ClusterClients, reach_newest
from tests.simulation.clockwork.machine import Machine
from tests.simulation.source.sharded import ddl, moves
from tests.simulation.source.sharded.cluster import ClusterSource

SPLITS = {"_id": 3, "f": 50}
"""Sharded tables have two chunks, below these and from there on."""
_MOST_SECONDS = 60.0

Write = tuple[str, str, Mapping[str, Any]]
"""`insert`, `update` by `_id`, or `delete`; the collection; the document, or its `_id` and the fields to set."""


class ClusterLife(Protocol):
    """Of one database, whose primary shard is sa at first."""

    def write(self, *writes: Write) -> None:
        """One after the other."""
        ...

    def transaction(self, *writes: Write, commits: bool = True) -> None: ...

    def shard(self, coll: str, key: str) -> None:
        """A collection that is there, or a new one."""
        ...

    def move(self, coll: str, value: int) -> None:
        """The chunk that has this value of the shard key, to the other shard."""
        ...

    def move_primary(self) -> None:
        """To the other shard."""
        ...

    def reshard(self, coll: str, key: str) -> None: ...

    def rename(self, coll: str, to: str, *, over: bool = False) -> None: ...

    def drop(self, coll: str) -> None: ...

    def drop_database(self) -> None: ...

    def create_index(self, coll: str, field: str) -> None: ...

    def drop_index(self, coll: str, field: str) -> None: ...

    def modify(self, coll: str, level: str) -> None: ...


class ModelClusterLife:
    def __init__(self, machine: Machine, database: str) -> None:
        self.cluster = ClusterSource(machine, [database], shards=("sa", "sb"))
        self._machine, self._database = machine, database
        self._settle()

    def _name(self, coll: str) -> TableName:
        return TableName(self._database, coll)

    def _settle(self) -> None:
        """Everything is done, and every server has heard of it."""
        self._machine.run(self._machine.now + _MOST_SECONDS, lambda: not self.cluster.building)
        assert not self.cluster.building
        newest = max(server.clock for server in self.cluster.streams.values())
        for server in self.cluster.streams.values():
            server.learn(newest)
            server.note()
        self._machine.run(self._machine.now + 0.2)

    def _do(self, act: Callable[[], object], *, together: bool | None = None, commits: bool | None = None) -> None:
        if together is None:
            act()
        else:
            with self.cluster.batch(shared_time=together, parts=1, commits=commits):
                act()
        self._settle()

    def _write(self, kind: str, coll: str, row: Mapping[str, Any]) -> None:
        name = self._name(coll)
        match kind:
            case "insert":
                self.cluster.insert(name, dict(row))
            case "update":
                self.cluster.update(name, row["_id"], {key: row[key] for key in row if key != "_id"}, [])
            case "delete":
                self.cluster.delete(name, row["_id"])

    def write(self, *writes: Write) -> None:
        for kind, coll, row in writes:
            if self._name(coll) not in self.cluster.tables:
                self._do(lambda coll=coll: self.cluster.create(self._name(coll)))  # type: ignore[misc]
            self._do(lambda each=(kind, coll, row): self._write(*each), together=False)  # type: ignore[misc]

    def transaction(self, *writes: Write, commits: bool = True) -> None:
        def act() -> None:
            for each in writes:
                self._write(*each)

        self._do(act, together=True, commits=commits)

    def shard(self, coll: str, key: str) -> None:
        name = self._name(coll)
        if name in self.cluster.tables:
            self._do(lambda: self.cluster.shard_table(name, key))
        else:
            self._do(lambda: self.cluster.create_sharded(name, key))
        table = self.cluster.tables[name]
        if len(table.chunks) == 1:
            self._do(lambda: self.cluster.acts.begin(ddl.split(self.cluster, table), name))

    def move(self, coll: str, value: int) -> None:
        table = self.cluster.tables[self._name(coll)]
        [chunk] = [chunk for chunk in table.chunks if chunk.has(value)]
        self._do(lambda: self.cluster.move_chunk(table.name, chunk))

    def move_primary(self) -> None:
        self._do(lambda: self.cluster.move_primary(self._database, fails=False))

    def reshard(self, coll: str, key: str) -> None:
        table = self.cluster.tables[self._name(coll)]
        assert table.key != key, "it would be resharded to the key that it has"
        owners = list(self.cluster.shards.values())
        self._do(lambda: self.cluster.acts.begin(moves.reshard(self.cluster, table, owners), table.name, table.id))

    def rename(self, coll: str, to: str, *, over: bool = False) -> None:
        self._do(lambda: self.cluster.rename(self._name(coll), self._name(to), replace=over))

    def drop(self, coll: str) -> None:
        self._do(lambda: self.cluster.drop(self._name(coll)))

    def drop_database(self) -> None:
        self._do(lambda: self.cluster.drop_database(self._database))

    def create_index(self, coll: str, field: str) -> None:
        spec = {"v": 2, "key": {field: 1}, "name": f"{field}_1"}
        self._do(lambda: self.cluster.create_index(self._name(coll), spec, everywhere=True))

    def drop_index(self, coll: str, field: str) -> None:
        self._do(lambda: self.cluster.drop_index(self._name(coll), f"{field}_1"))

    def modify(self, coll: str, level: str) -> None:
        self._do(lambda: self.cluster.modify(self._name(coll), level))


class RealClusterLife:
    """A router has to be told the shard key of each document, so the present documents are kept here."""

    def __init__(self, router: ClusterRouter, clients: ClusterClients, database: str) -> None:
        self._router, self._ddl, self._clients, self._database = router, ClusterDdl(router), clients, database
        self._documents: dict[str, dict[Any, dict[str, Any]]] = {}
        self._primary = "sa"
        self._versions = 0
        self._ddl.create_database(database, primary="sa")
        self._done()

    def _ns(self, coll: str) -> str:
        return f"{self._database}.{coll}"

    def _done(self) -> None:
        """So that the order of what follows is that of the shards' times."""
        self._router.refresh()
        reach_newest(self._clients)

    def _key(self, coll: str, id: Any) -> dict[str, Any]:
        document = self._documents[coll][id]
        return {name: document[name] for name in ("_id", "f")}

    def _versioned(self, row: Mapping[str, Any]) -> dict[str, Any]:
        self._versions += 1
        return {**row, "v": self._versions}

    def _write(self, to: Any, kind: str, coll: str, row: Mapping[str, Any]) -> None:
        ns, documents, id = self._ns(coll), self._documents.setdefault(coll, {}), row["_id"]
        match kind:
            case "insert":
                documents[id] = self._versioned(row)
                to.insert(ns, documents[id])
            case "delete":
                to.delete(ns, self._key(coll, id))
                del documents[id]
            case "update":
                before, sets = documents[id], self._versioned({key: row[key] for key in row if key != "_id"})
                key, after = self._key(coll, id), {**before, **sets}
                if self._router.route(ns).owner(before) == self._router.route(ns).owner(after):
                    to.update(ns, key, {"$set": sets})
                else:
                    to.delete(ns, key)
                    to.insert(ns, after)
                documents[id] = after

    def write(self, *writes: Write) -> None:
        for kind, coll, row in writes:
            changes_owner = kind == "update" and "f" in row
            if changes_owner:
                self.transaction((kind, coll, row))
                continue
            self._write(_Majority(self._router), kind, coll, row)
            self._done()

    def transaction(self, *writes: Write, commits: bool = True) -> None:
        before = {coll: dict(documents) for coll, documents in self._documents.items()}
        transaction = self._router.transaction()
        for each in writes:
            self._write(transaction, *each)
        if commits:
            transaction.commit()
        else:
            assert list(transaction.abort()) == []
            self._documents = before
        self._done()

    def shard(self, coll: str, key: str) -> None:
        self._ddl.shard(self._ns(coll), {key: 1})
        self._ddl.split(self._ns(coll), {key: SPLITS[key]})
        self._done()

    def move(self, coll: str, value: int) -> None:
        self._router.refresh()
        route = self._router.route(self._ns(coll))
        assert route.collection is not None
        [field] = route.collection["key"]
        to = "sb" if route.owner({field: value}) == "sa" else "sa"
        self._ddl.move(self._ns(coll), {field: value}, to, wait_for_delete=True)
        self._done()

    def move_primary(self) -> None:
        self._primary = "sb" if self._primary == "sa" else "sa"
        self._ddl.move_primary(self._database, self._primary)
        self._done()

    def reshard(self, coll: str, key: str) -> None:
        self._ddl.reshard(self._ns(coll), {key: 1}, _presetReshardedChunks=_halves(key))
        self._done()

    def rename(self, coll: str, to: str, *, over: bool = False) -> None:
        self._ddl.rename(self._ns(coll), self._ns(to), drop_target=over)
        self._documents[to] = self._documents.pop(coll, {})
        self._done()

    def drop(self, coll: str) -> None:
        self._ddl.drop(self._ns(coll))
        self._documents.pop(coll, None)
        self._done()

    def drop_database(self) -> None:
        self._ddl.drop_database(self._database)
        self._documents.clear()
        self._done()

    def create_index(self, coll: str, field: str) -> None:
        self._ddl.create_index(self._ns(coll), {field: 1})
        self._done()

    def drop_index(self, coll: str, field: str) -> None:
        self._ddl.drop_index(self._ns(coll), f"{field}_1")
        self._done()

    def modify(self, coll: str, level: str) -> None:
        self._ddl.modify(self._ns(coll), validationLevel=level)
        self._done()


class _Majority:
    """The router's single writes, each of which waits for the majority."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    def insert(self, ns: str, row: Mapping[str, Any]) -> None:
        self._router.insert(ns, row, writeConcern=MAJORITY)

    def update(self, ns: str, key: Mapping[str, Any], change: Mapping[str, Any]) -> None:
        self._router.update(ns, key, change, writeConcern=MAJORITY)

    def delete(self, ns: str, key: Mapping[str, Any]) -> None:
        self._router.delete(ns, key, writeConcern=MAJORITY)


def _halves(key: str) -> Sequence[Mapping[str, Any]]:
    at = SPLITS[key]
    return [
        {"recipientShardId": "sa", "min": {key: MinKey()}, "max": {key: at}},
        {"recipientShardId": "sb", "min": {key: at}, "max": {key: MaxKey()}},
    ]
