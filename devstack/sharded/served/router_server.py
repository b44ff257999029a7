"""`RouterServer`: a stand-in for a `mongos` 6.0 on real shards and real config servers, for drivers.

    with ShardedCluster(...) as cluster, RouterServer(cluster) as router:
        MongoClient(router.uri)

It is no `mongos`: it serves the commands that Sluice sends to a target, by the documented rules of a `mongos` (`routed_rows`), attaches
the versions that shards check, and sends what changes schema and chunks as the internal commands that a `mongos` sends for it. Each client
connection has routes of its own, which become stale as those of several routers do. A cursor is read to its end when it is opened.
"""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Self

from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

from devstack.ports import free_port
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.router import ClusterRouter
from devstack.sharded.served import messages
from devstack.sharded.served.routed_ddl import RoutedDdl
from devstack.sharded.served.routed_rows import RefusedByRouter, RoutedRows, RoutedTransaction
from devstack.sharded.wire import CommandFailed

_WIRE_6_0 = 17
_COMMAND_NOT_FOUND, _CURSOR_NOT_FOUND, _NOT_SUPPORTED = 59, 43, 115
_FIRST_BATCH = 101
_OF_THE_DRIVER = ("$db", "$clusterTime", "$readPreference", "lsid", "txnNumber", "autocommit", "startTransaction")
_ROWS = frozenset({"insert", "update", "delete"})
_READS = frozenset({"find", "aggregate", "listCollections", "listIndexes"})

Reply = Mapping[str, Any]


class _RouterState:
    """What all connections know."""

    def __init__(self) -> None:
        self.cursors: dict[int, tuple[str, list[Any]]] = {}
        self.transactions: dict[tuple[bytes, int], RoutedTransaction] = {}
        self.numbers = count(1)


