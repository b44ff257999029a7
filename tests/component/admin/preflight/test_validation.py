"""What would fail later is found before a changefeed is created, all at once, on servers with users and roles."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bson.binary import Binary

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli.channel import Connection, ServerAddress
from devstack.mongodb.replica_set import ReplicaSet
from tests.component.node.server_process import Server
from tests.secured import secured_pair

_PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ReplicaSet, ReplicaSet]]:
    with secured_pair(tmp_path_factory.mktemp("guarded")) as pair:
        yield pair


@pytest.fixture(scope="module")
def server(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(etcd_endpoint, Path(tmp_path_factory.mktemp("server")) / "log") as started:
        yield started


class Site:
    """A source and a target with rows of the test in `shop`."""

    def __init__(self, server: Server, source: ReplicaSet, target: ReplicaSet) -> None:
        self.server, self.source, self.target = server, source, target
        self.reader = source.client()
        self.writer = target.client()
        self.reader["shop"]["orders"].insert_one({})
        self.reader["shop"]["items"].insert_one({})

    def user(self, members: ReplicaSet, name: str, *roles: tuple[str, str]) -> str:
        """The URI of a new user."""
        with members.client() as administrator:
            granted = [{"role": role, "db": db} for role, db in roles]
            administrator.admin.command("createUser", name, pwd=_PASSWORD, roles=granted)
        return members.uri_of(name, _PASSWORD, serverSelectionTimeoutMS="3000")

    def validated(self, source: str, sink: str, **fields: Any) -> tuple[list[str], list[str]]:
        """Problems and warnings."""
        configuration = {"id": "f", "source": source, "sink": sink, **fields}
        with Connection(ServerAddress(server=self.server.address)) as api:
            request = pb.PlanChangefeedRequest(create={"configuration": yaml.safe_dump(configuration)})
            plan = next(api.stream(api.changefeeds.PlanChangefeed, request))
        return list(plan.problems), list(plan.warnings)


@pytest.fixture
def site(server: Server, sets: tuple[ReplicaSet, ReplicaSet]) -> Iterator[Site]:
    site = Site(server, *sets)
    yield site
    for client, members in ((site.reader, site.source), (site.writer, site.target)):
        client.drop_database("shop")
        client.drop_database("audit")
        with members.client() as administrator:
            for user in administrator.admin.command("usersInfo")["users"]:
                if user["user"] != "administrator":
                    administrator.admin.command("dropUser", user["user"])
        client.close()


_READER = (("readAnyDatabase", "admin"), ("read", "local"))
_IDENTIFIED = ("clusterMonitor", "admin")
_WRITER = (("readWriteAnyDatabase", "admin"), ("dbAdminAnyDatabase", "admin"), _IDENTIFIED)


def test_everything_that_is_missing_is_one_list_with_the_commands_that_grant_it(site: Site) -> None:
    source = site.user(site.source, "poor-reader", ("clusterMonitor", "admin"))
    sink = site.user(site.target, "poor-writer", ("readAnyDatabase", "admin"))

    told = "\n".join(site.validated(source, sink, filter={"tables": ["shop.*"]}, dead_letter="letters.rejected")[0])

    for granted in (
        'grantRolesToUser("poor-reader", [{role: "read", db: "shop"}])',
        'grantRolesToUser("poor-writer", [{role: "readWrite", db: "shop"}, {role: "dbAdmin", db: "shop"}])',
        'grantRolesToUser("poor-writer", [{role: "readWrite", db: "letters"}])',
    ):
        assert granted in told


@pytest.mark.parametrize(
    "roles",
    [
        [("root", "admin")],
        [("readAnyDatabase", "admin"), ("clusterMonitor", "admin")],
        [("readAnyDatabase", "admin"), ("read", "local")],
        [("read", "shop"), ("read", "local")],
    ],
)
def test_roles_that_are_enough_are_enough(site: Site, roles: list[tuple[str, str]]) -> None:
    sink = site.user(site.target, "writer", *(roles if roles[0][0] == "root" else _WRITER))

    source = site.user(site.source, "reader", *roles)

    for capture in ("oplog", "change_stream") if "Any" in roles[0][0] or roles[0][0] == "root" else ("oplog",):
        problems, _ = site.validated(source, sink, filter={"tables": ["shop.*"]}, capture=capture)
        assert problems == []


def test_wildcards_mean_the_databases_that_they_match(site: Site) -> None:
    site.reader["audit"]["a"].insert_one({})
    source = site.user(site.source, "reader", *_READER)
    sink = site.user(site.target, "writer", ("readWrite", "shop"), ("dbAdmin", "shop"), _IDENTIFIED)

    [problem], _ = site.validated(source, sink)

    assert 'grantRolesToUser("writer", [{role: "readWrite", db: "audit"}, {role: "dbAdmin", db: "audit"}])' in problem
    assert site.validated(source, sink, filter={"tables": ["s*.*"]}) == ([], [])


def test_a_sink_that_hides_its_identity_is_warned_of(site: Site) -> None:
    source = site.user(site.source, "reader", *_READER)
    sink = site.user(site.target, "writer", ("readWrite", "shop"), ("dbAdmin", "shop"))

    problems, [warning] = site.validated(source, sink, filter={"tables": ["shop.*"]})

    assert problems == []
    assert (
        'may not replSetGetConfig on the cluster; grant it with db.getSiblingDB("admin").grantRolesToUser("writer"'
        in warning
    )


def test_a_delay_that_the_oplog_does_not_cover_is_warned_of(site: Site) -> None:
    source = site.user(site.source, "reader", ("readAnyDatabase", "admin"), ("clusterMonitor", "admin"))
    sink = site.user(site.target, "writer", *_WRITER)

    problems, warnings = site.validated(source, sink, filter={"tables": ["shop.*"]}, delay="1d")

    assert problems == []
    assert [warning.partition(" in ")[0] for warning in warnings] == ["delay: changes wait for 1d"]


def test_a_user_who_only_reads_is_no_sink(site: Site) -> None:
    source = site.user(site.source, "reader", *_READER)
    sink = site.user(site.target, "reader", ("readAnyDatabase", "admin"))

    [shop], _ = site.validated(source, sink)
    [anywhere], _ = site.validated(source, sink, filter={"tables": ["none*.*"]})

    assert "may not insert, update" in shop
    assert "may not write in any database" in anywhere


@pytest.mark.parametrize("side", ["source", "sink"])
def test_a_wrong_password_is_told_as_one(site: Site, side: str) -> None:
    uris = {
        "source": site.user(site.source, "reader", *_READER),
        "sink": site.user(site.target, "writer", *_WRITER),
    }
    uris[side] = uris[side].replace("horse", "donkey")

    [problem], _ = site.validated(**uris)

    assert f"the user or the password in the {side}'s connection string is wrong" in problem
    assert "full error" not in problem
    assert "donkey" not in problem


def test_tables_that_the_target_has_already_are_named(site: Site) -> None:
    source, sink = site.user(site.source, "reader", *_READER), site.user(site.target, "writer", *_WRITER)
    for name in ("orders", "items"):
        site.writer["shop"][name].insert_one({"of": "another time"})
    site.writer["shop"].create_collection("empty")
    site.reader["shop"].create_collection("empty")

    [problem], _ = site.validated(source, sink, filter={"tables": ["shop.*"]})

    assert "it has documents already in shop.items, shop.orders, which an initial copy would fill" in problem
    for choice, fate in (("drop", "are dropped before the copy"), ("keep", "stay, and remain")):
        problems, warnings = site.validated(source, sink, filter={"tables": ["shop.*"]}, on_occupied=choice)
        assert problems == []
        assert [fate in warning for warning in warnings if "shop.items, shop.orders" in warning] == [True]
    poor = site.user(site.target, "poor-writer", ("readAnyDatabase", "admin"))
    [privilege, occupied], _ = site.validated(source, poor, filter={"tables": ["shop.*"]})
    assert ("may not insert" in privilege, occupied) == (True, problem), "both at once"
    for fields in ({"start": "now"}, {"routes": [{"from": "shop.*", "to": "dr.*"}]}):
        assert site.validated(source, sink, filter={"tables": ["shop.*"]}, **fields) == ([], [])


def test_an_update_looks_at_the_tables_that_it_adds(site: Site, tmp_path: Path) -> None:
    source, sink = site.user(site.source, "reader", *_READER), site.user(site.target, "writer", *_WRITER)
    site.reader["shop"]["added"].insert_one({})
    for name in ("orders", "added"):
        site.writer["shop"][name].insert_one({})
    (tmp_path / "wider").write_text(
        f"id: wider\nsource: {source}\nsink: {sink}\nstart: now\nfilter: {{tables: [shop.orders, shop.added]}}\n"
    )
    flags = ("--source", source, "--sink", sink, "--tables", "shop.orders", "--start", "now")
    created = site.server.sluice("changefeed", "create", "--id", "wider", *flags)
    assert created.returncode == 0, created.stderr
    try:
        assert site.server.sluice("changefeed", "pause", "wider").returncode == 0
        refused = site.server.sluice("changefeed", "update", "wider", str(tmp_path / "wider"), "--yes")
        assert (refused.returncode, "documents already in shop.added, which" in refused.stderr) == (1, True), (
            refused.stderr
        )
        site.writer["shop"]["added"].drop()
        updated = site.server.sluice("changefeed", "update", "wider", str(tmp_path / "wider"), "--yes")
        assert updated.returncode == 0, updated.stderr
    finally:
        site.server.sluice("changefeed", "remove", "wider", "--yes")


@pytest.mark.since("6.0")
def test_tables_that_cannot_be_replicated_are_named(site: Site) -> None:
    source, sink = site.user(site.source, "reader", *_READER), site.user(site.target, "writer", *_WRITER)
    encrypted = {"path": "ssn", "bsonType": "string", "keyId": Binary.from_uuid(uuid.uuid4())}
    site.reader["shop"].command("create", "patients", encryptedFields={"fields": [encrypted]})

    [problem], _ = site.validated(source, sink, filter={"tables": ["shop.*"]})

    assert "Queryable Encryption cannot be replicated" in problem
    assert '"!shop.patients" at the end' in problem
    assert site.validated(source, sink, filter={"tables": ["shop.*", "!shop.patients"]}) == ([], [])


@pytest.mark.since("5.0")
def test_a_time_series_needs_the_oplog_and_the_right_to_write_buckets(site: Site) -> None:
    site.reader["shop"].create_collection("cpu", timeseries={"timeField": "at"})
    source = site.user(site.source, "reader", *_READER)
    sink = site.user(site.target, "writer", ("readWrite", "shop"), ("dbAdmin", "shop"), _IDENTIFIED)
    filter_ = {"tables": ["shop.*"]}
    problems, _ = site.validated(source, sink, filter=filter_)
    assert [problem for problem in problems if "system_buckets" in problem] == problems != []
    buckets = {"db": "shop", "system_buckets": ""}
    actions = ["find", "insert", "update", "remove", "bypassDocumentValidation"]
    with site.target.client() as administrator:
        privileges = [{"resource": buckets, "actions": actions}]
        administrator.admin.command("createRole", "fills", privileges=privileges, roles=[])
        administrator.admin.command("grantRolesToUser", "writer", roles=["fills"])
    try:
        assert site.validated(source, sink, filter=filter_) == ([], [])
        [unmade], _ = site.validated(source, sink, filter=filter_, start="now")
        assert "the target has no time series for shop.cpu" in unmade
        [unseen], _ = site.validated(source, sink, filter=filter_, capture="change_stream")
        assert "shop.cpu: change streams do not show its measurements" in unseen
    finally:
        with site.target.client() as administrator:
            administrator.admin.command("dropRole", "fills")


def test_a_filter_without_a_table_and_letters_within_reach_are_warned_of(site: Site) -> None:
    source, sink = site.user(site.source, "reader", *_READER), site.user(site.target, "writer", *_WRITER)

    problems, [warning] = site.validated(source, sink, filter={"tables": ["shpo.*"]})
    assert (problems, "the source has no table that matches shpo.*" in warning) == ([], True)

    [problem], _ = site.validated(source, sink, filter={"tables": ["shop.*"]}, dead_letter="shop.orders")
    assert "shop.orders is where shop.orders of the source is replicated to" in problem

    problems, [warning] = site.validated(source, sink, filter={"tables": ["shop.*"]}, dead_letter="shop.rejected")
    assert (problems, "dead_letter: shop.rejected" in warning) == ([], True)
