"""Each query of the dashboard returns data in a real Prometheus that scrapes a real node."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from devstack.mongodb.server import Client
from devstack.ports import free_port
from devstack.sharded.cluster import ShardedCluster
from tests.component.node.server_process import Server
from tests.deployment.go_build import built
from tests.deployment.helm import Chart, Recording
from tests.deployment.values import GOOD
from tests.until import until

pytestmark = pytest.mark.kubernetes

_DOCUMENTS = {"small": 100, "middle": 2_000, "rows": 6_000}
"""Of tables that are copied at once: while the largest is, others have ended, so that there is a rate, and one table is behind the others."""


class Prometheus:
    """Scrapes one node each second, with the labels that the chart's monitors give."""

    def __init__(self, directory: Path, node: str) -> None:
        labels = {"namespace": "data", "service": "trial-sluice-metrics", "pod": "n1"}
        scraped = {"job_name": "sluice", "static_configs": [{"targets": [node], "labels": labels}]}
        file = directory / "prometheus.yaml"
        file.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [scraped]}))
        self.address = f"127.0.0.1:{free_port()}"
        self._began_at = time.time()
        module = "github.com/prometheus/prometheus"
        self._command = [
            *(str(built(module, f"{module}/cmd/prometheus", "v0.300.1")), f"--config.file={file}"),
            *(f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={self.address}"),
        ]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def has_data(self, query: str) -> bool:
        """At any moment since it was started: a copy does not last."""
        for variable in ("$namespace", "$service", "$changefeed"):
            query = query.replace(variable, ".+")
        span = {"start": self._began_at, "end": time.time(), "step": 1}
        asked = {"query": query.replace("$__rate_interval", "20s"), **span}
        try:
            with urllib.request.urlopen(
                f"http://{self.address}/api/v1/query_range?{urllib.parse.urlencode(asked)}", timeout=10
            ) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except OSError:
            return False
        return any(value != "NaN" for series in found for _, value in series["values"])


@pytest.fixture
def node(etcd_endpoint: str, tmp_path: Path) -> Iterator[Server]:
    flags = ("--session-ttl", "10", "--spark-master", "local[2]")
    with Server(etcd_endpoint, tmp_path / "log", *flags, roles="owner,processor") as started:
        yield started


def test_each_panel_shows_something(
    node: Server, database: str, source_uri: str, target_uri: str, source_client: Client, tmp_path: Path
) -> None:
    with (
        Prometheus(tmp_path, node.http) as prometheus,
        ShardedCluster(tmp_path / "sharded", tmp_path / "shard-logs") as cluster,
    ):
        source = source_client[database]
        for table, documents in _DOCUMENTS.items():
            source[table].insert_many([{"_id": id, "text": "x" * 1_000} for id in range(documents)])
        feed = {"source": source_uri, "filter": {"tables": [f"{database}.*"]}, "start": "initial"}
        _create(node, {**feed, "id": "slow", "sink": target_uri, "copy_limit": "300 docs/s"} | _compared())
        _create(node, {**feed, "id": "files", "sink": f"file://{tmp_path / 'files'}?commit_interval=1s"})
        _create(node, {"id": "shards", "source": cluster.config.uri, "sink": "blackhole://", "start": "now"})
        until(
            lambda: not node.sluice("changefeed", "wait", "slow", "--for", "state=normal").returncode, "its beginning"
        )
        source["small"].create_index("text")

        def missing() -> list[str]:
            source["small"].insert_one({})
            return [query for query in _queries() if not prometheus.has_data(query)]

        until(lambda: not missing(), "data in each panel", lambda: "\n".join(missing()))


def _compared() -> dict[str, Any]:
    return {"sync_points": {"every": "10s", "keep": "1h"}, "verify": {"continuous": True}}


def _create(node: Server, configuration: dict[str, Any]) -> None:
    created = node.sluice("changefeed", "create", "-", "--no-wait", input=yaml.safe_dump(configuration))
    assert created.returncode == 0, created.stderr


def _queries() -> list[str]:
    panels = Chart(Recording.read()).panels(GOOD["monitored"])
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]
