"""`source` and `target`: each test runs once with the simulation's model and once with a real server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.records.node import NodeId
from changefeed.table import TableId, TableName
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.server import TESTING, Client, MongoDB
from source.connection import connect
from tests.component.simulation.lives import MOST_IN_ENTRY, Life, ModelLife, RealLife
from tests.component.simulation.served import Asked, InTheMachine, InThisProcess, Served, held
from tests.simulation.clockwork.machine import Machine, Thread
from tests.simulation.clockwork.network import Network
from tests.simulation.clockwork.substitutes import installed
from tests.simulation.source.client import SourceClient
from tests.simulation.source.server import SourceServer
from tests.simulation.target.client import TargetClient
from tests.simulation.target.server import DdlEffect, TargetServer

MODEL, REAL = "model", "real"
AGAINST_REAL = pytest.param(REAL, marks=pytest.mark.since("6.0"))
"""The servers that the models imitate."""
_FOREVER = 1e9


class Source(Asked):
    """`life`: the actions of a user at the source."""

    def __init__(self, served: Served, client: Any, database: str, life: Life) -> None:
        super().__init__(served, client, database)
        self.life = life

    def majority_ts(self) -> ClusterTime:
        return ClusterTime.from_bson(self.admin({"hello": 1})["lastWrite"]["majorityOpTime"]["ts"])

    def newest_ts(self) -> ClusterTime:
        return ClusterTime.from_bson(self.admin({"hello": 1})["lastWrite"]["opTime"]["ts"])

    def all_majority(self) -> ClusterTime:
        """Waits until the majority has all earlier writes. Returns a time after all of them."""
        self.life.note()
        newest = self.newest_ts()
        self.served.until(lambda: self.majority_ts() >= newest)
        return self.majority_ts().next()

    def elect(self) -> None:
        """Waits until the client reaches the next primary: the old one keeps a cursor after its step-down, and the client would read on there."""
        before = self._election()
        self.life.elect()
        self.served.until(lambda: self._election() not in (None, before))

    def _election(self) -> object:
        """None at a member that is not primary, and while no primary exists."""
        try:
            return self.admin({"hello": 1}).get("electionId")
        except PyMongoError:
            return None


@dataclass
class Nobody:
    """A referee that checks nothing."""

    def row(self, thread: Thread, name: TableName, table: TableId | None, kind: str, key: Any, row: Any) -> None: ...
    def sync_point(self, record: object, there: object) -> None: ...

    def kept(self, table: TableId | None, key: Any) -> None: ...

    def taken(self, thread: Thread, name: TableName, table: TableId | None, row: Any, by: Any) -> None: ...

    def build_is_sent(self, thread: Thread, name: TableName) -> None: ...

    def node_of(self, thread: Thread) -> NodeId:
        return NodeId(thread.process.name)

    def ddl(
        self, thread: Thread, copies: TableId | None, name: TableName, what: str, *, late: bool = False
    ) -> DdlEffect:
        return DdlEffect(None, lambda: None)


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoDB]:
    """With failpoints, and with the no-op writer's default interval."""
    directory = tmp_path_factory.mktemp("contract")
    with MongoDB("contract", directory / "data", directory / "log", parameters=TESTING) as server:
        yield server


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine(7)
    with installed(machine):
        yield machine


@contextmanager
def real_source(uri: str, members: ReplicaSet | None = None) -> Iterator[Source]:
    database = f"contract_{uuid.uuid4().hex[:12]}"
    with connect(uri) as client:
        yield Source(InThisProcess(), client, database, RealLife(client, database, members))
        client.drop_database(database)


def model_source(machine: Machine, **options: Any) -> Source:
    server = SourceServer(machine, **options)
    client = SourceClient(server, Network(machine))
    return Source(InTheMachine(machine), client, "contract", ModelLife(server, "contract"))


@pytest.fixture(params=[MODEL, AGAINST_REAL])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    if request.param == MODEL:
        yield model_source(request.getfixturevalue("machine"))
    else:
        with real_source(request.getfixturevalue("real_server").uri) as found:
            yield found


@pytest.fixture(params=[MODEL, AGAINST_REAL])
def idle_source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    """Only the test writes to it; its no-op writer runs each second."""
    if request.param == MODEL:
        yield model_source(request.getfixturevalue("machine"), note_every=1.0)
        return
    parameters = {**TESTING, "periodicNoopIntervalSecs": "1"}
    server = MongoDB("idle", tmp_path / "data", tmp_path / "log", parameters=parameters)
    with server, real_source(server.uri) as found:
        yield found


@pytest.fixture(params=[MODEL, AGAINST_REAL])
def chaining_source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    """Its transactions of more than two operations span several oplog entries."""
    if request.param == MODEL:
        yield model_source(request.getfixturevalue("machine"))
        return
    parameters = {**TESTING, "maxNumberOfTransactionOperationsInSingleOplogEntry": str(MOST_IN_ENTRY)}
    server = MongoDB("chaining", tmp_path / "data", tmp_path / "log", parameters=parameters)
    with server, real_source(server.uri) as found:
        yield found


