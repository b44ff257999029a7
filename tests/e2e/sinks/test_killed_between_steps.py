"""Task, driver, owner, store or broker gets kill -9 between two steps; what is read back equals the source, and keeps W1 to W4.

At a held failpoint everything stands still: the victim is killed there, comes back, and the failpoint is released.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path

import psutil
import pytest

from coordination import failpoint
from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from devstack.process import ServerProcess
from devstack.s3.server import make_bucket
from tests.component.node.server_process import Server
from tests.e2e.node.filed_changefeed import S3_KEYS, TABLES, Bucketed, Filed, fill
from tests.e2e.node.topic_changefeed import InTopics
from tests.e2e.node.workload import ddls_of_each_kind, writing
from tests.e2e.sinks.gateway import KEY, SECRET, Gateway
from tests.until import until

pytestmark = [pytest.mark.sinks, pytest.mark.costly("because each victim dies at each step, and comes back")]

_OF_TASKS = ("window_read", "window_applied")
_OF_DRIVERS = {
    "directory": ("window_committing", "window_committed"),
    "bucket": ("window_committing", "window_committed"),
    "topics": ("window_begins", "window_ended"),
}
_OF_OWNERS = ("ddl_due", "ddl_executing", "ddl_applied")
_OF_COPIES = {
    "directory": ("chunks_committing", "chunks_committed"),
    "bucket": ("chunks_committing", "chunks_committed"),
    "topics": ("chunk_loaded", "chunks_read"),
}
_VICTIMS = ("task", "driver", "owner")
_SERVERS = {"bucket": "store", "topics": "broker"}
_POINTS = {*_OF_TASKS, *chain(*_OF_DRIVERS.values()), *_OF_OWNERS, *chain(*_OF_COPIES.values())}
_KEYS = dict(zip(S3_KEYS, (KEY, SECRET), strict=True))
_FLAGS = ("--session-ttl", "10", "--grace", "150")  # the nodes share two cores with their Spark


class Nodes:
    """An owner and a processor, which stand still at chosen failpoints."""

    def __init__(self, etcd_endpoint: str, directory: Path) -> None:
        self._holds = directory / "holds"
        for point in _POINTS:
            (self._holds / point).mkdir(parents=True)
        holds = " ".join(f"{point}=hold:{self._holds}" for point in _POINTS)
        environment = {failpoint.VARIABLE: holds, **_KEYS}
        cluster = f"test-{uuid.uuid4().hex[:12]}"
        self.owner, self.processor = (
            Server(
                etcd_endpoint,
                directory / f"{role}.log",
                *_FLAGS,
                cluster=cluster,
                name=role,
                roles=role,
                environment=environment,
            )
            for role in ("owner", "processor")
        )

    def kill_task(self) -> None:
        """All workers: one of them has the task, if there is one."""
        daemons = {each.pid for each in self.processor.processes if "worker_daemon" in _command(each)}
        for process in self.processor.processes:
            if "worker_daemon" in _command(process) and process.ppid() in daemons:
                process.kill()

    def kill_driver(self) -> None:
        _restart(self.processor)

    def kill_owner(self) -> None:
        _restart(self.owner)

    def at(self, point: str, subject: str, do: Callable[[], None], *, cause: Callable[[], None]) -> None:
        """Does it while the failpoint is reached, which `cause` brings about."""
        held = self._holds / point / subject
        reached = held.with_name(f"{subject}.reached")
        held.touch()
        try:
            cause()
            until(reached.exists, f"{point} of {subject}")
            do()
        finally:
            held.unlink()
            reached.unlink(missing_ok=True)


def _restart(server: Server) -> None:
    server.kill()
    server.start()


def _kill_and_start(server: ServerProcess) -> None:
    server.kill()
    server.start()


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture(scope="module")
def nodes(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(etcd_endpoint, tmp_path_factory.mktemp("nodes"))
    with nodes.owner, nodes.processor:
        yield nodes


@dataclass(frozen=True)
class Case:
    nodes: Nodes
    feed: Filed | InTopics
    sink: str
    victims: Mapping[str, Callable[[], None]]


@pytest.fixture(params=["directory", "bucket", "topics"])
def case(
    request: pytest.FixtureRequest,
    nodes: Nodes,
    database: str,
    source_uri: str,
    source_client: Client,
    target_client: Client,
    tmp_path: Path,
) -> Iterator[Case]:
    fill(source_client, database)
    feed: Filed | InTopics
    feed = filed = Filed(nodes.owner, database, source_client, source_uri, target_client, tmp_path / "files")
    victims = {"task": nodes.kill_task, "driver": nodes.kill_driver, "owner": nodes.kill_owner}
    with ExitStack() as ending:
        if request.param == "bucket":
            gateway = ending.enter_context(Gateway(tmp_path / "gateway", tmp_path / "gateway.log"))
            bucket = database.replace("_", "-")
            make_bucket(gateway.endpoint, bucket)
            uri = f"s3://{KEY}:{SECRET}@{bucket}/some/prefix?region=us-east-1&endpoint={gateway.endpoint}&layout=hive"
            victims["store"] = partial(_kill_and_start, gateway)
            feed = Bucketed(filed, uri, keys=_KEYS)
        if request.param == "topics":
            broker = ending.enter_context(KafkaBroker(tmp_path / "broker", tmp_path / "broker.log"))
            victims["broker"] = partial(_kill_and_start, broker)
            feed = InTopics(nodes.owner, database, source_client, source_uri, target_client, broker)
        yield Case(nodes, feed, request.param, victims)
        nodes.owner.sluice("changefeed", "remove", database, "--yes")
    target_client.drop_database(database)
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_killed_in_a_window_or_a_ddl(case: Case, target_uri: str) -> None:
    feed, numbers = case.feed, count()
    feed.create()
    feed.until_written()
    with writing(feed.source, TABLES):
        for point in (*_OF_TASKS, *_OF_DRIVERS[case.sink], *_OF_OWNERS):
            for kill in case.victims.values():
                case.nodes.at(point, feed.id, kill, cause=lambda: ddls_of_each_kind(feed.source, next(numbers)))
                feed.until_written()
    _judged(feed, target_uri)


@pytest.mark.parametrize(
    ("case", "point", "victim"),
    [
        (sink, point, victim)
        for sink, points in _OF_COPIES.items()
        for point in points
        for victim in (*_VICTIMS, *([_SERVERS[sink]] if sink in _SERVERS else []))
    ],
    indirect=["case"],
)
def test_killed_in_a_copy(case: Case, target_uri: str, point: str, victim: str) -> None:
    feed = case.feed
    case.nodes.at(point, feed.id, case.victims[victim], cause=feed.create)
    with writing(feed.source, TABLES):
        feed.source["notes"].delete_many({"n": {"$lt": 100}})
        feed.source["orders"].update_many({"n": {"$lt": 50}}, {"$set": {"text": "changed"}})
        ddls_of_each_kind(feed.source, 0)
        feed.until_written()
    _judged(feed, target_uri)


def _judged(feed: Filed | InTopics, target_uri: str) -> None:
    feed.until_written()
    found = feed.wrong(target_uri)
    assert not found, "\n".join(found)
