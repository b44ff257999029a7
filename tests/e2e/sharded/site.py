"""`Site`: a sharded cluster, a target, and a changefeed between them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import yaml

from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from tests.component.node.server_process import Server
from tests.component.source.sharded.history import content, indexes
from tests.e2e.node.workload import until

PATIENCE = ("--session-ttl", "10", "--grace", "150")  # nodes share two cores with their Spark


class Site:
    """A cluster whose database `shop` one changefeed replicates. Each command goes to a node that is ready."""

    def __init__(self, cluster: ShardedCluster, target: Client, target_uri: str, nodes: Sequence[Server]) -> None:
        self.cluster, self._client = cluster, target
        self._nodes = nodes
        self._uris = cluster.config.uri, target_uri

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        node = next(each for each in self._nodes if each.get("/readyz")[0] == 200)
        answer = node.sluice(*arguments, input=input)
        state = node.sluice("changefeed", "query", "shop").stdout if answer.returncode else ""
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}{state}"
        return answer.stdout

    def end(self) -> None:
        self.sluice("changefeed", "remove", "shop", "--yes")
        with self.cluster.router() as router:
            ClusterDdl(router).drop_database("shop")
        self._client.drop_database("shop")

    def create(self, **options: Any) -> None:
        self.sluice("changefeed", "create", "-", input=self._configuration(**options))

    def verify(self) -> None:
        """As a user would."""
        assert "identical" in self.sluice("verify", "shop")

    def update(self, **options: Any) -> None:
        self.sluice("changefeed", "update", "shop", "-", "--yes", input=self._configuration(**options))

    def _configuration(self, **options: Any) -> str:
        source, sink = self._uris
        said = {"id": "shop", "source": source, "sink": sink, "filter": {"tables": ["shop.*"]}, "capture": "oplog"}
        return yaml.safe_dump(said | options)

    def rows(self) -> dict[str, dict[Any, Any]]:
        found = self._client["shop"]
        names = [name for name in found.list_collection_names() if not name.startswith("system.")]
        return {f"shop.{name}": {row["_id"]: row for row in found[name].find()} for name in names}

    def indexes(self) -> dict[str, set[str]]:
        found = self._client["shop"]
        names = [name for name in found.list_collection_names() if not name.startswith("system.")]
        return {f"shop.{name}": set(found[name].index_information()) - {"_id_"} for name in names}

    def until_equal(self) -> None:
        """Nobody writes at the source."""

        def equal() -> bool:
            state = json.loads(self.sluice("changefeed", "query", "shop", "-o", "json"))
            assert state["state"] in ("normal", "warning"), state
            return self.rows() == content(self.cluster) and self.indexes() == indexes(self.cluster)

        until(equal, "the target has the rows that the shards own, and the indexes of all owners")
