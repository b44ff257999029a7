"""A changefeed writes into files; what is read back from them alone equals the source, wherever its node was killed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.file_sink import FileSinkOptions
from devstack.mongodb.server import Client
from devstack.s3.faulty_proxy import Fault, FaultyProxy
from sink.files.stores.opening import open_store
from tests.component.node.server_process import SLUICE, Server
from tests.e2e.node.event_judge import judge
from tests.e2e.node.mortal import Mortal
from tests.e2e.node.workload import ddls_of_each_kind, until, writing
from tests.independent_compare import differences

_TABLES = ("notes", "orders")
_MARKS = 8
_S3_KEYS = {"SLUICE_TEST_S3_KEY": "test", "SLUICE_TEST_S3_SECRET": "t/e+s=t"}
_PATIENCE = ("--session-ttl", "10", "--grace", "150")  # the node shares two cores with its Spark


@pytest.fixture(scope="module")
def node(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = Path(tmp_path_factory.mktemp("n1")) / "log"
    with Server(etcd_endpoint, log, *_PATIENCE, name="n1", roles="owner,processor", environment=_S3_KEYS) as started:
        yield started


class Filed:
    """A changefeed into a directory, and a database of the target into which a reader writes what it finds there."""

    def __init__(self, node: Server, id: str, source: Client, source_uri: str, target: Client, directory: Path) -> None:
        self.node, self.id, self.directory = node, id, directory
        self.uri = f"file://{directory}"
        self.client, self.source, self.target = source, source[id], target
        self._source_uri = source_uri

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        answer = self.node.sluice(*arguments, input=input)
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    def create(self, query: str = "", **more: Any) -> None:
        configuration = {
            "id": self.id,
            "source": self._source_uri,
            "sink": f"{self.uri}{'&' if '?' in self.uri else '?'}commit_interval=1s{query}",
            "filter": {"tables": [f"{self.id}.*"]},
            **more,
        }
        self.sluice("changefeed", "create", "-", input=yaml.safe_dump(configuration))

    def until_written(self) -> None:
        """All that the source has now is before the watermark."""
        now = ClusterTime.from_bson(self.client.admin.command("hello")["lastWrite"]["opTime"]["ts"])
        until(lambda: self._marked() > now, f"a watermark after {now}")

    def _marked(self) -> ClusterTime:
        return ClusterTime.from_int(max((int(mark[:16], 16) for mark in self.marks()), default=0))

    def marks(self) -> list[str]:
        """The `pos` of the newest watermarks."""
        contents = [path.read_text() for path in sorted(self.directory.glob("checkpoint/*.json"))[-_MARKS:]]
        return [json.loads(content)["pos"] for content in contents]

    def uncommitted(self) -> set[str]:
        """The data files that no manifest names."""
        manifests = [json.loads(path.read_text()) for path in self.directory.glob("log/*/*.json")]
        receipts = [file for each in manifests for file in each["files"]]
        receipts += [file for each in manifests for copy in each["copies"] for file in copy["files"]]
        files = {str(path.relative_to(self.directory)) for path in self.directory.glob("data/*/*")}
        return files - {file["name"] for file in receipts}

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.sluice("read", self.uri).splitlines()]

    def differences(self, target_uri: str) -> list[str]:
        """Between the source and what a reader makes of the files."""
        self.target.drop_database(self.id)
        assert "written up to" in self.sluice("read", self.uri, "--to", target_uri, "--from-start")
        return differences(self.client, self.id, self.target, self.id)


class Bucketed(Filed):
    """The same into a bucket. Its keys are in the environment of those who connect."""

    def __init__(self, filed: Filed, bucket: str, s3: FaultyProxy) -> None:
        super().__init__(filed.node, filed.id, filed.client, filed._source_uri, filed.target, filed.directory)
        self.uri = bucket.replace("test:test@", "${env:SLUICE_TEST_S3_KEY}:${env:SLUICE_TEST_S3_SECRET}@")
        self._store = open_store(FileSinkOptions.parse(bucket).place)
        self._s3 = s3

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        answer = self.node.sluice(*arguments, input=input, environment=_S3_KEYS)
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    def marks(self) -> list[str]:
        names = self._store.names("checkpoint")[-_MARKS:]
        contents = (self._store.read(f"checkpoint/{name}") for name in names)
        return [json.loads(content)["pos"] for content in contents if content is not None]

    def disturb(self) -> None:
        """Each tenth request fails, one way or another."""
        faults = (Fault.LOST_ANSWER, Fault.BUSY, Fault.LATE_REQUEST, Fault.BROKEN, Fault.LOST_REQUEST)
        self._s3.watch(lambda request: faults[request.number // 10 % len(faults)] if request.number % 10 == 9 else None)

    def calm(self) -> int:
        """How many requests there were."""
        seen = len(self._s3.requests)
        self._s3.watch()
        return seen


@pytest.fixture
def feed(
    node: Server, database: str, source_uri: str, source_client: Client, target_client: Client, tmp_path: Path
) -> Iterator[Filed]:
    for table in _TABLES:
        source_client[database][table].insert_many([{"_id": f"row {n}", "n": n, "text": "x" * 50} for n in range(2000)])
    source_client[database].command("create", "old", viewOn="orders", pipeline=[{"$match": {"n": {"$lt": 9}}}])
    source_client[database]["orders"].create_index("n", unique=True, partialFilterExpression={"n": {"$gt": 0}})
    yield Filed(node, database, source_client, source_uri, target_client, tmp_path / "files")
    node.sluice("changefeed", "remove", database, "--yes")
    target_client.drop_database(database)


@pytest.mark.parametrize("query", ["", pytest.param("&format=bson&compression=none", marks=pytest.mark.soak)])
def test_what_is_read_back_equals_the_source(feed: Filed, target_uri: str, query: str) -> None:
    feed.create(query)
    with writing(feed.source, _TABLES):
        for number in range(3):
            ddls_of_each_kind(feed.source, number)
            feed.until_written()
    feed.until_written()
    found = feed.differences(target_uri)
    assert not found, "\n".join(found)
    assert judge(feed.messages(), feed.marks()) == []


def test_what_is_read_back_from_a_bucket_equals_the_source(
    feed: Filed, bucket: str, s3: FaultyProxy, target_uri: str
) -> None:
    """Though one of ten requests to its server fails."""
    bucketed = Bucketed(feed, bucket, s3)
    bucketed.create()
    bucketed.disturb()
    with writing(feed.source, _TABLES):
        ddls_of_each_kind(feed.source, 0)
        bucketed.until_written()
    bucketed.until_written()
    assert bucketed.calm() > 50
    found = bucketed.differences(target_uri)
    assert not found, "\n".join(found)
    assert judge(bucketed.messages(), bucketed.marks()) == []
    assert _S3_KEYS["SLUICE_TEST_S3_SECRET"] not in feed.node.log


def test_what_means_nothing_for_messages_is_refused(feed: Filed, database: str) -> None:
    feed.create()
    feed.until_written()
    table = f"{database}.orders"
    for arguments, reason in (
        (("verify", database), "there is nothing to compare"),
        (("table", "recopy", database, table, "--yes"), "is written as messages"),
    ):
        answer = feed.node.sluice(*arguments)
        assert answer.returncode != 0
        assert reason in answer.stderr + answer.stdout
    feed.sluice("changefeed", "pause", database)
    refused = feed.node.sluice("changefeed", "resume", database, "--start", "2026-01-01T00:00:00Z", "--yes")
    assert "writes messages" in refused.stderr
    present = json.loads(feed.sluice("changefeed", "query", database, "-o", "json"))["configuration"]
    changed = yaml.safe_dump({**present, "filter": {"tables": [f"{database}.notes"]}})
    refused = feed.node.sluice("changefeed", "update", database, "-", "--yes", input=changed)
    assert "filter" in refused.stderr
    assert "create another changefeed" in refused.stderr
    other = yaml.safe_dump({**present, "id": f"{database}-2"})
    refused = feed.node.sluice("changefeed", "create", "-", input=other)
    assert "is not empty; name an empty directory" in refused.stderr


_STEPS = (
    *("ddl_applied", "window_committed"),
    *("window_committing", "window_ended", "ddl_recorded", "ddl_executing_recorded", "ddl_executing", "ddl_released"),
)


@pytest.fixture
def mortal(node: Server) -> Iterator[Mortal]:
    yield Mortal(node)
    if "SLUICE_FAILPOINTS" in node._environment:
        Mortal(node).comes_back()


@pytest.mark.parametrize("steps", [_STEPS[:1], _STEPS[1:]], ids=["after a ddl", "at each other step"])
@pytest.mark.soak
def test_a_node_that_is_killed_leaves_files_that_can_be_read(
    feed: Filed, mortal: Mortal, target_uri: str, steps: tuple[str, ...]
) -> None:
    feed.create()
    feed.until_written()
    with writing(feed.source, _TABLES):
        for number, step in enumerate(steps):
            mortal.dies_at(step)
            ddls_of_each_kind(feed.source, number)
            mortal.until_dead()
            mortal.comes_back()
            feed.until_written()
    feed.until_written()
    found = feed.differences(target_uri)
    assert not found, "\n".join(found)
    assert judge(feed.messages(), feed.marks()) == []


@pytest.mark.soak
@pytest.mark.parametrize("step", ["chunks_committing", "chunks_committed"])
def test_a_node_that_is_killed_in_a_copy_copies_again(feed: Filed, mortal: Mortal, target_uri: str, step: str) -> None:
    mortal.dies_at(step)
    mortal.until_ready()
    feed.create()
    feed.source["notes"].delete_many({"n": {"$lt": 100}})
    feed.source["orders"].update_many(
        {"n": {"$lt": 50}}, {"$set": {"text": "changed", "more.deep": [1]}, "$unset": {"n": 1}}
    )
    mortal.until_dead()
    feed.source["notes"].delete_many({"n": {"$lt": 200}})
    feed.source["orders"].update_many({"text": "changed"}, {"$push": {"more.deep": 2}})
    mortal.comes_back()
    ddls_of_each_kind(feed.source, 0)
    feed.until_written()
    found = feed.differences(target_uri)
    assert not found, "\n".join(found)
    assert judge(feed.messages(), feed.marks()) == []


@pytest.mark.soak
def test_a_directory_that_goes_away_and_comes_back_loses_nothing(feed: Filed, target_uri: str) -> None:
    """As with its file system: what is in its place meanwhile is an empty directory."""
    feed.create()
    feed.until_written()
    aside = feed.directory.with_name("aside")
    with writing(feed.source, _TABLES):
        feed.directory.rename(aside)
        feed.directory.mkdir()
        ddls_of_each_kind(feed.source, 0)
        until(lambda: "is its file system mounted" in feed.sluice("changefeed", "query", feed.id), "the error")
        checkpoint = _checkpoint(feed)
        ddls_of_each_kind(feed.source, 1)
        assert _checkpoint(feed) == checkpoint
        shutil.rmtree(feed.directory)
        aside.rename(feed.directory)
        until(lambda: _checkpoint(feed) != checkpoint, "a checkpoint behind the error")
    feed.until_written()
    found = feed.differences(target_uri)
    assert not found, "\n".join(found)
    assert judge(feed.messages(), feed.marks()) == []


def _checkpoint(feed: Filed) -> str:
    return str(json.loads(feed.sluice("changefeed", "query", feed.id, "-o", "json"))["checkpoint"])


@pytest.mark.soak
def test_what_a_killed_node_did_not_commit_is_removed(feed: Filed, mortal: Mortal) -> None:
    mortal.dies_at("chunks_committing")
    mortal.until_ready()
    feed.create()
    mortal.until_dead()
    left = feed.uncommitted()
    assert left
    mortal.comes_back()
    until(lambda: not left & feed.uncommitted(), "the removal of what the node left")
    feed.until_written()
    assert judge(feed.messages(), feed.marks()) == []


@pytest.mark.soak
def test_a_reader_that_is_killed_goes_on_where_it_was(feed: Filed, target_uri: str) -> None:
    """`--follow --to` gets kill -9 after ever longer lives, while rows and DDL go on."""
    feed.create()
    read = ("read", feed.uri, "--to", target_uri)
    with writing(feed.source, _TABLES):
        for number in range(8):
            ddls_of_each_kind(feed.source, number)
            with subprocess.Popen([str(SLUICE), *read, "--follow"], stderr=subprocess.PIPE, text=True) as reader:
                with suppress(subprocess.TimeoutExpired):
                    _, said = reader.communicate(timeout=1.5 + number / 3)
                    pytest.fail(f"the reader ended: {said}")
                reader.kill()
    feed.until_written()
    assert "written up to" in feed.sluice(*read)
    found = differences(feed.client, feed.id, feed.target, feed.id)
    assert not found, "\n".join(found)
