"""Sluice reads the oplog to find out whether it may, and the error names what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pymongo import WriteConcern

from admin.preflight.source_probe import probe_source
from changefeed.capture import Capture
from changefeed.config.capture_choice import MAJORITY_READS_DISABLED
from changefeed.config.configuration import Configuration
from changefeed.errors import SourceRefused
from changefeed.position import Position
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.security import Security
from devstack.mongodb.server import MongoDB
from source.connection import connect
from source.one_deployment import open_ddl_watch
from source.oplog.window import majority_time, oplog_obstacle

_PRIVILEGE = "read on database local or the role clusterMonitor"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    directory = tmp_path_factory.mktemp("secured")
    with ReplicaSet("secured", directory, directory, size=1, security=Security(directory / "security")) as members:
        yield members


def uri_of(members: ReplicaSet, user: str, *roles: dict[str, str] | str) -> str:
    with members.client() as administrator:
        administrator.admin.command("createUser", user, pwd="p", roles=["readAnyDatabase", *roles])
    return members.uri_of(user, "p")


def configuration(source: str, **fields: str) -> Configuration:
    return Configuration.parse({"id": "f", "source": source, "sink": "blackhole://", "start": "now", **fields})


@pytest.mark.parametrize("role", [{"role": "read", "db": "local"}, "clusterMonitor"], ids=["read", "clusterMonitor"])
def test_either_privilege_is_enough(secured: ReplicaSet, role: dict[str, str] | str) -> None:
    uri = uri_of(secured, f"allowed-{len(str(role))}", role)
    with connect(uri) as client:
        assert oplog_obstacle(client) is None
    found = probe_source(configuration(uri), Capture.AUTO)
    assert found.problems == ()
    assert found.choice is not None
    assert found.choice.capture is Capture.OPLOG


def test_without_it_auto_is_the_change_stream_and_oplog_is_refused_naming_it(secured: ReplicaSet) -> None:
    uri = uri_of(secured, "stranger")
    found = probe_source(configuration(uri), Capture.AUTO)
    assert found.choice is not None
    assert found.choice.capture is Capture.CHANGE_STREAM
    assert _PRIVILEGE in found.choice.reason
    assert "the source answers Unauthorized" in found.choice.reason
    [refused] = [
        problem for problem in probe_source(configuration(uri), Capture.OPLOG).problems if "capture" in problem
    ]
    assert refused.startswith(
        f"capture: oplog is not possible, since the source's user may not read local.oplog.rs, for which it needs {_PRIVILEGE}"
    )


def test_a_preference_for_a_secondary_is_refused_where_change_streams_are_chosen(secured: ReplicaSet) -> None:
    uri = f"{uri_of(secured, 'reader')}&readPreference=secondaryPreferred"
    problems = probe_source(configuration(uri), Capture.AUTO).problems
    assert any(problem.startswith("source: found readPreference=secondaryPreferred") for problem in problems)


def test_a_privilege_that_is_lost_later_is_an_error_that_names_it(secured: ReplicaSet) -> None:
    role = {"role": "read", "db": "local"}
    uri = uri_of(secured, "former", role)
    with connect(uri, capture=Capture.OPLOG) as client, secured.client() as administrator:
        watch = open_ddl_watch(client, Position(majority_time(client).next()), Capture.OPLOG)
        watch.poll()
        administrator.admin.command("revokeRolesFromUser", "former", roles=[role])
        administrator["shop"].get_collection("a", write_concern=WriteConcern("majority")).insert_one({})
        with pytest.raises(SourceRefused, match="read on database local, or the role clusterMonitor"):
            watch.poll()


def test_a_server_without_majority_reads_is_called_that(own_mongodb: Callable[..., MongoDB]) -> None:
    """Uses a failpoint: only servers before 5.0 can start without majority reads."""
    server = own_mongodb("minority", parameters={"enableTestCommands": "1"})
    failing = {"failCommands": ["find"], "errorCode": 148, "appName": "sluice"}
    with server.client() as administrator, connect(server.uri) as client:
        administrator.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=failing)
        assert oplog_obstacle(client) is MAJORITY_READS_DISABLED
