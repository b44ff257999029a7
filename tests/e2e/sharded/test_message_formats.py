"""What a sharded cluster becomes in each format of messages, and a MongoDB that is made of them: real nodes, real Spark, real shards and a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from bson import json_util

from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from tests.component.node.server_process import Server
from tests.component.sink.files.test_sql import _SQL
from tests.component.sink.kafka.seen import Seen, seen
from tests.component.source.sharded.history import DB, PLAIN, content, end_of
from tests.e2e.sharded.site import PATIENCE, Site
from tests.until import until

pytestmark = [
    pytest.mark.since("6.0"),
    pytest.mark.costly("config servers, two shards, a node with Spark and a Kafka"),
]
_ROWS, _SALES = f"{DB}.rows", f"{DB}.sales"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedCluster]:
    directory: Path = tmp_path_factory.mktemp("formats")
    with ShardedCluster(directory / "data", directory / "log") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def node(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = Path(tmp_path_factory.mktemp("n1")) / "log"
    with Server(etcd_endpoint, log, *PATIENCE, name="n1", roles="owner,processor") as started:
        yield started


def _stocked(router: ClusterRouter) -> ClusterDdl:
    ddl = ClusterDdl(router)
    ddl.create_database(DB, primary="sa")
    ddl.shard(_ROWS, {"k": 1})
    ddl.split(_ROWS, {"k": 100})
    ddl.move(_ROWS, {"k": 100}, "sb")
    ddl.refresh(_ROWS)
    for number in range(0, 200, 10):
        router.insert(_ROWS, {"_id": number, "k": number, "v": 1})
    return ddl


def _changed(router: ClusterRouter, ddl: ClusterDdl) -> None:
    """Changes on both shards, documents that change places, a chunk that moves, and a rename."""
    for number in (0, 50, 150):
        router.update(_ROWS, {"_id": number, "k": number}, {"$set": {"v": 2}})
    transaction = router.transaction()
    for one, to in ((20, 120), (120, 20)):
        assert transaction.delete(_ROWS, {"_id": one, "k": one}) == 1
        transaction.insert(_ROWS, {"_id": one, "k": to, "v": 3})
    transaction.commit()
    router.delete(_ROWS, {"_id": 30, "k": 30})
    ddl.move(_ROWS, {"k": 0}, "sb")
    router.update(_ROWS, {"_id": 50, "k": 50}, {"$set": {"v": 4}})
    ddl.rename(_ROWS, _SALES)
    router.update(_SALES, {"_id": 20, "k": 120}, {"$set": {"v": 5}})
    router.insert(_SALES, {"_id": 7, "k": 7, "v": 6})
    router.insert(PLAIN, {"_id": "last", "v": 0})


def _rebuilt(
    messages: list[Seen], told: Callable[[Mapping[str, Any]], Any], key_of: Callable[[Any], Any]
) -> dict[Any, Any]:
    """`v` by `_id`. `told`: what a message sets, None if it deletes."""
    made: dict[Any, Any] = {}
    for message in sorted(messages, key=lambda each: each.headers["sluice.pos"]):
        if message.value is None or message.key is None or message.headers["sluice.op"] not in "iuRdr":
            continue
        key, fields = key_of(json_util.loads(message.key)), told(json_util.loads(message.value))
        if fields is None:
            made.pop(key, None)
        else:
            made[key] = fields["v"]
    return made


def _debezium(value: Mapping[str, Any]) -> Any:
    if value["op"] == "u" and value["after"] is None:
        return json.loads(value["updateDescription"]["updatedFields"])
    return json.loads(value["after"]) if value["after"] is not None else None


def _mongodb(value: Mapping[str, Any]) -> Any:
    return (
        value["updateDescription"]["updatedFields"] if value["operationType"] == "update" else value.get("fullDocument")
    )


def test_each_format(
    cluster: ShardedCluster,
    node: Server,
    kafka: KafkaBroker,
    target_client: Client,
    target_uri: str,
    tmp_path: Path,
) -> None:
    site = Site(cluster, target_client, target_uri, [node])
    base = f"kafka://{kafka.bootstrap}"
    sinks = {
        "debezium": f"{base}/cd?format=debezium&partitions=2",
        "mongodb": f"{base}/cm?format=mongodb&partitions=2",
        "sluice": f"{base}/cs?encoding=bson&partitions=2",
        "parquet": f"file://{tmp_path / 'parquet'}?format=parquet&commit_interval=1s",
        "bson": f"file://{tmp_path / 'bson'}?format=bson&commit_interval=1s&compression=zstd",
    }
    with cluster.router() as router:
        ddl = _stocked(router)
        for id, sink in sinks.items():
            said = {"id": id, "source": cluster.config.uri, "sink": sink, "filter": {"tables": [f"{DB}.*"]}}
            site.sluice("changefeed", "create", "-", input=yaml.safe_dump(said))
        _changed(router, ddl)
    end = end_of(cluster)
    for id in sinks:
        until(partial(_passed, site, id, str(end)), f"{id} has passed {end}")
    expected = {key: row["v"] for key, row in content(cluster)[_SALES].items()}

    def topics(prefix: str) -> list[Seen]:
        return seen(kafka, f"{prefix}.{_ROWS}", f"{prefix}.{_SALES}")

    assert _rebuilt(topics("cm"), _mongodb, lambda key: key["_id"]) == expected
    assert _rebuilt(topics("cd"), _debezium, lambda key: json.loads(key["id"])) == expected
    with chdir(tmp_path / "parquet"):
        found = duckdb.connect().execute(_SQL.replace("shop.orders", _SALES)).fetchall()
    assert {json_util.loads(key)["_id"] for key, _ in found} == expected.keys()
    made_by = {"sluice": ("consume", sinks["sluice"]), "bson": ("read", f"file://{tmp_path / 'bson'}")}
    for command, uri in made_by.values():
        assert "written up to" in site.sluice(command, uri, "--to", target_uri)
        assert site.rows() == content(cluster)
        target_client.drop_database(DB)
        target_client.drop_database("sluice")
    for id in sinks:
        site.sluice("changefeed", "remove", id, "--yes")


def _passed(site: Site, id: str, end: str) -> bool:
    checkpoint = json.loads(site.sluice("changefeed", "query", id, "-o", "json")).get("checkpoint", "")
    return bool(checkpoint) and _time(checkpoint) > _time(end)


def _time(position: str) -> tuple[int, ...]:
    return tuple(map(int, position.partition("/")[0].split(".")))
