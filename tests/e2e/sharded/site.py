"""`Site`: a sharded cluster, a target, and a changefeed between them."""

from __future__ import annotations

import json
import reprlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from tests.component.node.server_process import Server
from tests.component.source.sharded.history import ACCOUNTS, BALANCE, BANK, content, indexes
from tests.until import until

PATIENCE = ("--session-ttl", "10", "--grace", "150")  # nodes share two cores with their Spark

_QUERY_PLAN_KILLED = 175
_LOOKS_EVERY_SECONDS = 4.0
"""A command costs half a second of CPU."""


class Site:
    """A cluster whose database `shop` one changefeed replicates. Each command goes to a node that is ready.

    `options`: of the changefeed, whenever it is written.
    """

    feed = "shop"
    """The changefeed's id."""

    def __init__(
        self, cluster: ShardedCluster, target: Client, target_uri: str, nodes: Sequence[Server], **options: Any
    ) -> None:
        self.cluster, self._client = cluster, target
        self._nodes = nodes
        self._options = options
        self._uris = cluster.config.uri, target_uri

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        node = next(each for each in self._nodes if each.get("/readyz")[0] == 200)
        answer = node.sluice(*arguments, input=input)
        state = node.sluice("changefeed", "query", self.feed).stdout if answer.returncode else ""
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}{state}"
        return answer.stdout

    def end(self) -> None:
        """Of a test that failed, too: its changefeed and its database may be there or not."""
        if self.feed in [each["id"] for each in json.loads(self.sluice("changefeed", "list", "-o", "json"))]:
            self.sluice("changefeed", "remove", self.feed, "--yes")
        with self.cluster.router() as router:
            if router.known_by_config("databases", {"_id": "shop"}):
                ClusterDdl(router).drop_database("shop")
        self._client.drop_database("shop")

    def create(self, **options: Any) -> None:
        self.sluice("changefeed", "create", "-", input=self._configuration(**options))

    def verify(self) -> None:
        """As a user would."""
        assert "identical" in self.sluice("verify", self.feed)

    def cut(self) -> None:
        """While writers go on, the target has one time of the cluster."""
        self.sluice("changefeed", "finalize", self.feed, "--yes")

        def finished() -> bool:
            return bool(json.loads(self.sluice("changefeed", "query", self.feed, "-o", "json"))["state"] == "finished")

        until(finished, "the changefeed has reached its target")
        self.add_up()
        self.update()
        self.sluice("changefeed", "resume", self.feed)

    def add_up(self) -> None:
        """At one time of the cluster, the bank has its whole sum."""
        db, _, coll = BANK.partition(".")
        balances = [row["balance"] for row in self._client[db][coll].find()]
        assert (len(balances), sum(balances)) == (ACCOUNTS, ACCOUNTS * BALANCE)

    def update(self, **options: Any) -> None:
        self.sluice("changefeed", "update", self.feed, "-", "--yes", input=self._configuration(**options))

    def _configuration(self, **options: Any) -> str:
        source, sink = self._uris
        said = {"id": self.feed, "source": source, "sink": sink, "filter": {"tables": ["shop.*"]}, "capture": "oplog"}
        return yaml.safe_dump(said | self._options | options)

    def rows(self) -> dict[str, dict[Any, Any]]:
        found = self._client["shop"]
        names = [name for name in found.list_collection_names() if not name.startswith("system.")]
        return {f"shop.{name}": {row["_id"]: row for row in found[name].find()} for name in names}

    def indexes(self) -> dict[str, set[str]]:
        found = self._client["shop"]
        names = [name for name in found.list_collection_names() if not name.startswith("system.")]
        return {f"shop.{name}": set(found[name].index_information()) - {"_id_"} for name in names}

    def running(self) -> None:
        state = json.loads(self.sluice("changefeed", "query", self.feed, "-o", "json"))
        assert state["state"] in ("normal", "warning"), state

    def refused(self) -> list[dict[str, Any]]:
        """The DDLs that wait for a user."""
        ddls: list[dict[str, Any]] = json.loads(self.sluice("ddl", "list", self.feed, "-o", "json"))
        return [ddl for ddl in ddls if ddl.get("refused")]

    def until_equal(self) -> None:
        """Nobody writes at the source."""
        told, looked_at = "", 0.0

        def equal() -> bool:
            nonlocal told, looked_at
            if time.monotonic() - looked_at > _LOOKS_EVERY_SECONDS:
                self.running()
                looked_at = time.monotonic()
            try:
                rows, owned = self.rows(), content(self.cluster)
            except OperationFailure as error:
                if error.code != _QUERY_PLAN_KILLED:  # a table is dropped or renamed while it is read
                    raise
                told = str(error)
                return False
            told = difference("rows", rows, owned) or difference("indexes", self.indexes(), indexes(self.cluster))
            return not told

        until(equal, "the target has the rows that the shards own, and the indexes of all owners", lambda: told)


def points_of(target: Client, seen: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The sync points that are not among those seen, the oldest first."""
    return list(target["sluice"]["sync_points"].find({"feed": "shop", "done": True, "_id": {"$nin": seen}}).sort("_id"))


def owned_at(router: ClusterRouter, ns: str, at: Timestamp) -> list[dict[str, Any]]:
    """By `_id`. All shards are asked: the owners of then may be others than those of now."""
    db, _, coll = ns.partition(".")
    concern = {"level": "snapshot", "atClusterTime": at}

    def once() -> list[dict[str, Any]]:
        route = router.route(ns)
        shards = [each["_id"] for each in router.known_by_config("shards", {})] if route.collection else route.owners
        found = (
            router.wire(each).find(db, coll, readConcern=concern, **router.versions(ns, each))
            for each in sorted(shards)
        )
        return [row for rows in found for row in rows]

    return sorted(router.patient(ns, once), key=lambda row: int(row["_id"]))


def replicated_at(target: Client, ns: str, at: Timestamp) -> list[dict[str, Any]]:
    db, _, coll = ns.partition(".")
    concern = {"level": "snapshot", "atClusterTime": at}
    find = {"find": coll, "sort": {"_id": 1}, "readConcern": concern, "batchSize": 10_000}
    return list(target[db].command(find)["cursor"]["firstBatch"])


def difference(what: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Per table what only the target has, and what only the source has. Empty if they are equal."""
    lines = []
    for table in sorted({*found, *expected}):
        here, there = found.get(table), expected.get(table)
        if here is None or there is None:
            lines.append(f"{table}: only the {'source' if here is None else 'target'} has it")
        elif here != there:
            lines.append(f"{table}: {_only(here, there)} at the target alone, {_only(there, here)} at the source alone")
    return f"{what}: {'; '.join(lines)}" if lines else ""


def _only(of: Any, other: Any) -> str:
    """What `of` has and `other` has not, shortened."""
    if isinstance(of, Mapping):
        return reprlib.repr({key: value for key, value in of.items() if other.get(key) != value})
    return reprlib.repr(of - other)
