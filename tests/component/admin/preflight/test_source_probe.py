"""A changefeed is refused at creation if the source would refuse its reads at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from admin.preflight.sink_probe import probe_sink
from admin.preflight.source_probe import probe_source
from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from devstack.mongodb.server import Client, MongoDB
from tests.conftest import ReplicaSets


def configuration(source: str, **fields: Any) -> Configuration:
    return Configuration.parse({"id": "probed", "source": source, "sink": "blackhole://", "start": "now"} | fields)


@contextmanager
def refusing(server: MongoDB, *, after: int) -> Iterator[None]:
    """The server opens `after` change streams and refuses the next one."""
    failing = {"failCommands": ["aggregate"], "errorCode": 2, "appName": "sluice-validate"}
    with server.client() as client:
        client.admin.command("configureFailPoint", "failCommand", mode={"skip": after}, data=failing)
        yield
        client.admin.command("configureFailPoint", "failCommand", mode="off")


@pytest.fixture
def server(own_mongodb: Callable[..., MongoDB]) -> MongoDB:
    return own_mongodb("probed", parameters={"enableTestCommands": "1"})


def test_a_filter_of_many_rules_and_exclusions_is_none_that_a_server_refuses(
    source_uri: str, source_client: Client, database: str
) -> None:
    source_client[database]["audit"].insert_one({})
    rules = [{"tables": [f"{database}.audit"], "ignore": [type_]} for type_ in ("insert", "delete", "drop")]
    tables = [f"{database}.*", f"!{database}.tmp_*", f"!{database}.old_*"]
    found = probe_source(configuration(source_uri, filter={"tables": tables, "events": rules}), Capture.CHANGE_STREAM)
    assert found.problems == ()
    assert [str(table.name) for table in found.tables] == [f"{database}.audit"]


_EXPANDED = pytest.mark.since("6.0")
"""Earlier servers show their DDL in the oplog, and have no images."""


@pytest.mark.parametrize(
    ("opened", "fields", "refused"),
    [
        pytest.param(0, {}, "reading the DDL of the source: ", marks=_EXPANDED),
        (1, {}, "opening the source's change stream of rows: "),
        pytest.param(
            2, {"pipeline": {"pre_images": ["shop.*"]}}, "opening the source's change stream of rows: ", marks=_EXPANDED
        ),
    ],
)
def test_every_stream_that_the_changefeed_would_open_is_tried(
    server: MongoDB, opened: int, fields: dict[str, Any], refused: str
) -> None:
    with server.client() as client:
        expanded = client.server_info()["versionArray"][0] >= 6
    with refusing(server, after=opened if expanded else 0):
        [problem] = probe_source(configuration(server.uri, **fields), Capture.CHANGE_STREAM).problems
    assert problem.startswith(f"source: {refused}")
    with refusing(server, after=3):
        assert probe_source(configuration(server.uri, **fields), Capture.CHANGE_STREAM).problems == ()


_ELSEWHERE = "mongodb://127.0.0.1:1/"


def test_one_member_that_is_asked_alone_has_to_be_the_primary(own_replica_set: ReplicaSets) -> None:
    members = own_replica_set("rs")
    primary, secondary = members.primary(), members.secondaries()[0]
    alone = f"mongodb://{members.address_of(secondary)}/?directConnection=true"
    [source] = probe_source(configuration(alone), Capture.OPLOG).problems
    assert "leave directConnection out" in source
    assert f"the primary is {members.address_of(primary)}" in source
    [sink] = probe_sink(configuration(_ELSEWHERE, sink=alone)).problems
    assert sink == source.replace("source: ", "sink: ")
    fine = f"mongodb://{members.address_of(primary)}/?directConnection=true"
    assert probe_source(configuration(fine), Capture.OPLOG).problems == ()
    assert probe_sink(configuration(_ELSEWHERE, sink=fine)).problems == ()
