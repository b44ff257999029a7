"""Services and clients for component and end-to-end tests. Servers start at their first use and run until the session ends."""

from __future__ import annotations

import gc
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from devstack.etcd.cluster import EtcdCluster
from devstack.etcd.server import SMALL_QUOTA, EtcdServer
from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.release import DEFAULT_VERSION, VERSION_VARIABLE
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.server import Client, MongoDB
from devstack.s3.faulty_proxy import FaultyProxy
from devstack.s3.server import MotoServer, make_bucket
from devstack.stack import DevStack
from tests.bytecode import write_missing
from tests.ledger import Ledger

if TYPE_CHECKING:
    from tests.browser import Chromium

ReplicaSets = Callable[..., ReplicaSet]

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
"""No test fails because the machine is busy."""

os.environ.pop("PYTHONUNBUFFERED", None)
"""A user's shell has none: what a process has not written yet, it writes when it ends."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Ledger(config))
    gc.disable()  # until all tests are collected: what is made by then stays
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        write_missing(config)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects on an older server (`make versions`) the tests of features that only later ones have."""
    wanted = os.environ.get(VERSION_VARIABLE) or DEFAULT_VERSION
    beyond: list[pytest.Item] = []
    run: list[pytest.Item] = []
    for item in items:
        later = any(_release(mark.args[0]) > _release(wanted) for mark in item.iter_markers("since"))
        (beyond if later else run).append(item)
    config.hook.pytest_deselected(items=beyond)
    items[:] = run


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """Starts nothing: each server starts with the fixture that gives its address.

    What waits for an idle source to move on waits for its no-op writer, by default ten seconds.
    """
    stack = DevStack(tmp_path_factory.mktemp("devstack"), parameters={"periodicNoopIntervalSecs": "1"})
    yield stack
    stack.stop()


@pytest.fixture(scope="session")
def etcd_endpoint(servers: DevStack) -> Iterator[str]:
    """`host:port` of the session's etcd."""
    with servers.etcd as etcd:
        yield etcd.endpoint


@pytest.fixture(scope="session")
def source_uri(servers: DevStack) -> Iterator[str]:
    """The session's source, or the server that SLUICE_TEST_SOURCE names."""
    yield from _uri(servers.source)


@pytest.fixture(scope="session")
def target_uri(servers: DevStack) -> Iterator[str]:
    """The session's target, or the server that SLUICE_TEST_TARGET names."""
    yield from _uri(servers.target)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyProxy]:
    """The session's S3 server, or the one at the port that SLUICE_TEST_S3 names, behind a proxy that does nothing unless a test asks for it."""
    given = os.environ.get("SLUICE_TEST_S3")
    if given:
        with FaultyProxy(int(given)) as proxy:
            yield proxy
        return
    directory = tmp_path_factory.mktemp("s3")
    with MotoServer(directory, directory / "log") as server, FaultyProxy(server.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """The session's Kafka broker. A test takes topics of its own."""
    directory = tmp_path_factory.mktemp("kafka")
    with KafkaBroker(directory, directory / "log") as broker:
        yield broker


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[Callable[..., KafkaBroker]]:
    """Starts brokers for this test alone; the test may kill, freeze and start them."""
    started: list[KafkaBroker] = []

    def start(name: str = "kafka", **options: Any) -> KafkaBroker:
        broker = KafkaBroker(tmp_path / name, tmp_path / f"{name}.log", **options)
        started.append(broker.start())
        return broker

    yield start
    for broker in started:
        broker.kill()
        shutil.rmtree(broker.directory)


@pytest.fixture
def bucket(s3: FaultyProxy) -> Iterator[str]:
    """The URI of an empty place in a bucket that no other test has."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    make_bucket(s3.endpoint, name)
    yield f"s3://test:test@{name}/some/prefix?region=us-east-1&endpoint={s3.endpoint}"
    s3.watch()


def _uri(server: MongoDB | str) -> Iterator[str]:
    if isinstance(server, str):
        yield server
    else:
        with server:
            yield server.uri


@pytest.fixture(scope="session")
def source_client(source_uri: str) -> Iterator[Client]:
    """Writes with majority concern, the default since 5.0: every reader sees what a test has written."""
    with Client(source_uri, w="majority") as client:
        yield client


@pytest.fixture(scope="session")
def target_client(target_uri: str) -> Iterator[Client]:
    with Client(target_uri, w="majority") as client:
        yield client


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    from tests.browser import Chromium  # half a second, which tests without a browser do not pay

    browser = Chromium()
    browser.start()
    yield browser
    browser.stop()


@pytest.fixture
def etcd_prefix() -> str:
    """A part of the key space that no other test uses."""
    return f"/test-{uuid.uuid4().hex}/"


@pytest.fixture
def fresh_database(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Names databases that no other test has, and drops them at the end on the servers that the test used."""
    uris = {"source_uri": "source_client", "target_uri": "target_client"}
    clients: list[Client] = [request.getfixturevalue(uris[uri]) for uri in uris if uri in request.fixturenames]
    names: list[str] = []

    def name() -> str:
        names.append(f"test_{uuid.uuid4().hex[:12]}")
        return names[-1]

    yield name
    for client in clients:
        for database in names:
            client.drop_database(database)


@pytest.fixture
def database(fresh_database: Callable[[], str]) -> str:
    """The name of a database that no other test has."""
    return fresh_database()


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    """An etcd for this test alone, which may stop, kill, pause and start it."""
    with EtcdServer(tmp_path / "etcd", tmp_path / "etcd.log") as etcd:
        yield etcd


@pytest.fixture
def etcd_cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    """An etcd of three members for this test alone, which may kill, freeze and fill them."""
    with EtcdCluster(tmp_path, tmp_path, quota_bytes=SMALL_QUOTA) as cluster:
        yield cluster


@pytest.fixture
def own_mongodb(tmp_path: Path) -> Iterator[Callable[..., MongoDB]]:
    """Starts servers for this test alone, each under its own name; the test may stop, kill, pause and start them."""
    started: list[MongoDB] = []

    def start(name: str, **options: Any) -> MongoDB:
        server = MongoDB(name, tmp_path / name, tmp_path / f"{name}.log", **options)
        started.append(server.start())
        return server

    yield start
    for server in reversed(started):
        server.stop()
        shutil.rmtree(server.directory)


@pytest.fixture
def own_replica_set(tmp_path: Path) -> Iterator[ReplicaSets]:
    """Starts replica sets of three for this test alone, each under its own name."""
    started: list[ReplicaSet] = []

    def start(name: str, **options: Any) -> ReplicaSet:
        members = ReplicaSet(name, tmp_path, tmp_path, **options)
        started.append(members.start())
        return members

    yield start
    for members in reversed(started):
        for member in members.members:
            member.kill()  # an orderly stop gives clients 15 s to notice
            shutil.rmtree(member.directory)  # 300 MB, which pytest would keep for three runs


@pytest.fixture
def forgetful(own_mongodb: Callable[..., MongoDB]) -> MongoDB:
    """A server whose oplog holds a few megabytes (`tests.forgetful.forget`).

    The server keeps the oplog since its last checkpoint for a restart, and by default makes a checkpoint only once a minute.
    """
    return own_mongodb(
        "forgetful", oplog_mb=1, options=("--syncdelay", "1"), parameters={"periodicNoopIntervalSecs": "1"}
    )
