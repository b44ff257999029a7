"""The life cycle of the servers: start, discovery, restart, and stop when the starting process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import etcd3
import psutil
import pytest
from pymongo.errors import OperationFailure

from devstack.etcd.server import EtcdServer
from devstack.mongodb.release import DEFAULT_VERSION, VERSION_VARIABLE, Mongod
from devstack.mongodb.server import Client, MongoDB
from devstack.node import Node
from devstack.pinned_wheel import Unobtainable
from devstack.process import ServerFailed, wait_until
from devstack.stack import DevStack
from tests.forgetful import forget
from tests.until import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]


class Up:
    """`python -m devstack up`, as a user runs it."""

    def __init__(self, data: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "devstack", "up", "--data", str(data)],
            cwd=ROOT,
            env={key: value for key, value in os.environ.items() if not key.startswith("SLUICE_TEST_")},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.said: dict[str, str] = {}
        for line in self.process.stdout:
            word, _, rest = line.strip().partition(" ")
            self.said[word] = rest.strip()
            if word == "running":
                break
        self.servers = psutil.Process(self.process.pid).children(recursive=True)

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(PATIENCE_SECONDS)

    def all_gone(self) -> bool:
        return not any(server.is_running() and server.status() != psutil.STATUS_ZOMBIE for server in self.servers)


def test_up_prints_addresses_that_work_and_leaves_nothing_running_after_ctrl_c(tmp_path: Path) -> None:
    up = Up(tmp_path)
    for side in ("source", "target"):
        with Client(up.said[side]) as client:
            client["shop"]["orders"].insert_one({"_id": 1})
    with urllib.request.urlopen(f"http://{up.said['etcd']}/version") as answer:
        assert b"etcdserver" in answer.read()
    assert len(up.servers) == 3
    up.end(signal.SIGINT)
    assert up.process.returncode == 0
    assert up.all_gone()


def test_servers_die_with_a_starter_that_is_killed(tmp_path: Path) -> None:
    up = Up(tmp_path)
    up.end(signal.SIGKILL)
    assert wait_until(up.all_gone, 10)


def test_a_second_stack_runs_beside_the_first(tmp_path: Path) -> None:
    with DevStack(tmp_path / "first") as first, DevStack(tmp_path / "second") as second:
        addresses = {urlsplit(uri).port for stack in (first, second) for uri in (stack.source_uri, stack.target_uri)}
        assert len(addresses) == 4
        with Client(first.source_uri) as one, Client(second.source_uri) as two:
            one["shop"]["orders"].insert_one({"_id": 1})
            assert two["shop"]["orders"].find_one() is None


def test_a_stack_in_no_directory_removes_its_own() -> None:
    with DevStack() as stack:
        assert stack.directory.exists()
    stack.stop()
    assert not stack.directory.exists()


def test_a_stack_on_the_same_data_comes_up_where_it_was(tmp_path: Path) -> None:
    with DevStack(tmp_path) as stack:
        before = (stack.etcd_endpoint, stack.source_uri, stack.target_uri)
        with Client(stack.target_uri) as client:
            client["shop"]["orders"].insert_one({"_id": 1})
    with DevStack(tmp_path) as stack:
        assert (stack.etcd_endpoint, stack.source_uri, stack.target_uri) == before
        with Client(stack.target_uri) as client:
            assert client["shop"]["orders"].find_one() == {"_id": 1}


def test_a_node_on_the_same_data_has_its_addresses_again(tmp_path: Path) -> None:
    before, again, other = (Node(name, "127.0.0.1:1", tmp_path, tmp_path / "log") for name in ("n1", "n1", "n2"))
    assert again.ports == before.ports
    assert not {*other.ports} & {*before.ports}


def test_given_uris_replace_the_embedded_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_TEST_SOURCE", "mongodb://source.example/")
    monkeypatch.setenv("SLUICE_TEST_TARGET", "mongodb://target.example/")
    with DevStack(tmp_path) as stack:
        assert (stack.source_uri, stack.target_uri) == ("mongodb://source.example/", "mongodb://target.example/")
        assert [process.name() for process in psutil.Process().children() if process.pid == stack.etcd.pid] == ["etcd"]


def test_a_killed_etcd_starts_again_with_what_it_had_on_the_same_port(own_etcd: EtcdServer) -> None:
    etcd3.client(port=own_etcd.port).put("/a", "1")
    own_etcd.kill()
    assert not own_etcd.ready()
    own_etcd.start()
    assert etcd3.client(port=own_etcd.port).get("/a")[0] == b"1"


@pytest.mark.since("5.0")  # a 4.4.2 alone in its set may refuse to start after a kill: getOplogTruncateAfterPoint
def test_a_killed_mongodb_starts_again_with_what_it_had_on_the_same_port(own_mongodb: Callable[..., MongoDB]) -> None:
    server = own_mongodb("source")
    with Client(server.uri, w="majority") as client:
        client["shop"]["orders"].insert_one({"_id": 1})
        server.kill()
        server.start()
        assert client["shop"]["orders"].find_one() == {"_id": 1}


@pytest.mark.since("5.0")  # a 4.4.2 alone in its set may refuse to start after a kill: getOplogTruncateAfterPoint
def test_a_stream_resumes_over_a_kill_of_its_server(own_mongodb: Callable[..., MongoDB]) -> None:
    server = own_mongodb("source")
    with Client(server.uri) as client:
        with client.watch() as stream:
            client["shop"]["orders"].insert_many([{"_id": 1}, {"_id": 2}])
            token = stream.next()["_id"]
        server.kill()
        server.start()
        client["shop"]["orders"].insert_one({"_id": 3})
        with client.watch(resume_after=token) as stream:
            assert [stream.next()["documentKey"]["_id"] for _ in range(2)] == [2, 3]


def test_a_start_that_left_the_oplog_is_refused(forgetful: MongoDB) -> None:
    with Client(forgetful.uri) as client:
        with client.watch() as stream:
            client["shop"]["orders"].insert_one({"_id": 0})
            token, early = stream.next()["_id"], client["admin"].command("ping")["operationTime"]
        forget(client, early)
        for lost in ({"resume_after": token}, {"start_after": token}, {"start_at_operation_time": early}):
            with pytest.raises(OperationFailure) as refused, client.watch(**lost) as stream:
                stream.try_next()
            assert refused.value.code == 286


def test_a_server_is_of_the_version_that_was_chosen(own_mongodb: Callable[..., MongoDB]) -> None:
    with Client(own_mongodb("chosen").uri) as client:
        assert client.server_info()["version"] == os.environ.get(VERSION_VARIABLE, DEFAULT_VERSION)


def test_the_environment_chooses_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICE_MONGOD", raising=False)
    monkeypatch.delenv("SLUICE_MONGOD_VERSION", raising=False)
    default = Mongod.chosen()
    assert default.binary.parent.name == DEFAULT_VERSION
    monkeypatch.setenv("SLUICE_MONGOD_VERSION", "6.0.27")
    assert Mongod.chosen().binary.parent.name == "6.0.27"
    monkeypatch.setenv("SLUICE_MONGOD", str(default.binary))
    assert Mongod.chosen() == default


def test_a_version_that_nobody_has_is_refused_with_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_MONGOD_VERSION", "3.6.0")
    with pytest.raises(Unobtainable, match=r"no mongod 3.6.0: .* accepts 4.4.2, 5.0.4, 6.0.5, 6.0.27"):
        Mongod.chosen()


def test_a_binary_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLUICE_MONGOD", str(tmp_path))
    with pytest.raises(Unobtainable, match=r"SLUICE_MONGOD names .*, which is not an executable file"):
        Mongod.chosen()


def test_a_failed_start_shows_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "storage.bson").write_bytes(b"this is no database")
    server = MongoDB("source", tmp_path / "data", tmp_path / "source.log")
    with pytest.raises(
        ServerFailed,
        match=r"(?s)source ended with status \d+ before it was ready.*source.log:.*Unable to read the storage engine metadata file",
    ):
        server.start()


def test_a_server_does_not_start_on_a_port_that_another_has(own_etcd: EtcdServer, tmp_path: Path) -> None:
    rival = EtcdServer(tmp_path / "rival", tmp_path / "rival.log")
    rival.port = own_etcd.port
    with pytest.raises(ServerFailed, match=rf"etcd cannot start: port {rival.port} of 127.0.0.1 is taken"):
        rival.start()
