"""`History`: random rows, transactions across shards, DDL and moves of data on a real cluster, by several threads."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from changefeed.cluster_time import ClusterTime
from devstack.process import ServerFailed, wait_until
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter, CrossShardTransaction
from devstack.sharded.wire import MAJORITY, CommandFailed

DB = "shop"
BANK, PLAIN = f"{DB}.bank", f"{DB}.plain"
HASHED = f"{DB}.h"
TABLES = [*(f"{DB}.t{number}" for number in range(3)), HASHED]
ACCOUNTS, BALANCE = 20, 100
_KEYS = 200
_PACE_SECONDS = 0.01
"""Between two writes of a writer: a migration never catches up with writers that do nothing else."""
_PAUSE_SECONDS = 0.3
"""After an accident of a server."""
_BALANCED_WITHIN_SECONDS = 8.0
_NO_PRIMARY = frozenset({10107, 13435, 13436, 11600, 11602, 91, 189, 133})
_MOVES_SINCE = (6, 0)
"""Before, a source may not move chunks (`OrphanGuard`), and a movePrimary ends a server of 5.0.4."""
_NO_INDEX_OF_KEY = 72
_JUMBO_ROWS, _JUMBO_BYTES = 4, 400_000
_ACCIDENTS = (CommandFailed, OSError, ServerFailed, LookupError)
_ids = count(1)


class History:
    """`steps` DDLs and moves, while writers write. A command that fails is a part of the history too, and so is a server that dies."""

    def __init__(self, cluster: ShardedCluster, seed: int, steps: int) -> None:
        self._cluster = cluster
        self._seed, self._steps = seed, steps
        self._moves = cluster.version >= _MOVES_SINCE
        self._over = threading.Event()
        self.done: list[str] = []
        self.failed: list[str] = []
        self.errors: list[BaseException] = []
        self.transactions = 0

    def prepare(self) -> None:
        with self._cluster.router() as router:
            ddl = ClusterDdl(router)
            ddl.create_database(DB, primary="sa")
            for ns in [BANK, *TABLES]:
                self._create(ddl, ns)

            def open_accounts(transaction: CrossShardTransaction) -> bool:
                for number in range(ACCOUNTS):
                    key = {"_id": number, "k": number * _KEYS // ACCOUNTS, "b": number}
                    transaction.insert(BANK, {**key, "balance": BALANCE})
                return True

            for last in (False, False, False, True):
                try:
                    self._in_transaction(router, BANK, open_accounts)
                    break
                except CommandFailed:
                    if last:
                        raise

    def run(self) -> None:
        writers = [self._write_rows, self._write_rows, self._transfer]
        threads = [
            threading.Thread(target=self._guarded, args=(write, random.Random(self._seed * 100 + number)))
            for number, write in enumerate(writers)
        ]
        for thread in threads:
            thread.start()
        try:
            self._guarded(self._change, random.Random(self._seed))
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def end(self) -> None:
        """After what it is at."""
        self._over.set()

    def last_write(self) -> None:
        """A row after all others, which the source shows only when everything before it is resolved."""
        with self._cluster.router() as router:
            router.insert(PLAIN, {"_id": "last"})

    def _guarded(self, work: Callable[[ClusterRouter, random.Random], None], chance: random.Random) -> None:
        try:
            with self._cluster.router() as router:
                work(router, chance)
        except BaseException as error:
            self.errors.append(error)
            raise

    def _write_rows(self, router: ClusterRouter, chance: random.Random) -> None:
        mine: list[tuple[str, dict[str, Any]]] = []
        while not self._over.wait(_PACE_SECONDS):
            try:
                if not mine or chance.random() < 0.4:
                    ns = chance.choice([*TABLES, PLAIN])
                    row = {"_id": next(_ids) + 1000, "k": chance.randrange(_KEYS), "b": chance.randrange(_KEYS), "v": 0}
                    router.insert(ns, row)
                    mine.append((ns, row))
                    continue
                ns, row = chance.choice(mine)
                key = {name: row[name] for name in ("_id", "k", "b")}
                act = chance.random()
                if act < 0.5:
                    router.update(ns, key, {"$set": {"v": chance.random()}})
                elif act < 0.75:
                    router.delete(ns, key)
                    mine.remove((ns, row))
                else:
                    self._change_key(router, ns, row, chance)
            except _ACCIDENTS as error:
                self._recover(router, error)

    def _change_key(self, router: ClusterRouter, ns: str, row: dict[str, Any], chance: random.Random) -> None:
        changed = {**row, "k": chance.randrange(_KEYS), "b": chance.randrange(_KEYS)}

        def move(transaction: CrossShardTransaction) -> bool:
            if not transaction.delete(ns, {name: row[name] for name in ("_id", "k", "b")}):
                return False
            transaction.insert(ns, changed)
            return True

        if self._in_transaction(router, ns, move):
            row.update(changed)

    def _transfer(self, router: ClusterRouter, chance: random.Random) -> None:
        keys = self._accounts(router)
        while not self._over.wait(_PACE_SECONDS):
            one, other = chance.sample(range(ACCOUNTS), 2)
            amount, moves = chance.randrange(1, 50), chance.random() < 0.3
            changed = {"k": chance.randrange(_KEYS), "b": chance.randrange(_KEYS)}

            def transfer(
                transaction: CrossShardTransaction,
                keys: dict[int, dict[str, int]] = keys,
                one: int = one,
                other: int = other,
                amount: int = amount,
                changed: dict[str, int] | None = changed if moves else None,
            ) -> bool:
                if changed is None:
                    given = transaction.update(BANK, {"_id": one, **keys[one]}, {"$inc": {"balance": -amount}})
                else:
                    account = transaction.take_out(BANK, {"_id": one, **keys[one]})
                    given = account is not None
                    if account is not None:
                        transaction.insert(BANK, {**account, **changed, "balance": account["balance"] - amount})
                return bool(given) and bool(
                    transaction.update(BANK, {"_id": other, **keys[other]}, {"$inc": {"balance": amount}})
                )

            try:
                if self._in_transaction(router, BANK, transfer):
                    keys.update({one: changed} if moves else {})
            except _ACCIDENTS as error:
                self._recover(router, error)
                self._look_again(router, keys)

    def _look_again(self, router: ClusterRouter, keys: dict[int, dict[str, int]]) -> None:
        try:
            keys.update(self._accounts(router))
        except _ACCIDENTS as error:
            self._recover(router, error)

    @staticmethod
    def _accounts(router: ClusterRouter) -> dict[int, dict[str, int]]:
        """Where they are: after an accident nobody knows whether a transaction was committed."""
        return {row["_id"]: {"k": row["k"], "b": row["b"]} for row in router.rows(BANK)}

    def _recover(self, router: ClusterRouter, error: Exception) -> None:
        self.failed.append(f"{type(error).__name__} {error}")
        if not isinstance(error, CommandFailed) or error.code in _NO_PRIMARY:
            router.reconnect()
            self._over.wait(_PAUSE_SECONDS)

    def _in_transaction(self, router: ClusterRouter, ns: str, work: Callable[[CrossShardTransaction], bool]) -> bool:
        transaction = router.transaction()
        router.route(ns)
        try:
            if work(transaction):
                transaction.commit()
                self.transactions += 1
                return True
        except (CommandFailed, LookupError):
            list(transaction.abort())
            router.refresh(ns)
            raise
        except (OSError, ServerFailed):
            router.reconnect()
            with suppress(*_ACCIDENTS):
                list(transaction.abort())
            raise
        list(transaction.abort())
        return False

    def _change(self, router: ClusterRouter, chance: random.Random) -> None:
        ddl = ClusterDdl(router)
        kinds = [self._reshard, self._rename, self._recreate, self._index, self._refine]
        if self._moves:
            kinds = [self._move] * 5 + kinds + [self._move_primary, self._balance, self._jumbo]
        for _ in range(self._steps):
            if self._over.is_set():
                return
            change = chance.choice(kinds)
            try:
                if change(router, ddl, chance):
                    self.done.append(change.__name__.removeprefix("_"))
            except TimeoutError:
                self.failed.append(f"{change.__name__} did not end while there were writers")
                router.reconnect()
            except _ACCIDENTS as error:
                self._recover(router, error)
                self.failed[-1] = f"{change.__name__}: {self.failed[-1]}"
            router.refresh()

    def _move(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> bool:
        ns = chance.choice([BANK, BANK, *TABLES])
        router.refresh(ns)
        route = router.route(ns)
        if route.collection is None:
            self._create(ddl, ns)
            return False
        chunk = chance.choice(route.chunks)
        ddl.move_chunk(ns, chunk, self._other(chance, chunk["shard"]))
        return True

    def _jumbo(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> bool:
        """A chunk that is larger than a chunk may be, and has one key only."""
        ns = chance.choice(TABLES[:-1])
        router.refresh(ns)
        route = router.route(ns)
        if route.collection is None or list(route.collection["key"]) != ["k"]:
            return False
        small = {"q": {"_id": "chunksize"}, "u": {"_id": "chunksize", "value": 1}, "upsert": True}
        router.wire("cfg").command("config", {"update": "settings", "updates": [small], "writeConcern": MAJORITY})
        point = chance.randrange(_KEYS)
        for _ in range(_JUMBO_ROWS):
            router.insert(ns, {"_id": next(_ids) + 1000, "k": point, "b": point, "v": "x" * _JUMBO_BYTES})
        for bound in (point, point + 1):
            if all(chunk["min"] != {"k": bound} for chunk in router.route(ns).chunks):
                ddl.split(ns, {"k": bound})
        chunk = router.route(ns).chunk({"k": point})
        ddl.move_chunk(ns, chunk, self._other(chance, str(chunk["shard"])), jumbo=True)
        return True

    def _balance(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> bool:
        """The balancer brings a part of a table to a zone, while it may move anything else, too."""
        ns = chance.choice([BANK, *TABLES[:-1]])
        router.refresh(ns)
        route = router.route(ns)
        if route.collection is None or len(route.collection["key"]) > 1:
            return False
        [field] = route.collection["key"]
        lower = chance.randrange(_KEYS // 2)
        bounds = {field: lower}, {field: lower + chance.randrange(10, _KEYS // 2)}
        shard = self._other(chance, route.owner(bounds[0]))
        ddl.zone(ns, *bounds, shard)
        try:
            self._cluster.balanced(True)

            def there() -> bool:
                router.refresh(ns)
                return router.route(ns).owner(bounds[0]) == shard

            return wait_until(there, _BALANCED_WITHIN_SECONDS)
        finally:
            self._cluster.balanced(False)
            ddl.unzone(ns, *bounds)

    def _refine(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> bool:
        ns = chance.choice([BANK, *TABLES])
        router.refresh(ns)
        collection = router.route(ns).collection
        if collection is None or len(collection["key"]) > 1:
            return False
        [(field, way)] = collection["key"].items()
        key = {field: way, ("b" if field == "k" else "k"): 1}
        ddl.create_index(ns, key)
        ddl.refine(ns, key)
        return True

    def _reshard(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> bool:
        ns = chance.choice([BANK, *TABLES])
        router.refresh(ns)
        collection = router.route(ns).collection
        if collection is None:
            return False
        keys: list[dict[str, Any]] = [key for key in ({"k": 1}, {"b": 1}, {"k": "hashed"}) if key != collection["key"]]
        ddl.reshard(ns, chance.choice(keys), numInitialChunks=3)
        return True

    def _move_primary(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> bool:
        [database] = router.known_by_config("databases", {"_id": DB})
        ddl.move_primary(DB, self._other(chance, database["primary"]))
        return True

    def _other(self, chance: random.Random, than: str) -> str:
        return chance.choice([shard for shard in sorted(self._cluster.shards) if shard != than])

    def _rename(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> bool:
        one, other = chance.sample(TABLES, 2)
        ddl.rename(one, other, drop_target=True)
        return True

    def _recreate(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> bool:
        ns = chance.choice([*TABLES, PLAIN])
        ddl.drop(ns)
        if ns != PLAIN and chance.random() < 0.8:
            self._create(ddl, ns)
        return True

    def _index(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> bool:
        ns = chance.choice(TABLES)
        router.refresh(ns)
        if chance.random() < 0.6:
            ddl.create_index(ns, {"v": 1, "b": 1})
        else:
            ddl.drop_index(ns, "v_1_b_1")
        return True

    def _create(self, ddl: ClusterDdl, ns: str) -> None:
        if ns == HASHED:
            ddl.shard(ns, {"k": "hashed"}, numInitialChunks=4)
            ddl.refresh(ns)
            return
        shards = sorted(self._cluster.shards)
        if not self._moves:
            self._create_in_place(ddl, ns, shards)
            return
        ddl.shard(ns, {"k": 1})
        ddl.split(ns, {"k": 70}, {"k": 140})
        for point, shard in zip((70, 140), shards[1:], strict=False):
            ddl.move(ns, {"k": point}, shard)
        ddl.refresh(ns)

    def _create_in_place(self, ddl: ClusterDdl, ns: str, shards: list[str]) -> None:
        """The chunks are created where they stay. A writer may have created the table meanwhile, not sharded."""
        for last in (False, False, False, True):
            try:
                ddl.shard_in_zones(ns, "k", (70, 140), shards)
            except CommandFailed as error:
                if last or error.code != _NO_INDEX_OF_KEY:
                    raise
                ddl.drop(ns)
            else:
                return


def content(cluster: ShardedCluster) -> dict[str, dict[Any, dict[str, Any]]]:
    """Each table's owned rows, by `_id`."""
    with cluster.router() as router:
        [database] = router.known_by_config("databases", {"_id": DB})
        names = {entry["_id"] for entry in router.known_by_config("collections", {"_id": {"$regex": f"^{DB}\\."}})}
        found = router.wire(database["primary"]).command(DB, {"listCollections": 1})["cursor"]["firstBatch"]
        names |= {f"{DB}.{each['name']}" for each in found}
        rows = {ns: router.rows(ns) for ns in names if not ns.startswith(f"{DB}.system.")}
    for ns, all_of in rows.items():
        assert len({row["_id"] for row in all_of}) == len(all_of), f"{ns} has an _id twice"
    return {ns: {row["_id"]: row for row in all_of} for ns, all_of in rows.items()}


def indexes(cluster: ShardedCluster) -> dict[str, set[str]]:
    """The indexes, except that on `_id`, that all owners of each table have."""
    with cluster.router() as router:

        def listed(ns: str) -> set[str]:
            db, _, coll = ns.partition(".")
            replies = router.to_owners(
                ns, lambda shard, _: router.wire(shard).command(db, {"listIndexes": coll})["cursor"]["firstBatch"]
            )
            return set.intersection(*({spec["name"] for spec in reply} for reply in replies)) - {"_id_"}

        return {ns: listed(ns) for ns in content(cluster)}


def end_of(cluster: ShardedCluster) -> ClusterTime:
    """After everything that was acknowledged."""
    newest = []
    for each in cluster.shards.values():
        with each.client() as client:
            newest.append(client["local"]["oplog.rs"].find_one({"ns": PLAIN}, sort=[("$natural", -1)]))
    return max(ClusterTime.from_bson(entry["ts"]) for entry in newest if entry is not None)
