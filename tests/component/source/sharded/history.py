"""`History`: random rows, transactions across shards, DDL and moves of data on a real cluster, by several threads."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from changefeed.cluster_time import ClusterTime
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter, CrossShardTransaction
from devstack.sharded.wire import CommandFailed

DB = "shop"
BANK, PLAIN = f"{DB}.bank", f"{DB}.plain"
TABLES = [f"{DB}.t{number}" for number in range(3)]
ACCOUNTS, BALANCE = 20, 100
_KEYS = 200
_PACE_SECONDS = 0.002
"""Between two writes of a writer: a migration never catches up with writers that do nothing else."""
_ids = count(1)


class History:
    """`steps` DDLs and moves, while writers write. A command that fails is a part of the history too."""

    def __init__(self, cluster: ShardedCluster, seed: int, steps: int) -> None:
        self._cluster = cluster
        self._seed, self._steps = seed, steps
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
            except CommandFailed as error:
                self.failed.append(str(error))

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
        keys = {number: {"k": number * _KEYS // ACCOUNTS, "b": number} for number in range(ACCOUNTS)}
        while not self._over.wait(_PACE_SECONDS):
            one, other = chance.sample(range(ACCOUNTS), 2)
            amount, moves = chance.randrange(1, 50), chance.random() < 0.3
            changed = {"k": chance.randrange(_KEYS), "b": chance.randrange(_KEYS)}

            def transfer(
                transaction: CrossShardTransaction,
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
                if self._in_transaction(router, BANK, transfer) and moves:
                    keys[one] = changed
            except CommandFailed as error:
                self.failed.append(str(error))

    def _in_transaction(self, router: ClusterRouter, ns: str, work: Callable[[CrossShardTransaction], bool]) -> bool:
        transaction = router.transaction()
        router.route(ns)
        try:
            if work(transaction):
                transaction.commit()
                self.transactions += 1
                return True
        except CommandFailed:
            list(transaction.abort())
            router.refresh(ns)
            raise
        list(transaction.abort())
        return False

    def _change(self, router: ClusterRouter, chance: random.Random) -> None:
        ddl = ClusterDdl(router)
        kinds = [self._move] * 5 + [self._reshard, self._move_primary, self._rename, self._recreate, self._index]
        for _ in range(self._steps):
            change = chance.choice(kinds)
            try:
                change(router, ddl, chance)
                self.done.append(change.__name__)
            except (CommandFailed, LookupError) as error:
                self.failed.append(f"{change.__name__}: {error}")
            except TimeoutError:
                self.failed.append(f"{change.__name__} did not end while there were writers")
                return
            router.refresh()

    def _move(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> None:
        ns = chance.choice([BANK, BANK, *TABLES])
        router.refresh(ns)
        collection = router.route(ns).collection
        if collection is None:
            self._create(ddl, ns)
            return
        [field] = collection["key"]
        point = {field: chance.randrange(_KEYS)}
        to = chance.choice([shard for shard in self._cluster.shards if shard != router.route(ns).owner(point)])
        ddl.move(ns, point, to)

    def _reshard(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> None:
        ns = chance.choice([BANK, *TABLES])
        router.refresh(ns)
        collection = router.route(ns).collection
        if collection is not None:
            ddl.reshard(ns, {"b": 1} if "k" in collection["key"] else {"k": 1}, numInitialChunks=3)

    def _move_primary(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> None:
        [database] = router.known_by_config("databases", {"_id": DB})
        ddl.move_primary(DB, chance.choice([shard for shard in self._cluster.shards if shard != database["primary"]]))

    def _rename(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> None:
        one, other = chance.sample(TABLES, 2)
        ddl.rename(one, other, drop_target=True)

    def _recreate(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> None:
        ns = chance.choice([*TABLES, PLAIN])
        ddl.drop(ns)
        if ns != PLAIN and chance.random() < 0.8:
            self._create(ddl, ns)

    def _index(self, router: ClusterRouter, ddl: ClusterDdl, chance: random.Random) -> None:
        ns = chance.choice(TABLES)
        router.refresh(ns)
        if chance.random() < 0.6:
            ddl.create_index(ns, {"v": 1, "b": 1})
        else:
            ddl.drop_index(ns, "v_1_b_1")

    def _create(self, ddl: ClusterDdl, ns: str) -> None:
        ddl.shard(ns, {"k": 1})
        ddl.split(ns, {"k": 70}, {"k": 140})
        shards = sorted(self._cluster.shards)
        for point, shard in zip((70, 140), shards[1:], strict=False):
            ddl.move(ns, {"k": point}, shard)
        ddl.refresh(ns)


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
