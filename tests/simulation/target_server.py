"""`TargetServer`: collections in memory that answer commands as a MongoDB server does, and `TargetClient`, the driver's client to it.

A command may break off on its way, after it was done, or in the middle of its statements. Writes fall one after the other, so that
other things may happen between two of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import bson
from bson.binary import Binary
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo.errors import AutoReconnect, NetworkTimeout, OperationFailure

from changefeed.table import TableId, TableName
from tests.simulation.machine import Machine, Thread
from tests.simulation.network import Network
from tests.simulation.source_server import ID_INDEX
from tests.unit.sink.mongodb import update_model

Row = dict[str, Any]


@dataclass
class Collection:
    uuid: bytes
    options: dict[str, Any] = field(default_factory=dict)
    indexes: dict[str, dict[str, Any]] = field(default_factory=lambda: {"_id_": dict(ID_INDEX)})
    rows: dict[Any, Row] = field(default_factory=dict)
    table: TableId | None = None
    """Whose rows stand here, as the judge knows it."""


class Judge(Protocol):
    """Told of each effect at the target before it happens."""

    def row(
        self, thread: Thread, name: TableName, table: TableId | None, kind: str, key: Any, row: Row | None
    ) -> None: ...

    def ddl(self, thread: Thread, name: TableName, what: str) -> TableId | None: ...


class TargetServer:
    def __init__(self, machine: Machine, network: Network) -> None:
        self.machine = machine
        self.network = network
        self.collections: dict[TableName, Collection] = {}
        self.judge: Judge | None = None
        self.wire = machine.random.choice((21, 25))
        self.slow_ddl = self.slow_rows = 0.0
        """Seconds that a command may take."""

    def named(self, name: TableName) -> Collection:
        if name not in self.collections:
            raise _failure(26, f"ns not found: {name}")
        return self.collections[name]


class TargetClient:
    def __init__(self, server: TargetServer, network: Network) -> None:
        self.server = server
        self.network = network
        self.admin = _Database(self, "admin")

    def __getitem__(self, db: str) -> _Database:
        return _Database(self, db)

    def get_database(self, db: str, **_: object) -> _Database:
        return _Database(self, db)

    def start_session(self) -> _Session:
        return _Session(self)

    def close(self) -> None: ...


class _Session:
    def __init__(self, client: TargetClient) -> None:
        self._client = client
        self.transaction: _Transaction | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    @contextmanager
    def start_transaction(self, **_: object) -> Iterator[None]:
        self.transaction = _Transaction()
        try:
            yield
            self._client.admin.commit(self.transaction)
        finally:
            self.transaction = None


class _Transaction:
    """What it saw has to be so still when it ends; until then nobody sees what it writes."""

    def __init__(self) -> None:
        self.seen: dict[tuple[TableName, Any], Row | None] = {}
        self.statements: list[tuple[TableName, str, Mapping[str, Any]]] = []


class _Database:
    def __init__(self, client: TargetClient, db: str) -> None:
        self._client = client
        self._server = client.server
        self._db = db

    def __getitem__(self, coll: str) -> _Collection:
        return _Collection(self._client, TableName(self._db, coll))

    def get_collection(self, coll: str) -> _Collection:
        return self[coll]

    def cursor_command(
        self, command: str, value: Any = 1, filter: Mapping[str, Any] | None = None, **_: object
    ) -> Iterator[dict[str, Any]]:
        self._arrive()
        if command == "listIndexes":
            indexes = self._server.named(TableName(self._db, value)).indexes
            return iter([dict(spec) for spec in indexes.values()])
        assert command == "listCollections", f"the simulated target does not know {command}"
        assert filter is not None
        return iter(self._collections(filter["name"]["$in"]))

    def _collections(self, wanted: Container[str]) -> list[dict[str, Any]]:
        return [
            {
                "name": name.coll,
                "type": "collection",
                "options": dict(collection.options),
                "info": {"uuid": Binary(collection.uuid, 4)},
            }
            for name, collection in self._server.collections.items()
            if name.db == self._db and name.coll in wanted
        ]

    def command(self, command: str | Mapping[str, Any], session: _Session | None = None, **_: object) -> dict[str, Any]:
        body = {command: 1} if isinstance(command, str) else dict(command)
        verb = next(iter(body))
        if session is not None and session.transaction is not None:
            return self._in_transaction(session.transaction, verb, body)
        self._arrive(ddl=verb in _DDL)
        weather, chance = self._server.network.weather, self._server.network.chance
        reply = self._carry_out(verb, body)
        if verb != "hello" and chance(weather.target_broken_after):
            self._note(f"the answer to {verb} is lost")
            raise AutoReconnect("the connection to the target broke")
        self._server.network.move()
        return reply

    def _arrive(self, *, ddl: bool = False) -> None:
        """A DDL follows its permit within a moment; what is wrong after a longer pause there, no client can know."""
        server, thread = self._server, self._server.machine.current
        assert thread is not None
        thread.sending = ddl
        try:
            server.network.travel(server.network.target_down, "the target")
        finally:
            thread.sending = False
        if server.network.chance(server.network.weather.target_broken_before):
            raise AutoReconnect("the connection to the target broke")
        self._in_time()

    def _in_time(self) -> None:
        machine = self._server.machine
        assert machine.current is not None
        deadline = machine.current.command_deadline
        if deadline is not None and machine.now > deadline:
            raise NetworkTimeout("out of time")

    def _carry_out(self, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        match verb:
            case "hello":
                return {
                    "maxWireVersion": self._server.wire,
                    "maxWriteBatchSize": 100_000,
                    "maxBsonObjectSize": 16 << 20,
                }
            case "insert" | "update" | "delete" | "bulkWrite":
                self._take_time(self._server.slow_rows, "rows")
                self._in_time()
                return self._write(verb, body)
            case "find":
                return {"cursor": {"firstBatch": list(self._found(TableName(self._db, body[verb]), body["filter"]))}}
            case _:
                self._take_time(self._server.slow_ddl, "DDL")
                self._in_time()
                return self._ddl(verb, body)

    def _take_time(self, most: float, what: str) -> None:
        machine = self._server.machine
        if most and machine.random.random() < 0.5:
            machine.count(f"fault: slow {what}")
            machine.sleep(machine.random.random() * most)

    def _found(self, name: TableName, wanted: Mapping[str, Any]) -> Iterator[RawBSONDocument]:
        key, rows = wanted["_id"], self._rows(name)
        for each in key["$in"] if isinstance(key, dict) else [key]:
            if each in rows and update_model.fits(rows[each], wanted.get("$expr")):
                yield RawBSONDocument(bson.encode(rows[each]))

    # transactions

    def _in_transaction(self, transaction: _Transaction, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._arrive()
        if verb == "aggregate":
            return {"cursor": {"firstBatch": self._aggregated(transaction, TableName(self._db, body[verb]), body)}}
        for name, kind, statement in _statements(self._db, verb, body):
            key = _decoded(statement["document" if kind == "insert" else "q"])["_id"]
            transaction.seen.setdefault((name, key), self._rows(name).get(key))
            transaction.statements.append((name, kind, statement))
        return {"n": 1, "ok": 1.0}

    def _aggregated(self, transaction: _Transaction, name: TableName, body: Mapping[str, Any]) -> list[RawBSONDocument]:
        source, *stages = body["pipeline"]
        key = _decoded(source["$match"])["_id"] if "$match" in source else next(iter(self._rows(name)), None)
        row = self._rows(name).get(key)
        transaction.seen[name, key] = row
        return [] if row is None else [RawBSONDocument(bson.encode(update_model.apply(row, stages)))]

    def commit(self, transaction: _Transaction) -> None:
        """All of it at one moment, or nothing."""
        self._arrive()
        if any(self._rows(name).get(key) != row for (name, key), row in transaction.seen.items()):
            raise _failure(112, "WriteConflict")
        touched = {name: dict(self._rows(name)) for name, _ in transaction.seen}
        try:
            for statement in transaction.statements:
                self._one(*statement)
        except OperationFailure:
            for name, rows in touched.items():
                self._server.named(name).rows = rows
            raise
        self._server.machine.count("rows exchanged their values")
        if self._server.network.chance(self._server.network.weather.target_broken_after):
            raise AutoReconnect("the connection to the target broke")
        self._server.network.move()

    def _rows(self, name: TableName) -> dict[Any, Row]:
        collection = self._server.collections.get(name)
        return collection.rows if collection else {}

    # rows

    def _write(self, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        statements = list(_statements(self._db, verb, body))
        results: list[dict[str, Any]] = []
        partial = self._server.network.chance(self._server.network.weather.target_partial)
        stop = self._server.machine.random.randrange(len(statements) + 1) if partial else None
        for number, (name, kind, statement) in enumerate(statements):
            if number == stop:
                self._note(f"{verb} broke off after {number} of {len(statements)}")
                raise AutoReconnect("the connection to the target broke")
            if number:
                self._server.machine.sleep(0.0001)
                self._in_time()
            try:
                matched = self._one(name, kind, statement)
                results.append({"ok": 1.0, "idx": number, "n": matched})
            except OperationFailure as refused:
                results.append({"ok": 0.0, "idx": number, "n": 0, **(refused.details or {})})
                if body.get("ordered", True):
                    break
        if verb == "bulkWrite":
            return {"cursor": {"id": Int64(0), "ns": "admin.$cmd.bulkWrite", "firstBatch": results}, "ok": 1.0}
        errors = [{**result, "index": result["idx"]} for result in results if not result["ok"]]
        for error in errors:
            del error["idx"]
        reply: dict[str, Any] = {"n": sum(result["n"] for result in results), "ok": 1.0}
        return reply | ({"writeErrors": errors} if errors else {})

    def _one(self, name: TableName, kind: str, statement: Mapping[str, Any]) -> int:
        """How many rows it met, or made."""
        if name.coll == "sluice.majority":
            return 0
        server = self._server
        collection = server.collections.get(name)
        table = collection.table if collection else None
        rows = self._rows(name)
        thread = server.machine.current
        assert thread is not None
        assert server.judge is not None
        if kind == "insert":
            row = _decoded(statement["document"])
            server.judge.row(thread, name, table, kind, row["_id"], row)
            if row["_id"] in rows:
                raise _duplicate("_id", row["_id"])
            self._put(name, row)
            return 1
        query = _decoded(statement["q"])
        key = query["_id"]
        if kind == "delete":
            server.judge.row(thread, name, table, kind, key, None)
            return 1 if rows.pop(key, None) is not None else 0
        before = rows.get(key)
        if before is not None and "$expr" in query and not update_model.fits(before, query["$expr"]):
            return 0
        if before is None and not statement.get("upsert"):
            return 0
        try:
            after = _updated(before or {"_id": key}, statement["u"])
        except update_model.Refused as refused:
            raise _failure(28, str(refused)) from refused
        server.judge.row(thread, name, table, kind, key, after)
        self._put(name, after)
        return 1

    def _put(self, name: TableName, row: Row) -> None:
        collection = self._server.collections.setdefault(name, Collection(uuid.UUID(int=1).bytes))
        for spec in collection.indexes.values():
            indexed = next(iter(spec["key"]))
            if spec.get("unique") and indexed != "_id":
                for key, other in collection.rows.items():
                    if key != row["_id"] and other.get(indexed) == row.get(indexed):
                        raise _duplicate(indexed, row.get(indexed))
        collection.rows[row["_id"]] = row

    # DDL

    def _ddl(self, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:  # noqa: C901  # one case for each command
        server = self._server
        if verb == "renameCollection":
            self._rename(body)
            return {"ok": 1.0}
        name = TableName(self._db, body[verb])
        if verb != "create":
            _guard(server.named(name), name, body)
        match verb:
            case "create":
                self._create(name, body)
            case "createIndexes":
                for spec in body["indexes"]:
                    self._create_index(name, dict(spec))
            case "dropIndexes":
                indexes = server.named(name).indexes
                if body["index"] not in indexes:
                    raise _failure(27, f"index not found with name [{body['index']}]")
                self._judged(name, f"dropIndexes {body['index']}")
                del indexes[body["index"]]
            case "collMod":
                options = server.named(name).options
                changed = {k: v for k, v in body.items() if k not in ("collMod", "collectionUUID", "writeConcern")}
                if any(options.get(k) != v for k, v in changed.items()):
                    self._judged(name, f"collMod {changed}")
                    options |= {"validationAction": "error"} | changed
            case "drop":
                self._judged(name, "drop")
                del server.collections[name]
            case _:
                raise AssertionError(f"the simulated target does not know {verb}")
        return {"ok": 1.0}

    def _create(self, name: TableName, body: Mapping[str, Any]) -> None:
        server = self._server
        options = {k: v for k, v in body.items() if k not in ("create", "writeConcern")}
        there = server.collections.get(name)
        if there is not None:
            if there.options != options:
                raise _failure(48, f"{name} exists")
            return
        table = self._judged(name, "create")
        identity = uuid.UUID(int=server.machine.random.getrandbits(128), version=4).bytes
        server.collections[name] = Collection(identity, options, table=table)

    def _create_index(self, name: TableName, spec: dict[str, Any]) -> None:
        collection = self._server.named(name)
        known = collection.indexes.get(spec["name"])
        if known is not None:
            if known["key"] != spec["key"] or known.get("unique") != spec.get("unique"):
                raise _failure(86, "the index is there with another key")
            return
        indexed = next(iter(spec["key"]))
        values = [row.get(indexed) for row in collection.rows.values()]
        if spec.get("unique") and len(set(values)) < len(values):
            raise _duplicate(indexed, values)
        self._judged(name, f"createIndexes {spec['name']}")
        shown = {name: value for name, value in spec.items() if (name, value) != ("collation", {"locale": "simple"})}
        collection.indexes[spec["name"]] = {"v": 2, **shown}

    def _rename(self, body: Mapping[str, Any]) -> None:
        server = self._server
        name, to = TableName.parse(body["renameCollection"]), TableName.parse(body["to"])
        moved = server.named(name)
        _guard(moved, name, body)
        there = server.collections.get(to)
        wanted = body.get("dropTarget", False)
        if there is not None and (wanted is False or (isinstance(wanted, bytes) and bytes(wanted) != there.uuid)):
            raise _failure(48 if wanted is False else 361, f"{to} exists")
        self._judged(name, f"rename to {to}")
        del server.collections[name]
        server.collections[to] = moved

    def _judged(self, name: TableName, what: str) -> TableId | None:
        server = self._server
        thread = server.machine.current
        assert thread is not None
        assert server.judge is not None
        self._note(f"{what} on {name}")
        return server.judge.ddl(thread, name, what)

    def _note(self, what: str) -> None:
        thread = self._server.machine.current
        self._server.machine.note(f"target<{thread.process.name if thread else '-'}", what)


class _Collection:
    def __init__(self, client: TargetClient, name: TableName) -> None:
        self._client = client
        self._name = name
        self._query: dict[str, Any] = {}
        self._low: Any = None
        self._high: Any = None

    def with_options(self, *_: object) -> _Collection:
        return self

    def find_one(self, *_: object) -> Any:
        self._travel()
        collection = self._client.server.collections.get(self._name)
        return next(iter(collection.rows.values()), None) if collection else None

    def find(self, query: Mapping[str, Any], *_: object) -> _Collection:
        self._query = dict(query)
        return self

    def hint(self, *_: object) -> _Collection:
        return self

    def limit(self, *_: object) -> _Collection:
        return self

    def min(self, bound: list[tuple[str, Any]]) -> _Collection:
        self._low = bound[0][1]
        return self

    def max(self, bound: list[tuple[str, Any]]) -> _Collection:
        self._high = bound[0][1]
        return self

    def __iter__(self) -> Iterator[RawBSONDocument]:
        self._travel()
        collection = self._client.server.collections.get(self._name)
        keys = sorted(collection.rows) if collection else []
        return iter(
            RawBSONDocument(bson.encode({"_id": key}))
            for key in keys
            if (self._low is None or key >= self._low) and (self._high is None or key < self._high)
            if "_id" not in self._query or key == self._query["_id"]
        )

    def _travel(self) -> None:
        self._client.network.travel(self._client.network.target_down, "the target")


_DDL = frozenset({"create", "createIndexes", "dropIndexes", "collMod", "drop", "renameCollection"})


def _statements(db: str, verb: str, body: Mapping[str, Any]) -> Iterator[tuple[TableName, str, Mapping[str, Any]]]:
    match verb:
        case "insert":
            for document in body["documents"]:
                yield TableName(db, body[verb]), "insert", {"document": document}
        case "update":
            for statement in body["updates"]:
                yield TableName(db, body[verb]), "update", statement
        case "delete":
            for statement in body["deletes"]:
                yield TableName(db, body[verb]), "delete", statement
        case _:
            names = [TableName.parse(entry["ns"]) for entry in body["nsInfo"]]
            for statement in body["ops"]:
                kind = next(iter(statement))
                renamed = {"q": statement.get("filter"), "u": statement.get("updateMods"), **statement}
                yield names[statement[kind]], kind, renamed


def _updated(before: Row, operation: Any) -> Row:
    if isinstance(operation, list) or any(name.startswith("$") for name in operation):
        return update_model.apply(before, operation)
    return _decoded(operation)


def _decoded(document: Any) -> Row:
    return bson.decode(bson.encode(document))


def _guard(collection: Collection, name: TableName, body: Mapping[str, Any]) -> None:
    expected = body.get("collectionUUID")
    if expected is not None and bytes(expected) != collection.uuid:
        raise _failure(361, f"{name} is another collection")


def _duplicate(indexed: str, value: Any) -> OperationFailure:
    message = f"E11000 duplicate key error index: {indexed}_ dup key: {value}"
    details = {"code": 11000, "errmsg": message, "keyPattern": {indexed: 1}, "keyValue": {indexed: value}}
    return OperationFailure(message, 11000, details)


def _failure(code: int, message: str) -> OperationFailure:
    return OperationFailure(message, code, {"code": code, "errmsg": message})
