"""A record that cannot be read stops its own changefeed, hides no other, and can be removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedId
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig, Put
from coordination.layout import Layout
from tests.component.node.server_process import Server
from tests.until import until


@pytest.fixture
def server(etcd_endpoint: str, tmp_path: Path) -> Iterator[Server]:
    with Server(etcd_endpoint, tmp_path / "log") as started:
        yield started


@pytest.fixture
def etcd(etcd_endpoint: str) -> Iterator[EtcdClient]:
    client = EtcdClient(EtcdConfig(endpoints=(etcd_endpoint,)))
    yield client
    client.close()


_OF_ANOTHER_FORMAT = b'{"v":9}'


def feeds(server: Server) -> dict[str, Any]:
    return {feed["id"]: feed for feed in json.loads(server.sluice("changefeed", "list", "-o", "json").stdout)}


def create(server: Server, tmp_path: Path, source: str, id: str, **more: str) -> Any:
    file = tmp_path / f"{id}.yaml"
    lines = {"id": id, "source": source, "sink": "blackhole://", **more}
    file.write_text("".join(f"{name}: {value}\n" for name, value in lines.items()) + f"filter: {{tables: [{id}.*]}}\n")
    return server.sluice("changefeed", "create", "-f", str(file), "--no-wait")


def break_target(etcd: EtcdClient, key: str) -> None:
    """As a release once wrote it for a start ahead of the source."""
    found = etcd.get(key)
    assert found is not None
    fields = json.loads(found.value)
    fields["configuration"] |= {"start": "4000000000.1", "target": "1795224774.9"}
    etcd.txn((), (Put(key, json.dumps(fields).encode()),))


def test_a_record_that_cannot_be_read_stops_its_own_changefeed_and_is_removed(
    server: Server, etcd: EtcdClient, source_uri: str, tmp_path: Path
) -> None:
    layout = Layout(server.cluster)
    for id in ("tz", "well"):
        created = create(server, tmp_path, source_uri, id)
        assert created.returncode == 0, created.stderr
    until(lambda: feeds(server)["tz"]["state"] == "normal", "both to begin")
    break_target(etcd, layout.info(ChangefeedId("tz")))

    until(lambda: feeds(server)["tz"]["state"] == "unreadable", "the record to be seen")
    assert feeds(server)["well"]["state"] == "normal"
    why = feeds(server)["tz"]["error"]["message"]
    assert "configuration.target: found 1795224774.9, which is not after start 4000000000.1" in why
    query = server.sluice("changefeed", "query", "tz")
    assert "unreadable" in query.stdout
    assert "sluice changefeed remove tz" in query.stdout.replace("\n", " ")
    assert json.loads(server.sluice("node", "list", "-o", "json").stdout)[0]["owner"]
    third = create(server, tmp_path, source_uri, "third")
    assert third.returncode == 0, third.stderr
    assert "the records of changefeed 'tz' cannot be read" in third.stderr
    status, body = server.get("/readyz")
    assert status == 200
    assert body.startswith("ready\n")
    assert "Changefeed 'tz' stands still" in body
    metrics = server.get("/metrics")[1]
    assert 'sluice_changefeed_state{changefeed="tz",state="unreadable"} 1.0' in metrics
    assert 'sluice_changefeed_state{changefeed="tz",state="normal"} 0.0' in metrics
    assert 'sluice_changefeed_state{changefeed="well",state="unreadable"} 0.0' in metrics
    assert 'sluice_changefeed_state{changefeed="well",state="normal"} 1.0' in metrics
    paused = server.sluice("changefeed", "pause", "tz", "--no-wait")
    assert paused.returncode != 0
    until(lambda: "changefeed_unreadable" in server.log, "the owner's word")
    assert server.log.count('"event": "changefeed_unreadable"') == 1, "once, not at each tick"

    removed = server.sluice("changefeed", "remove", "tz", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert "At the target stay its tables with their rows" in removed.stderr
    assert sorted(feeds(server)) == ["third", "well"]
    assert not etcd.range(layout.changefeed(ChangefeedId("tz"))).items
    again = create(server, tmp_path, source_uri, "tz")
    assert again.returncode == 0, again.stderr
    until(lambda: feeds(server)["tz"]["state"] == "normal", "the new one to begin")


def seen_as_unreadable(server: Server, etcd: EtcdClient, key: str) -> bool:
    """The owner may have been about to write the record: then it is damaged again."""
    if (found := etcd.get(key)) is None or found.value != _OF_ANOTHER_FORMAT:
        etcd.txn((), (Put(key, _OF_ANOTHER_FORMAT),))
    return bool(feeds(server)["tz"]["state"] == "unreadable")


@pytest.mark.parametrize("record", ["status", "barrier", "ddl/0000000000000001"])
def test_a_changefeed_is_removed_whichever_of_its_records_cannot_be_read(
    server: Server, etcd: EtcdClient, source_uri: str, tmp_path: Path, record: str
) -> None:
    layout, feed = Layout(server.cluster), ChangefeedId("tz")
    assert create(server, tmp_path, source_uri, feed).returncode == 0
    until(lambda: feeds(server)[feed]["state"] == "normal", "it to begin")
    until(partial(seen_as_unreadable, server, etcd, f"{layout.changefeed(feed)}{record}"), "the record to be seen")
    assert "written in format 9" in feeds(server)[feed]["error"]["message"]

    removed = server.sluice("changefeed", "remove", feed, "--yes")

    assert removed.returncode == 0, removed.stderr
    assert feeds(server) == {}
    assert not etcd.range(layout.changefeed(feed)).items


def test_a_start_ahead_of_the_source_is_refused(server: Server, source_uri: str, tmp_path: Path) -> None:
    refused = create(server, tmp_path, source_uri, "tz", start="2100-01-01T09:00:00Z")
    assert refused.returncode != 0
    assert "ahead of the source" in refused.stderr
    assert "with its offset" in refused.stderr


def test_a_node_whose_record_cannot_be_read_hides_no_other(server: Server, etcd: EtcdClient) -> None:
    layout = Layout(server.cluster)
    etcd.txn((), (Put(layout.node(NodeId("n9-1")), b'{"v":9}'),))

    until(lambda: len(json.loads(server.sluice("node", "list", "-o", "json").stdout)) == 2, "the record to be seen")

    nodes = {node["id"]: node for node in json.loads(server.sluice("node", "list", "-o", "json").stdout)}
    assert "written in format 9" in nodes.pop("n9-1")["not_ready"]
    (other,) = nodes.values()
    assert other["owner"]
    assert feeds(server) == {}


def test_a_node_restores_its_own_record_and_is_known_as_the_owner(server: Server, etcd: EtcdClient) -> None:
    layout = Layout(server.cluster)
    (node,), (owner,) = etcd.range(layout.nodes).items, etcd.range(layout.owners).items
    etcd.txn((), (Put(node.key, b"damaged"), Put(owner.key, b"damaged", owner.lease)))

    def restored() -> bool:
        found = etcd.get(node.key)
        return found is not None and (found.value, found.lease) == (node.value, node.lease)

    until(restored, "the record and its lease")
    (listed,) = json.loads(server.sluice("node", "list", "-o", "json").stdout)
    assert (listed["owner"], listed["not_ready"]) == (True, "")
    assert server.get("/readyz")[0] == 200
