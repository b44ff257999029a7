"""User actions at a source: commands to a real server, methods of the model. Each returns the error code of a refusal, or 0."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Protocol

from pymongo.errors import AutoReconnect, OperationFailure

from changefeed.table import TableName
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.server import Client
from tests.component.simulation.served import InThisProcess, code_of, held
from tests.forgetful import forget
from tests.simulation.source.server import SourceServer
from tests.simulation.source.tables import Build, NotPossible
from tests.until import PATIENCE_SECONDS

_INDEX_HOLD = "hangAfterStartingIndexBuild"
_MAJORITY_HOLD = "disableSnapshotting"
_FOREVER = 1e9
MOST_IN_ENTRY = 2
"""Operations of a transaction in one oplog entry, for sources whose transactions are chains."""
UNIQUE = {"v": 2, "key": {"u": 1}, "name": "u_1", "unique": True}
PLAIN = {"v": 2, "key": {"f": 1}, "name": "f_1"}

Act = tuple[str, str, dict[str, Any]]
"""`create`, `index`, `insert`, `update` by `_id`, or `delete`; the collection; the arguments."""


class Building(Protocol):
    def commit(self) -> int:
        """Lets the build end, and returns its result."""
        ...


class Life(Protocol):
    def create(self, coll: str, **options: Any) -> int: ...

    def insert(self, coll: str, *rows: dict[str, Any]) -> int: ...

    def update(self, coll: str, key: Any, sets: dict[str, Any], removed: list[str]) -> int: ...

    def replace(self, coll: str, row: dict[str, Any]) -> int: ...

    def delete(self, coll: str, key: Any) -> int: ...

    def create_index(self, coll: str, spec: dict[str, Any]) -> int: ...

    def begin_index(self, coll: str, spec: dict[str, Any]) -> Building: ...

    def drop_index(self, coll: str, index: str) -> int: ...

    def modify(self, coll: str, level: str) -> int: ...

    def rename(self, coll: str, to: str, *, replace: bool = False) -> int: ...

    def drop(self, coll: str) -> int: ...

    def drop_database(self) -> int: ...

    def convert_to_capped(self, coll: str, size: int) -> int: ...

    def note(self) -> int: ...

    def transaction(self, *acts: Act) -> int: ...

    def retryably(self, coll: str, *rows: dict[str, Any]) -> int:
        """Inserts rows in one session, one after the other."""
        ...

    def majority_held(self) -> AbstractContextManager[None]: ...

    def roll_back(self, act: Callable[[], int]) -> int:
        """The action reaches only one member, and an election rolls it back. A real source needs several members for this."""
        ...

    def forget(self) -> None:
        """Removes all earlier writes from the oplog, if the oplog is small."""
        ...

    def elect(self) -> None:
        """Elects another primary, if there are other members."""
        ...


class ModelLife:
    def __init__(self, server: SourceServer, database: str) -> None:
        self._server = server
        self._database = database

    def _do(self, *acts: Callable[[], object]) -> int:
        with self._server.batch(shared_time=False, retryable=False):
            return _done(*acts)

    def _name(self, coll: str) -> TableName:
        return TableName(self._database, coll)

    def create(self, coll: str, **options: Any) -> int:
        return self._do(partial(self._server.create, self._name(coll), options))

    def insert(self, coll: str, *rows: dict[str, Any]) -> int:
        name = self._name(coll)
        if name not in self._server.tables:
            self.create(coll)
        return self._do(*(partial(self._server.insert, name, row) for row in rows))

    def update(self, coll: str, key: Any, sets: dict[str, Any], removed: list[str]) -> int:
        return self._do(partial(self._server.update, self._name(coll), key, sets, removed))

    def replace(self, coll: str, row: dict[str, Any]) -> int:
        return self._do(partial(self._server.replace, self._name(coll), row))

    def delete(self, coll: str, key: Any) -> int:
        return self._do(partial(self._server.delete, self._name(coll), key))

    def create_index(self, coll: str, spec: dict[str, Any]) -> int:
        return self._do(partial(self._server.create_index, self._name(coll), spec))

    def begin_index(self, coll: str, spec: dict[str, Any]) -> Building:
        with self._server.batch(shared_time=False):
            build = self._server.create_index(self._name(coll), spec)
        assert build is not None
        return _ModelBuilding(self, build)

    def drop_index(self, coll: str, index: str) -> int:
        return self._do(partial(self._server.drop_index, self._name(coll), index))

    def modify(self, coll: str, level: str) -> int:
        return self._do(partial(self._server.modify, self._name(coll), level))

    def rename(self, coll: str, to: str, *, replace: bool = False) -> int:
        return self._do(partial(self._server.rename, self._name(coll), self._name(to), replace=replace))

    def drop(self, coll: str) -> int:
        return self._do(partial(self._server.drop, self._name(coll)))

    def drop_database(self) -> int:
        return self._do(partial(self._server.drop_database, self._database))

    def convert_to_capped(self, coll: str, size: int) -> int:
        return self._do(partial(self._server.convert_to_capped, self._name(coll), size))

    def note(self) -> int:
        self._server.note()
        return 0

    def transaction(self, *acts: Act) -> int:
        entries = -(-len(acts) // MOST_IN_ENTRY)
        with self._server.batch(shared_time=True, transaction=entries):
            return _done(*(partial(self._act, *act) for act in acts))

    def _act(self, kind: str, coll: str, given: dict[str, Any]) -> None:
        name, server = self._name(coll), self._server
        match kind:
            case "create":
                server.create(name, given)
            case "index":
                server.create_index(name, given)
            case "insert":
                server.insert(name, given)
            case "update":
                server.update(
                    name, given["_id"], {field: value for field, value in given.items() if field != "_id"}, []
                )
            case _:
                server.delete(name, given["_id"])

    def retryably(self, coll: str, *rows: dict[str, Any]) -> int:
        with self._server.batch(shared_time=False, retryable=True):
            return _done(*(partial(self._server.insert, self._name(coll), row) for row in rows))

    def majority_held(self) -> AbstractContextManager[None]:
        server = self._server
        return held(partial(server.hold_majority, _FOREVER), partial(server.hold_majority, 0.0))

    def forget(self) -> None:
        for _ in range(2):
            self._server.note()
        self._server.forget()

    def elect(self) -> None:
        self._server.elect(lasting=True)

    def roll_back(self, act: Callable[[], int]) -> int:
        with self.majority_held():
            done = act()
            while self._server.taken_back == 0:
                self._server.elect()
        return done


def _done(*acts: Callable[[], object]) -> int:
    try:
        for act in acts:
            act()
    except NotPossible as refused:
        return refused.code
    return 0


class _ModelBuilding:
    def __init__(self, life: ModelLife, build: Build) -> None:
        self._life = life
        self._build = build

    def commit(self) -> int:
        return self._life._do(partial(self._life._server.commit_index, self._build))


class RealLife:
    """Waits for one member only, so that writes return while the majority is held."""

    def __init__(self, client: Client, database: str, members: ReplicaSet | None = None) -> None:
        self._client = client
        self._database = database
        self._members = members

    def _do(self, command: dict[str, Any], database: str = "") -> int:
        body = {**command, "writeConcern": {"w": 1}}

        def act() -> None:
            reply = self._client[database or self._database].command(body)
            for error in reply.get("writeErrors", ()):
                raise OperationFailure(error["errmsg"], error["code"])

        return code_of(act)

    def create(self, coll: str, **options: Any) -> int:
        return self._do({"create": coll, **options})

    def insert(self, coll: str, *rows: dict[str, Any]) -> int:
        return max(self._do({"insert": coll, "documents": [row]}) for row in rows)

    def update(self, coll: str, key: Any, sets: dict[str, Any], removed: list[str]) -> int:
        change = {"$set": sets} | ({"$unset": dict.fromkeys(removed, "")} if removed else {})
        return self._do({"update": coll, "updates": [{"q": {"_id": key}, "u": change}]})

    def replace(self, coll: str, row: dict[str, Any]) -> int:
        return self._do({"update": coll, "updates": [{"q": {"_id": row["_id"]}, "u": row}]})

    def delete(self, coll: str, key: Any) -> int:
        return self._do({"delete": coll, "deletes": [{"q": {"_id": key}, "limit": 1}]})

    def create_index(self, coll: str, spec: dict[str, Any]) -> int:
        return self._do({"createIndexes": coll, "indexes": [spec]})

    def begin_index(self, coll: str, spec: dict[str, Any]) -> Building:
        self._fail_point(_INDEX_HOLD, "alwaysOn")
        building = _RealBuilding(self, coll, spec)
        InThisProcess().until(lambda: spec["name"] in self._being_built(coll))
        return building

    def _being_built(self, coll: str) -> list[str]:
        listed = self._client[self._database].command({"listIndexes": coll, "includeBuildUUIDs": True})
        return [index["spec"]["name"] for index in listed["cursor"]["firstBatch"] if "buildUUID" in index]

    def _fail_point(self, name: str, mode: str) -> None:
        self._client.admin.command({"configureFailPoint": name, "mode": mode})

    def drop_index(self, coll: str, index: str) -> int:
        return self._do({"dropIndexes": coll, "index": index})

    def modify(self, coll: str, level: str) -> int:
        return self._do({"collMod": coll, "validationLevel": level})

    def rename(self, coll: str, to: str, *, replace: bool = False) -> int:
        names = {"renameCollection": f"{self._database}.{coll}", "to": f"{self._database}.{to}"}
        return self._do({**names, "dropTarget": replace}, "admin")

    def drop(self, coll: str) -> int:
        return self._do({"drop": coll})

    def drop_database(self) -> int:
        return self._do({"dropDatabase": 1})

    def convert_to_capped(self, coll: str, size: int) -> int:
        return self._do({"convertToCapped": coll, "size": size})

    def note(self) -> int:
        return self._do({"appendOplogNote": 1, "data": {}}, "admin")

    def transaction(self, *acts: Act) -> int:
        return code_of(lambda: self._in_transaction(acts))

    def _in_transaction(self, acts: Iterable[Act]) -> None:
        database = self._client[self._database]
        with self._client.start_session() as session, session.start_transaction():
            for kind, coll, given in acts:
                database.command(_COMMANDS[kind](coll, given), session=session)

    def retryably(self, coll: str, *rows: dict[str, Any]) -> int:
        with self._client.start_session() as session:
            return code_of(lambda: self._client[self._database][coll].insert_many(list(rows), session=session))

    def majority_held(self) -> AbstractContextManager[None]:
        return held(
            partial(self._fail_point, _MAJORITY_HOLD, "alwaysOn"), partial(self._fail_point, _MAJORITY_HOLD, "off")
        )

    def forget(self) -> None:
        newest = self._client.admin.command("ping")["operationTime"]
        forget(self._client, newest)

    def roll_back(self, act: Callable[[], int]) -> int:
        assert self._members is not None
        done: list[int] = []
        self._members.roll_back(lambda: done.append(act()))
        return done[0]

    def elect(self) -> None:
        with suppress(AutoReconnect):
            self._client.admin.command({"replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 5})


_COMMANDS: Mapping[str, Callable[[str, dict[str, Any]], dict[str, Any]]] = {
    "create": lambda coll, given: {"create": coll, **given},
    "index": lambda coll, given: {"createIndexes": coll, "indexes": [given]},
    "insert": lambda coll, given: {"insert": coll, "documents": [given]},
    "update": lambda coll, given: {
        "update": coll,
        "updates": [
            {"q": {"_id": given["_id"]}, "u": {"$set": {name: given[name] for name in given if name != "_id"}}}
        ],
    },
    "delete": lambda coll, given: {"delete": coll, "deletes": [{"q": {"_id": given["_id"]}, "limit": 1}]},
}


class _RealBuilding:
    def __init__(self, life: RealLife, coll: str, spec: dict[str, Any]) -> None:
        self._life = life
        self._codes: list[int] = []
        self._thread = threading.Thread(target=lambda: self._codes.append(life.create_index(coll, spec)), daemon=True)
        self._thread.start()

    def commit(self) -> int:
        self._life._fail_point(_INDEX_HOLD, "off")
        self._thread.join(PATIENCE_SECONDS)
        [code] = self._codes
        return code
