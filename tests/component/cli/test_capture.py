"""`--capture`: how it is decided, shown and changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from changefeed.config.configuration import Configuration
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig, Put
from coordination.layout import Layout, encode
from devstack.mongodb.server import Client
from devstack.scripted_processor import ScriptedProcessor
from tests.component.node.server_process import Server
from tests.until import until

_OPLOG_CAN_BE_READ = "capture: oplog, since the source is a replica set whose oplog can be read"


@pytest.fixture
def etcd(etcd_endpoint: str) -> Iterator[EtcdClient]:
    client = EtcdClient(EtcdConfig(endpoints=(etcd_endpoint,)))
    yield client
    client.close()


@pytest.fixture
def feed(server: Server, database: str, source_uri: str, target_uri: str) -> Iterator[dict[str, Any]]:
    fields = {"id": database, "source": source_uri, "sink": target_uri, "start": "now"}
    yield fields | {"filter": {"tables": [f"{database}.*"]}}
    server.sluice("changefeed", "remove", database, "--yes")


def queried(server: Server, id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(server.sluice("changefeed", "query", id, "-o", "json").stdout)
    return found


def test_auto_is_decided_once_and_shown(server: Server, feed: dict[str, Any]) -> None:
    text = yaml.safe_dump(feed)
    assert server.sluice("changefeed", "validate", "-", input=text).stdout.splitlines()[-2:] == [
        _OPLOG_CAN_BE_READ,
        "no problems",
    ]
    created = server.sluice("changefeed", "create", "-", input=text)
    assert created.stdout == f"changefeed {feed['id']} created\n{_OPLOG_CAN_BE_READ}\n", created.stderr
    found = queried(server, feed["id"])
    assert (found["capture"], found["configuration"]["capture"]) == ("oplog", "auto")
    assert found["capture_reason"] == "the source is a replica set whose oplog can be read"
    assert "oplog, since the source is a replica set" in server.sluice("changefeed", "query", feed["id"]).stdout
    listed = json.loads(server.sluice("changefeed", "list", "-o", "json").stdout)
    assert [each["capture"] for each in listed if each["id"] == feed["id"]] == ["oplog"]


def test_what_is_asked_for_is_taken(server: Server, feed: dict[str, Any]) -> None:
    created = server.sluice("changefeed", "create", "-", "--capture", "change_stream", input=yaml.safe_dump(feed))
    assert created.stdout.endswith("capture: change_stream, since it was asked for\n"), created.stderr


@pytest.mark.since("6.0")  # earlier servers have no images
def test_images_need_change_streams(server: Server, feed: dict[str, Any]) -> None:
    images = yaml.safe_dump(feed | {"pipeline": {"pre_images": [f"{feed['id']}.orders"]}})
    said = server.sluice("changefeed", "validate", "-", input=images).stdout
    assert "capture: change_stream, since pipeline.pre_images asks for documents before and after changes" in said
    refused = server.sluice("changefeed", "create", "-", "--capture", "oplog", input=images)
    assert refused.returncode == 1
    assert "capture: oplog is not possible, since pipeline.pre_images asks for" in refused.stderr


@pytest.mark.soak
def test_the_capture_of_a_paused_changefeed_is_changed_there_and_back(
    server: Server, feed: dict[str, Any], source_client: Client, etcd: EtcdClient
) -> None:
    id = feed["id"]
    with ScriptedProcessor(etcd, Layout(server.cluster), "p1"):
        server.sluice("changefeed", "create", "-", input=yaml.safe_dump(feed))
        running = server.sluice("changefeed", "update", id, "--capture", "change_stream", "--yes")
        assert (running.returncode, "pause it first" in running.stderr) == (1, True)
        for number, capture in enumerate(("change_stream", "oplog", "change_stream", "auto")):
            source_client[id].create_collection(f"t{number}")
            until(lambda: _is_past_its_ddl(server, id), "the tables are past the DDL")
            server.sluice("changefeed", "pause", id)
            updated = server.sluice("changefeed", "update", id, "--capture", capture, "--yes")
            assert updated.returncode == 0, updated.stderr
            found = queried(server, id)
            assert found["configuration"]["capture"] == capture
            assert found["capture"] == ("oplog" if capture == "auto" else capture)
            assert server.sluice("ddl", "list", id, "-o", "json").stdout == "[]\n"
            server.sluice("changefeed", "resume", id)
            until(lambda: queried(server, id)["state"] == "normal", "it goes on")


def _is_past_its_ddl(server: Server, id: str) -> bool:
    ddls = json.loads(server.sluice("ddl", "list", id, "-o", "json").stdout)
    assert server.sluice("ddl", "list", id, "-o", "name").stdout.split() == [ddl["position"] for ddl in ddls]
    times = [ddl["position"].partition("/")[0] for ddl in ddls if ddl["state"] == "done"]
    checkpoint = queried(server, id)["checkpoint"]
    return bool(times) and "/" not in checkpoint and checkpoint > max(times)


def test_a_ddl_that_is_not_done_is_in_the_way_and_named(
    server: Server, feed: dict[str, Any], source_client: Client, target_client: Client, etcd: EtcdClient
) -> None:
    id = feed["id"]
    with ScriptedProcessor(etcd, Layout(server.cluster), "p1"):
        server.sluice("changefeed", "create", "-", input=yaml.safe_dump(feed))
        target_client[id].create_collection("refused", capped=True, size=4096)
        source_client[id].create_collection("refused")
        until(lambda: queried(server, id)["stopped_tables"], "the target refuses the DDL")
        server.sluice("changefeed", "pause", id)
        refused = server.sluice("changefeed", "update", id, "--capture", "change_stream", "--yes")
        assert refused.returncode == 1
        assert (
            f"cannot change its capture from oplog to change_stream at its positions: create {id}.refused"
            in refused.stderr
        )
        assert queried(server, id)["capture"] == "oplog"


def test_a_changefeed_of_the_first_release_stays_with_change_streams_until_another_is_asked_for(
    server: Server, feed: dict[str, Any], etcd: EtcdClient
) -> None:
    id = ChangefeedId(feed["id"])
    info = ChangefeedInfo(configuration=Configuration.parse(feed), created_at=datetime.now(UTC))
    etcd.txn((), (Put(Layout(server.cluster).info(id), encode(info)),))
    until(lambda: queried(server, id)["checkpoint"], "it has begun")
    server.sluice("changefeed", "pause", id)
    server.sluice("changefeed", "update", id, "-", "--yes", input=yaml.safe_dump(feed | {"on_divergence": "fail"}))
    found = queried(server, id)
    assert (found["configuration"]["on_divergence"], found["capture"]) == ("fail", "change_stream")
    updated = server.sluice("changefeed", "update", id, "--capture", "oplog", "--yes")
    assert updated.returncode == 0, updated.stderr
    assert queried(server, id)["capture"] == "oplog"