@pytest.fixture(params=[MODEL, AGAINST_REAL])
def forgetting_source(request: pytest.FixtureRequest) -> Iterator[Source]:
    """Its oplog is small."""
    if request.param == MODEL:
        yield model_source(request.getfixturevalue("machine"))
        return
    with real_source(request.getfixturevalue("forgetful").uri) as found:
        yield found


@pytest.fixture(params=[MODEL, AGAINST_REAL])
def set_source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    """A replica set of several members."""
    if request.param == MODEL:
        yield model_source(request.getfixturevalue("machine"))
        return
    with (
        ReplicaSet("three", tmp_path, tmp_path, parameters=TESTING) as members,
        real_source(members.uri, members) as found,
    ):
        yield found


@dataclass
class Beside:
    """A source, a client of only one of its secondaries, and a way to delay that secondary."""

    source: Source
    secondary: Source
    behind: Callable[[], AbstractContextManager[None]]


@pytest.fixture(params=[MODEL, AGAINST_REAL])
def beside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Beside]:
    if request.param == MODEL:
        found = model_source(request.getfixturevalue("machine"))
        server = found.client.server
        one = SourceClient(server, found.client.network, secondary=True)
        hold = partial(server.hold_secondaries, held=True)
        yield Beside(
            found,
            Source(found.served, one, found.database, found.life),
            lambda: held(hold, partial(server.hold_secondaries, held=False)),
        )
        return
    with ReplicaSet("three", tmp_path, tmp_path, parameters=TESTING) as members, real_source(members.uri) as found:
        members.wait_until_whole()
        secondary = members.secondaries()[0]
        with secondary.client() as client:
            InThisProcess().until(lambda: "majorityOpTime" in client.admin.command("hello")["lastWrite"])

            def stop(mode: str) -> None:
                client.admin.command("configureFailPoint", "rsSyncApplyStop", mode=mode)

            yield Beside(
                found,
                Source(found.served, client, found.database, found.life),
                lambda: held(partial(stop, "alwaysOn"), partial(stop, "off")),
            )


class ModelTarget(Asked):
    """Its index builds wait until they are released."""

    def __init__(self, machine: Machine) -> None:
        network = Network(machine)
        self._server = TargetServer(machine, network)
        self._server.judge = Nobody()
        super().__init__(InTheMachine(machine), TargetClient(self._server, network), "contract")

    def slow(self) -> None:
        self._server.slow_builds = _FOREVER

    def let_go(self) -> None:
        self._server.slow_builds = 0.0
        for collection in self._server.collections.values():
            for build in list(collection.building.values()):
                self._server.commit_build(build)

    def majority_held(self) -> AbstractContextManager[None]:
        majority = self._server.majority
        majority.lag = 0.001
        return held(partial(majority.hold, _FOREVER), partial(majority.hold, 0.0))

    def step_down(self) -> None:
        self._server.elect()

    def writable(self) -> bool:
        return True

    def rows(self, coll: str) -> list[Any]:
        return sorted(self._server.collections[TableName(self.database, coll)].rows)


class RealTarget(Asked):
    """Does the same by failpoints, each of which takes effect at once."""

    def __init__(self, client: Client, direct: Client, database: str) -> None:
        super().__init__(InThisProcess(), client, database)
        self._direct = direct

    def _fail_point(self, name: str, mode: str) -> None:
        self._direct.admin.command({"configureFailPoint": name, "mode": mode})

    def slow(self) -> None:
        self._fail_point("hangAfterStartingIndexBuild", "alwaysOn")

    def let_go(self) -> None:
        self._fail_point("hangAfterStartingIndexBuild", "off")

    def majority_held(self) -> AbstractContextManager[None]:
        return held(
            partial(self._fail_point, "disableSnapshotting", "alwaysOn"),
            partial(self._fail_point, "disableSnapshotting", "off"),
        )

    def step_down(self) -> None:
        self._direct.admin.command({"replSetStepDown": 1, "force": True})

    def writable(self) -> bool:
        return bool(self._direct.admin.command("hello")["isWritablePrimary"])

    def rows(self, coll: str) -> list[Any]:
        return sorted(row["_id"] for row in self._direct[self.database][coll].find())


@pytest.fixture(params=[MODEL, AGAINST_REAL])
def target(request: pytest.FixtureRequest) -> Iterator[ModelTarget | RealTarget]:
    if request.param == MODEL:
        yield ModelTarget(request.getfixturevalue("machine"))
        return
    server = request.getfixturevalue("real_server")
    database = f"contract_{uuid.uuid4().hex[:12]}"
    with Client(server.uri) as client, server.client() as direct:
        found = RealTarget(client, direct, database)
        yield found
        found.let_go()
        found.served.until(found.writable)
        client.drop_database(database)


@pytest.fixture
def slow_target(target: ModelTarget | RealTarget) -> ModelTarget | RealTarget:
    target.slow()
    return target