class RouterServer:
    def __init__(self, cluster: ShardedCluster) -> None:
        self.port = free_port()
        self._cluster, self._shared = cluster, _RouterState()
        self._server: socketserver.ThreadingTCPServer | None = None

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/"

    def start(self) -> Self:
        cluster, shared = self._cluster, self._shared

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with cluster.router() as router, suppress(ConnectionError):
                    served = _Served(router, shared)
                    while (asked := messages.read(self.request)) is not None:
                        reply = served.answer(asked.command)
                        if asked.answered:
                            self.request.sendall(messages.written(asked, reply))

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads, allow_reuse_address, request_queue_size = True, True, 128
            block_on_close = False

        self._server = Server(("127.0.0.1", self.port), Connection)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True, name="router").start()
        return self

    def stop(self) -> None:
        """May be called again."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()


class _Served:
    """One connection."""

    def __init__(self, router: ClusterRouter, shared: _RouterState) -> None:
        self._router, self._shared = router, shared
        self._rows, self._ddl = RoutedRows(router), RoutedDdl(router)

    def answer(self, command: dict[str, Any]) -> Reply:
        try:
            return self._answer(command)
        except RefusedByRouter as refused:
            return refused.reply
        except CommandFailed as failed:
            said = {name: value for name, value in failed.reply.items() if name not in ("ok", "writeErrors", "n")}
            return {"ok": 0.0, "code": failed.code, "errmsg": str(failed), **said}

    def _answer(self, asked: dict[str, Any]) -> Reply:  # noqa: C901, PLR0911 - one case for each kind of command
        db = str(asked.get("$db", "admin"))
        command = {name: value for name, value in asked.items() if name not in _OF_THE_DRIVER}
        verb, transaction = next(iter(command)), self._transaction(asked)
        match verb:
            case "hello" | "isMaster" | "ismaster":
                return _hello()
            case "ping" | "endSessions" | "killCursors":
                return {"ok": 1.0}
            case "commitTransaction" | "abortTransaction":
                return self._end(verb, command, transaction)
            case "getMore":
                return self._more(int(command["getMore"]), int(command.get("batchSize") or 0))
            case "count":
                return self._rows.count(db, command)
        if verb in _ROWS:
            if verb != "delete":
                self._ddl.make_database(db)
            elif not self._ddl.knows(db):
                return {"n": 0, "ok": 1.0}
            return self._rows.write(db, command, transaction)
        if verb in _READS:
            return self._cursor(db, command, self._found(db, verb, command, transaction))
        if verb not in self._ddl.COMMANDS:
            raise RefusedByRouter(_COMMAND_NOT_FOUND, f"no such command: '{verb}'", codeName="CommandNotFound")
        act: Callable[[str, dict[str, Any]], Reply] = getattr(self._ddl, verb)
        return act(db, command)

    def _found(
        self, db: str, verb: str, command: dict[str, Any], transaction: RoutedTransaction | None
    ) -> list[dict[str, Any]]:
        if verb == "find" and db in ("config", "admin"):
            filter, more = (
                command.get("filter") or {},
                {name: command[name] for name in ("sort", "projection", "limit") if name in command},
            )
            return self._router.known_by_config(command["find"], filter, **more) if db == "config" else []
        if verb == "aggregate" and db == "config":
            raise RefusedByRouter(_NOT_SUPPORTED, "this stand-in for a router only finds in the config servers")
        if not self._ddl.knows(db):
            return []
        if verb == "find":
            return self._rows.find(db, command, transaction)
        if verb == "aggregate":
            return self._rows.aggregate(db, command, transaction)
        return self._ddl.listed(db, command)

    def _cursor(self, db: str, command: Mapping[str, Any], found: list[Any]) -> Reply:
        verb = next(iter(command))
        size = command.get("batchSize", command.get("cursor", {}).get("batchSize", _FIRST_BATCH))
        most = len(found) if command.get("singleBatch") or not size else int(size)
        ns = f"{db}.{command[verb] if isinstance(command[verb], str) else '$cmd.' + verb}"
        id = 0
        if len(found) > most:
            id = next(self._shared.numbers)
            self._shared.cursors[id] = ns, found[most:]
        return {"cursor": {"id": Int64(id), "ns": ns, "firstBatch": found[:most]}, "ok": 1.0}

    def _more(self, id: int, size: int) -> Reply:
        if id not in self._shared.cursors:
            raise RefusedByRouter(_CURSOR_NOT_FOUND, f"cursor id {id} not found")
        ns, left = self._shared.cursors.pop(id)
        most = size or 1_000
        if len(left) > most:
            self._shared.cursors[id] = ns, left[most:]
        return {
            "cursor": {"id": Int64(id if len(left) > most else 0), "ns": ns, "nextBatch": left[:most]},
            "ok": 1.0,
        }

    def _transaction(self, asked: Mapping[str, Any]) -> RoutedTransaction | None:
        if "autocommit" not in asked:
            return None
        number = {name: asked[name] for name in ("lsid", "txnNumber", "autocommit")}
        key = bytes(asked["lsid"]["id"]), int(asked["txnNumber"])
        if asked.get("startTransaction"):
            begins = {name: asked[name] for name in ("readConcern",) if name in asked}
            self._shared.transactions[key] = RoutedTransaction(number, begins)
        return self._shared.transactions[key]

    def _end(self, verb: str, command: dict[str, Any], transaction: RoutedTransaction | None) -> Reply:
        assert transaction is not None
        own = {**command, **transaction.number}
        if verb == "abortTransaction":
            for shard in transaction.shards:
                self._router.wire(shard).ask("admin", own)
            return {"ok": 1.0}
        first, *others = transaction.shards
        if others:
            participants = [{"shardId": shard} for shard in transaction.shards]
            own = {"coordinateCommitTransaction": 1, "participants": participants} | {
                name: value for name, value in own.items() if name != verb
            }
        return self._router.wire(first).ask("admin", own)


def _hello() -> Reply:
    return {
        "ismaster": True,
        "isWritablePrimary": True,
        "msg": "isdbgrid",
        "helloOk": True,
        "maxBsonObjectSize": 16 << 20,
        "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000,
        "localTime": DatetimeMS(int(time.time() * 1000)),
        "logicalSessionTimeoutMinutes": 30,
        "minWireVersion": 0,
        "maxWireVersion": _WIRE_6_0,
        "ok": 1.0,
    }
