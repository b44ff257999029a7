"""The HTTP endpoints of a node."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig
from coordination.layout import Layout
from devstack.etcd.server import EtcdServer
from devstack.mongodb.server import Client
from devstack.scripted_processor import ScriptedProcessor
from tests.component.node.server_process import Server
from tests.until import until


def test_the_owner_tells_of_each_changefeed(server: Server, database: str, source_uri: str) -> None:
    flags = ("--id", database, "--source", source_uri, "--sink", "blackhole://", "--tables", f"{database}.*")
    assert server.sluice("changefeed", "create", *flags).returncode == 0
    until(lambda: "\nsluice_owner 1.0" in server.get("/metrics")[1], "the node's next look at itself")
    status, text = server.get("/metrics")
    assert status == 200
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("changefeed", database) == database
    }
    assert found["sluice_nodes"] == 1
    assert 0 <= found["sluice_lag_seconds"] < 60
    assert found["sluice_checkpoint_timestamp_seconds"] > 1_700_000_000
    assert {"sluice_barrier_age_seconds", "sluice_open_ddls", "sluice_ddl_held_seconds_count"} <= found.keys()
    assert f'sluice_changefeed_state{{changefeed="{database}",state="normal"}} 1.0' in text
    assert found["sluice_dead_letters"] == 0
    assert server.sluice("changefeed", "remove", database, "--yes").returncode == 0
    until(lambda: f'changefeed="{database}"' not in server.get("/metrics")[1], "the end of its metrics")


def test_the_owner_tells_how_many_tables_wait_for_a_user(
    server: Server, etcd_endpoint: str, database: str, source_uri: str, source_client: Client
) -> None:
    def stopped() -> float:
        families = text_string_to_metric_families(server.get("/metrics")[1])
        [family] = [family for family in families if family.name == "sluice_stopped_tables"]
        return next(sample.value for sample in family.samples if sample.labels == {"changefeed": database})

    for table in ("orders", "items"):
        source_client[database].create_collection(table)
    flags = ("--id", database, "--source", source_uri, "--sink", "blackhole://", "--tables", f"{database}.*")
    with (
        EtcdClient(EtcdConfig(endpoints=(etcd_endpoint,))) as etcd,
        ScriptedProcessor(etcd, Layout(server.cluster), "p1", timedelta(seconds=10)),
    ):
        assert server.sluice("changefeed", "create", *flags, "--start", "now").returncode == 0
        assert stopped() == 0
        assert server.sluice("table", "stop", database, f"{database}.orders").returncode == 0
        until(lambda: stopped() == 1, "one stopped table")
        assert server.sluice("table", "stop", database, f"{database}.items").returncode == 0
        until(lambda: stopped() == 2, "two stopped tables")
        assert server.sluice("table", "resume", database, f"{database}.orders").returncode == 0
        until(lambda: stopped() == 1, "one that goes on")
        assert server.sluice("changefeed", "remove", database, "--yes").returncode == 0


def test_a_node_tells_its_release_and_the_memory_of_its_processes(
    server: Server, etcd_endpoint: str, tmp_path: Path
) -> None:
    """Every line of its log is JSON, what Spark and Java write too."""
    log = tmp_path / "log"
    with Server(etcd_endpoint, log, roles="processor") as processor:
        until(lambda: "sluice_spark_running 1.0" in processor.get("/metrics")[1], "Spark")
        families = text_string_to_metric_families(processor.get("/metrics")[1])
        found = {sample.name: sample for family in families for sample in family.samples}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert any(line["event"] == "spark_logged" and line["level"] == "warning" for line in lines)
    assert found["sluice_build_info"].labels.keys() == {"version", "python", "spark", "pymongo"}
    assert found["process_resident_memory_bytes"].value > 10 << 20
    assert found["sluice_jvm_resident_memory_bytes"].value > 50 << 20
    assert 0 < found["sluice_jvm_heap_used_bytes"].value < found["sluice_jvm_heap_max_bytes"].value
    assert found["sluice_task_slots"].value > 0
    assert found["sluice_executors"].value == 0
    assert "sluice_spark_running" not in server.get("/metrics")[1]


def test_unknown_paths_are_not_found(server: Server) -> None:
    assert server.get("/") == (404, "not found; the paths are /metrics, /healthz and /readyz\n")
    assert server.get("/healthz") == (200, "ok\n")


def test_a_node_without_etcd_lives_and_is_not_ready(own_etcd: EtcdServer, tmp_path: Path) -> None:
    with Server(own_etcd.endpoint, tmp_path / "log") as server:
        own_etcd.kill()
        until(lambda: server.get("/readyz")[0] == 503, "not ready")
        assert server.get("/healthz")[0] == 200
        assert server.get("/metrics")[0] == 200
        answer = server.sluice("changefeed", "list")
        assert (answer.returncode, "does not follow etcd" in answer.stderr) == (5, True)
        own_etcd.start()
        server.until_ready()
        assert server.sluice("changefeed", "list").returncode == 0
