"""A changefeed into files, as tests see it: what it has written, and what a reader makes of that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.file_options import FileSinkOptions
from devstack.mongodb.server import Client
from devstack.s3.faulty_proxy import Fault, FaultyProxy
from sink.messages.files.directory import open_store
from tests.component.node.server_process import Server
from tests.e2e.node.event_judge import judge
from tests.independent_compare import differences
from tests.until import until

TABLES = ("notes", "orders")
S3_KEYS = {"SLUICE_TEST_S3_KEY": "test", "SLUICE_TEST_S3_SECRET": "t/e+s=t"}
_MARKS = 8


def fill(source: Client, database: str) -> None:
    for table in TABLES:
        source[database][table].insert_many([{"_id": f"row {n}", "n": n, "text": "x" * 50} for n in range(2000)])
    source[database].command("create", "old", viewOn="orders", pipeline=[{"$match": {"n": {"$lt": 9}}}])
    source[database]["orders"].create_index("n", unique=True, partialFilterExpression={"n": {"$gt": 0}})


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
        self.sluice("changefeed", "create", "-", input=self.configuration(query, **more))

    def configuration(self, query: str = "", **more: Any) -> str:
        configuration = {
            "id": self.id,
            "source": self._source_uri,
            "sink": f"{self.uri}{'&' if '?' in self.uri else '?'}commit_interval=1s{query}",
            "filter": {"tables": [f"{self.id}.*"]},
            **more,
        }
        return yaml.safe_dump(configuration)

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
        manifests = [json.loads(path.read_text()) for path in self.directory.glob("log/*/*/*.json")]
        receipts = [file for each in manifests for file in each["files"]]
        receipts += [file for each in manifests for copy in each["copies"] for file in copy["files"]]
        files = {str(path.relative_to(self.directory)) for path in self.directory.glob("data/*/[!.]*")}
        return files - {file["name"] for file in receipts}

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.sluice("read", self.uri).splitlines()]

    def messages_of(self, type: str) -> list[dict[str, Any]]:
        return [message for message in self.messages() if message.get("type") == type]

    def differences(self, target_uri: str) -> list[str]:
        """Between the source and what a reader makes of the files."""
        self.target.drop_database(self.id)
        assert "written up to" in self.sluice("read", self.uri, "--to", target_uri, "--from-start")
        return differences(self.client, self.id, self.target, self.id)

    def wrong(self, target_uri: str) -> list[str]:
        return [*self.differences(target_uri), *judge(self.messages(), self.marks())]


class Bucketed(Filed):
    """The same into a bucket. Its keys are in the environment of those who connect."""

    def __init__(
        self, filed: Filed, bucket: str, s3: FaultyProxy | None = None, keys: Mapping[str, str] = S3_KEYS
    ) -> None:
        super().__init__(filed.node, filed.id, filed.client, filed._source_uri, filed.target, filed.directory)
        self.uri = bucket.replace("test:test@", "${env:SLUICE_TEST_S3_KEY}:${env:SLUICE_TEST_S3_SECRET}@")
        self._store = open_store(FileSinkOptions.parse(bucket).place)
        self._s3 = s3
        self._keys = keys

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        answer = self.node.sluice(*arguments, input=input, environment=self._keys)
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    def marks(self) -> list[str]:
        names = self._store.names("checkpoint")[-_MARKS:]
        contents = (self._store.read(f"checkpoint/{name}") for name in names)
        return [json.loads(content)["pos"] for content in contents if content is not None]

    def disturb(self) -> None:
        """Each tenth request fails, one way or another."""
        faults = (Fault.LOST_ANSWER, Fault.BUSY, Fault.LATE_REQUEST, Fault.BROKEN, Fault.LOST_REQUEST)
        assert self._s3 is not None
        self._s3.watch(lambda request: faults[request.number // 10 % len(faults)] if request.number % 10 == 9 else None)

    def calm(self) -> int:
        """How many requests there were."""
        assert self._s3 is not None
        seen = len(self._s3.requests)
        self._s3.watch()
        return seen
