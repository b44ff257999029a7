"""`TargetClient`: the driver's client, as far as the product uses it for a target, over the simulated network.

A command may break on its way, after it was done, or between its statements. Writes are applied one after another, so that other events
may happen between two of them. The answers are those of real servers: `tests/component/simulation/` compares both.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import islice
from typing import Any, NoReturn, Self

import bson
from bson.binary import Binary
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo.errors import AutoReconnect, NetworkTimeout, NotPrimaryError, OperationFailure

from changefeed.table import TableName
from sink.mongodb.rows.rows_ahead import ROWS_AHEAD
from sink.mongodb.sync_marks import SYNC_POINTS
from tests.simulation.clockwork.network import ARRIVES_WITHIN, Network
from tests.simulation.source.row_keys import as_key, between, in_order
from tests.simulation.source.tables import ID_INDEX
from tests.simulation.source.unique_index import conflict, is_unique, key_value
from tests.simulation.target.ddl import COMMANDS, Definitions, same_primary
from tests.simulation.target.letters import LETTERS, fits
from tests.simulation.target.server import Collection, Row, TargetServer, duplicate, failure
from tests.unit.sink.mongodb.rows import update_model


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
        self.operation_time = None

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
    """What it has read must be unchanged when it commits. Until then its writes are invisible."""

    def __init__(self) -> None:
        self.seen: dict[tuple[TableName, Any], Row | None] = {}
        self.statements: list[tuple[TableName, str, Mapping[str, Any]]] = []
        self._snapshot: dict[TableName, dict[Any, Row]] | None = None

    def rows(self, server: TargetServer, name: TableName) -> dict[Any, Row]:
        """The rows as they were at its first statement."""
        if self._snapshot is None:
            self._snapshot = {name: dict(collection.rows) for name, collection in server.collections.items()}
        return self._snapshot.get(name, {})


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
        self, command: str | Mapping[str, Any], value: Any = 1, filter: Mapping[str, Any] | None = None, **_: object
    ) -> Iterator[dict[str, Any]]:
        self._arrive()
        body: Mapping[str, Any] = {command: value} if isinstance(command, str) else command
        if "listIndexes" in body:
            there = self._server.named(TableName(self._db, body["listIndexes"]))
            building = [build.spec for build in there.building.values()]
            return iter([dict(spec) for spec in (*there.indexes.values(), *building)])
        assert "listCollections" in body, f"the simulated target does not know {command}"
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
        body: dict[str, Any] = {command: 1} if isinstance(command, str) else dict(command)
        verb = next(iter(body))
        if session is not None and session.transaction is not None:
            return self._in_transaction(session.transaction, verb, body)
        weather, chance = self._server.network.weather, self._server.network.chance
        concern = body.get("writeConcern")
        assert concern is None or concern["w"] == "majority" or set(body) & _SAY_WHEN, (
            "only rows wait for the majority later"
        )
        if verb in _ROWS and self._server.network.late.random() < self._server.network.late_rows:
            self._hold_back(verb, body)
        try:
            with self._server.machine.at_server() if verb in COMMANDS else nullcontext():
                if verb == "createIndexes":
                    self._build_is_sent(TableName(self._db, body[verb]))
                self._arrive()
                reply = self._carry_out(verb, body)
        except OperationFailure as refused:
            details = {"ok": 0.0, **(refused.details or {}), **self._acknowledged(concern)}
            raise OperationFailure(str(refused), refused.code, details) from refused
        reply |= self._acknowledged(concern)
        if verb != "hello" and chance(weather.target_broken_after):
            self._server.note(f"the answer to {verb} is lost")
            raise AutoReconnect("the connection to the target broke")
        self._server.network.move()
        return reply

    def _hold_back(self, verb: str, body: Mapping[str, Any]) -> NoReturn:
        """The network delivers the command later, if its connection is still open: its sender waits as long as it may, then closes it."""
        server, network = self._server, self._server.network
        machine, sender = server.machine, server.machine.current
        assert sender is not None
        assert server.judge is not None
        assert sender.command_deadline is not None, "rows have a limit"
        left = sender.command_deadline - machine.now
        delay = network.late.choice(_DELAYS)
        connected = True

        def arrive() -> None:
            machine.sleep(delay)
            if network.forgets and (not connected or delay > ARRIVES_WITHIN.total_seconds()):
                return
            machine.note("target", f"rows of {sender.process} arrive late")
            machine.count("rows arrive late")
            late.command_deadline = machine.now + left
            with suppress(OperationFailure, AutoReconnect, RuntimeError):  # nobody hears that the row breaks its task
                self._carry_out(verb, body)

        late = machine.spawn(sender.process, "late rows", arrive)
        late.task, late.copies, late.sending = sender.task, sender.copies, True
        late.sent_by = server.judge.node_of(sender)
        machine.note(sender.process.name, f"{verb}: {delay:g} s late")
        machine.count("fault: late rows")
        try:
            machine.sleep(left)
        finally:
            connected = False
        raise NetworkTimeout("out of time")

    def _build_is_sent(self, name: TableName) -> None:
        thread, judge = self._server.machine.current, self._server.judge
        assert thread is not None
        assert judge is not None
        judge.build_is_sent(thread, name)

    def _arrive(self) -> None:
        server = self._server
        server.network.travel(server.network.target_down, "the target")
        if server.network.chance(server.network.weather.target_broken_before):
            unheard = server.machine.random.choice(_UNHEARD)
            raise unheard()
        self._in_time()

    def _acknowledged(self, concern: Mapping[str, Any] | None) -> dict[str, Any]:
        """The write concern error of an answer, if its state may not be durable. Refusals depend on a state too."""
        if concern is None or concern["w"] == 1:
            return {}
        machine, majority = self._server.machine, self._server.majority
        assert machine.current is not None
        election, newest = majority.election, majority.newest
        until = machine.now + concern.get("wtimeout", 1e9) / 1000
        deadline = machine.current.command_deadline
        if majority.has.ts < newest.ts:
            self._server.reached("target_lacks_majority")
            if self._server.network.chance(self._server.network.weather.target_broken_after):
                self._server.note("the answer is lost before the majority has what it tells")
                raise AutoReconnect("the connection to the target broke")
        while majority.has.ts < newest.ts:
            if majority.election != election:
                return _concern_error(11602, "operation was interrupted")
            if machine.now >= until:
                return _concern_error(64, "waiting for replication timed out")
            self._in_time()
            majority.changed.wait(min(until, deadline if deadline is not None else until) + _A_LITTLE)
        return {} if majority.election == election else _concern_error(11602, "operation was interrupted")

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
                    "setName": "target",
                    "me": "target:1",
                    "electionId": self._server.majority.term,
                    "lastWrite": {
                        "opTime": self._server.majority.newest.to_bson(),
                        "majorityOpTime": self._server.majority.has.to_bson(),
                    },
                    "maxWireVersion": self._server.wire,
                    "maxWriteBatchSize": 100_000,
                    "maxBsonObjectSize": 16 << 20,
                }
            case "insert" | "update" | "delete" | "bulkWrite":
                self._take_time(self._server.slow_rows, "rows")
                self._take_time_for_each(verb, body)
                self._in_time()
                return self._write(verb, body)
            case "findAndModify":
                self._in_time()
                statement = {"q": body["query"], "u": body["update"], "upsert": body["upsert"]}
                self._server.machine.count("target: table noted as ahead")
                return {"value": self._server.sync.update(TableName(self._db, body[verb]), statement)}
            case "find":
                return {"cursor": {"id": Int64(0), "firstBatch": list(islice(self._shown(body), body.get("limit")))}}
            case "aggregate":
                wanted = body["pipeline"][1]["$match"]
                name = TableName(wanted["command.$db"], wanted["command.createIndexes"])
                waiting = [{"ns": str(each)} for each in self._server.builds_that_wait.values() if each == name]
                return {"cursor": {"firstBatch": waiting}}
            case _:
                with self._waiting(verb, body):
                    self._take_time(self._server.slow_ddl, "DDL")
                self._in_time()
                return Definitions(self._server, self._db).carry_out(verb, body)

    @contextmanager
    def _waiting(self, verb: str, body: Mapping[str, Any]) -> Iterator[None]:
        """A createIndexes that has not begun is to be seen, whoever sent it."""
        server, number = self._server, object()
        if verb == "createIndexes":
            server.builds_that_wait[number] = TableName(self._db, body[verb])
        try:
            yield
        finally:
            server.builds_that_wait.pop(number, None)

    def _take_time(self, most: float, what: str) -> None:
        machine = self._server.machine
        election = self._server.majority.election
        if most and machine.random.random() < 0.5:
            machine.count(f"fault: slow {what}")
            machine.sleep(machine.random.random() * most)
        same_primary(self._server, election)

    def _take_time_for_each(self, verb: str, body: Mapping[str, Any]) -> None:
        if self._server.slow_rows_of:
            names = (name for name, _, _ in _statements(self._db, verb, body))
            self._server.machine.sleep(sum(self._server.slow_rows_of.get(name, 0.0) for name in names))

    def _found(self, name: TableName, find: Mapping[str, Any]) -> Iterator[RawBSONDocument]:
        """By keys, or a range of them."""
        rows = self._rows(name)
        if "_id" in (wanted := _decoded(find.get("filter", {}))):
            key = wanted["_id"]
            keys = list(map(as_key, key["$in"] if isinstance(key, dict) and "$in" in key else [key]))
        else:
            low, high = (in_order(_decoded(find[bound])["_id"]) if bound in find else None for bound in ("min", "max"))
            keys = between(rows, low, high)
        return (RawBSONDocument(bson.encode(rows[key])) for key in keys if key in rows)

    def _shown(self, find: Mapping[str, Any]) -> Iterator[Any]:
        name = TableName(self._db, find["find"])
        if find.get("readConcern", {}).get("level") == "snapshot":
            return iter(self._found_at(find))
        return self._server.letters.find(find["filter"]) if name == LETTERS else self._found(name, find)

    def _found_at(self, find: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Of the records of letters and of tables ahead, as of the time of a mark."""
        there = self._server.sync.history[find["readConcern"]["atClusterTime"]]
        if TableName(self._db, find["find"]) == LETTERS:
            return [letter for letter in there.letters if fits(letter, find["filter"])]
        return list(self._server.sync.matching(there.ahead, find["filter"]))

    # transactions

    def _in_transaction(self, transaction: _Transaction, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._arrive()
        if verb == "find":
            return {"cursor": {"firstBatch": self._seen(transaction, TableName(self._db, body[verb]), body)}}
        for name, kind, statement in _statements(self._db, verb, body):
            key = _key_of(kind, statement)
            transaction.seen.setdefault((name, key), transaction.rows(self._server, name).get(key))
            transaction.statements.append((name, kind, statement))
        return {"n": 1, "ok": 1.0}

    def _seen(self, transaction: _Transaction, name: TableName, body: Mapping[str, Any]) -> list[RawBSONDocument]:
        key = as_key(_decoded(body["filter"])["_id"])
        row = transaction.seen[name, key] = transaction.rows(self._server, name).get(key)
        return [] if row is None else [RawBSONDocument(bson.encode(row))]

    def commit(self, transaction: _Transaction) -> None:
        """Applies everything at one moment, or nothing."""
        self._arrive()
        if any(self._rows(name).get(key) != row for (name, key), row in transaction.seen.items()):
            raise failure(112, "WriteConflict")
        with self._server.majority.together():
            for statement in transaction.statements:
                self._one(*statement)
        self._server.machine.count("rows exchanged their values")
        if concern := self._acknowledged({"w": "majority"}):
            raise NotPrimaryError("operation was interrupted", concern)
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
        election = self._server.majority.election
        for number, (name, kind, statement) in enumerate(statements):
            if number == stop:
                self._server.note(f"{verb} broke off after {number} of {len(statements)}")
                raise AutoReconnect("the connection to the target broke")
            if number:
                self._server.machine.sleep(0.0001)
                self._in_time()
                same_primary(self._server, election)
            try:
                matched = self._special(name, kind, statement)
                if matched is None:
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
        written = self._server.majority.newest.to_bson()
        reply |= {"electionId": self._server.majority.term, "opTime": written, "operationTime": written["ts"]}
        return reply | ({"writeErrors": errors} if errors else {})

    def _one(self, name: TableName, kind: str, statement: Mapping[str, Any]) -> int:
        """Applies one statement. Returns how many rows it matched or inserted."""
        if name.coll == "sluice.majority":
            return 0
        server = self._server
        if name.coll in server.breaks_tasks_with_rows_of:
            server.machine.count("target: row that breaks its task")
            raise RuntimeError("a bug")
        if kind != "delete" and server.refuses_row(name, _key_of(kind, statement)):
            server.machine.count("target: row that is refused")
            raise failure(121, f"Document failed validation in {name}")
        collection = server.collections.get(name)
        table = collection.table if collection else None
        rows = self._rows(name)
        thread = server.machine.current
        assert thread is not None
        assert server.judge is not None
        if kind == "insert":
            row = _decoded(statement["document"])
            key = as_key(row["_id"])
            server.judge.row(thread, name, table, kind, key, row)
            if key in rows:
                raise duplicate(ID_INDEX, {"_id": key})
            self._put(name, key, row)
            server.judge.kept(table, key)
            return 1
        query = _decoded(statement["q"])
        key = as_key(query["_id"])
        if kind == "delete":
            server.judge.row(thread, name, table, kind, key, None)
            there = collection is not None and key in rows
            if collection is not None and there:
                collection.keep(key, None, self._server.majority)
            server.judge.kept(table, key)
            return int(there)
        before = rows.get(key)
        fits = before is None or _fits(before, query)
        if not fits or (before is None and not statement.get("upsert")):
            return 0
        try:
            after = _updated(before or {"_id": key}, statement["u"])
        except update_model.Refused as refused:
            raise failure(28, str(refused)) from refused
        server.judge.row(thread, name, table, kind, key, after)
        self._put(name, key, after)
        server.judge.kept(table, key)
        return 1

    def _special(self, name: TableName, kind: str, statement: Mapping[str, Any]) -> int | None:
        """Of collections that are Sluice's own. None: of another one."""
        if name == LETTERS:
            return self._letter(kind, statement)
        if name not in self._server.sync.kept:
            return None
        return (
            self._server.sync_delete(name, statement) if kind == "delete" else self._server.sync_update(name, statement)
        )

    def _letter(self, kind: str, statement: Mapping[str, Any]) -> int:
        letters, machine = self._server.letters, self._server.machine
        machine.count(f"target: {kind} of a dead letter")
        return letters.delete(statement["q"]) if kind == "delete" else letters.update(statement, machine.now)

    def _put(self, name: TableName, key: Any, row: Row) -> None:
        collection = self._server.collections.setdefault(name, Collection(uuid.UUID(int=1).bytes))
        for spec in collection.indexes.values():
            if is_unique(spec) and (found := conflict(spec, collection.rows, key, row)) is not None:
                self._refuse(name, collection, row, found.by)
                raise duplicate(spec, key_value(spec, found.key))
        collection.keep(key, row, self._server.majority)

    def _refuse(self, name: TableName, collection: Collection, row: Row, by: Any) -> None:
        server = self._server
        assert server.machine.current is not None
        assert server.judge is not None
        server.machine.count("target: row whose unique value is taken")
        server.judge.taken(server.machine.current, name, collection.table, row, collection.rows[by])


class _Collection:
    def __init__(self, client: TargetClient, name: TableName) -> None:
        self._client = client
        self._name = name

    def with_options(self, *_: object) -> _Collection:
        return self

    def delete_many(self, condition: Mapping[str, Any]) -> None:
        deletes = [{"q": condition, "limit": 0}]
        concern = {"w": "majority", "wtimeout": 20_000}
        self._client[self._name.db].command({"delete": self._name.coll, "deletes": deletes, "writeConcern": concern})

    def count_documents(self, condition: Mapping[str, Any], **_: object) -> int:
        self._travel()
        return len(self._client.server.letters.matching(condition))

    def aggregate(self, stages: Sequence[Mapping[str, Any]], **_: object) -> list[dict[str, Any]]:
        """How old the oldest letter is, and how large all are."""
        self._travel()
        found = self._client.server.letters.matching(stages[0]["$match"])
        since = min((letter["first_rejected_at"] for letter in found), default=None)
        return [{"_id": None, "since": since, "bytes": sum(len(bson.encode(letter)) for letter in found)}]

    def _travel(self) -> None:
        self._client.network.travel(self._client.network.target_down, "the target")


_A_LITTLE = 1e-6
_DELAYS = (0.3, 1.0, ARRIVES_WITHIN.total_seconds(), 6.0, 15.0)
_SAY_WHEN = frozenset({"insert", "update", "delete"})
_ROWS = _SAY_WHEN | {"bulkWrite"}
_OWN = frozenset({LETTERS.coll, SYNC_POINTS.coll, ROWS_AHEAD.coll})


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
                yield from ((TableName(db, body[verb]), "delete", each) for each in _of_each(statement, body[verb]))
        case _:
            names = [TableName.parse(entry["ns"]) for entry in body["nsInfo"]]
            for statement in body["ops"]:
                kind = next(iter(statement))
                renamed = {"q": statement.get("filter"), "u": statement.get("updateMods"), **statement}
                yield names[statement[kind]], kind, renamed


def _of_each(statement: Mapping[str, Any], coll: str) -> Iterator[Mapping[str, Any]]:
    """A server may end between two of the rows that one statement deletes."""
    among = None if coll in _OWN else _decoded(statement["q"])["_id"]
    if isinstance(among, dict) and "$in" in among:
        yield from ({**statement, "q": {"_id": key}} for key in among["$in"])
    else:
        yield statement


def _fits(row: Row, query: Mapping[str, Any]) -> bool:
    if "$expr" in query and not update_model.fits(row, query["$expr"]):
        return False
    return not any(
        condition == {"$exists": False} and update_model.there(row, name) for name, condition in query.items()
    )


def _updated(before: Row, operation: Any) -> Row:
    if isinstance(operation, list) or any(name.startswith("$") for name in operation):
        return update_model.apply(before, operation)
    return _decoded(operation)


def _key_of(kind: str, statement: Mapping[str, Any]) -> Any:
    return as_key(_decoded(statement["document" if kind == "insert" else "q"])["_id"])


def _decoded(document: Any) -> Row:
    return bson.decode(bson.encode(document))


def _concern_error(code: int, message: str) -> dict[str, Any]:
    return {"writeConcernError": {"code": code, "errmsg": message}}


_UNHEARD: tuple[Callable[[], AutoReconnect], ...] = (
    lambda: AutoReconnect("the connection to the target broke"),
    lambda: NotPrimaryError("not primary", {"code": 10107, "errmsg": "not primary"}),
    lambda: NotPrimaryError("shutting down", {"code": 91, "errmsg": "shutting down"}),
)
"""The errors of a command that had no effect."""
