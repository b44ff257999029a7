"""A node's trouble stays its own: it gets tables only once its Spark has run a job, and the others are not disturbed by it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.e2e.node.workload import until

_PATIENCE = ("--session-ttl", "10", "--grace", "1")  # nodes share two cores with their Spark
_TABLES = tuple(f"t{number}" for number in range(6))


def _jdk() -> Path:
    java = shutil.which("java")
    assert java is not None
    return Path(java).resolve().parents[1]


class Pair:
    """Two nodes. The second one's JDK is a link, which a test can break and mend."""

    def __init__(self, etcd: str, directory: Path, started: ExitStack) -> None:
        self.jdk = directory / "jdk"
        self.well = Server(etcd, directory / "n1", *_PATIENCE, name="n1", roles="owner,processor")
        self.lame = Server(
            etcd,
            directory / "n2",
            *_PATIENCE,
            cluster=self.well.cluster,
            name="n2",
            roles="owner,processor",
            environment={"JAVA_HOME": str(self.jdk)},
        )
        started.enter_context(self.well)
        started.callback(self.lame.kill)
        self.lame.start()

    def mend(self) -> None:
        self.jdk.symlink_to(_jdk())

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        answer = self.well.sluice(*arguments, input=input)
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        return list(json.loads(self.sluice(*arguments, "-o", "json")))

    def node(self, name: str) -> dict[str, Any]:
        return next((node for node in self.listed("node", "list") if node["name"] == name), {})

    def homes(self, changefeed: str) -> Counter[str]:
        return Counter(table["node"].partition("-")[0] for table in self.listed("table", "list", changefeed))

    def state(self, changefeed: str) -> str:
        return str(json.loads(self.sluice("changefeed", "query", changefeed, "-o", "json"))["state"])


@pytest.fixture
def pair(etcd_endpoint: str, tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as started:
        yield Pair(etcd_endpoint, tmp_path, started)


def test_a_node_whose_spark_cannot_start_gets_no_tables_until_it_can(
    pair: Pair, database: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> None:
    source, target = source_client[database], target_client[database]
    for table in _TABLES:
        source[table].insert_one({"_id": "before"})
    until(lambda: pair.node("n2"), "the second node's session")
    feed = {"id": database, "source": source_uri, "sink": target_uri, "filter": {"tables": [f"{database}.*"]}}
    pair.sluice("changefeed", "create", "-", input=yaml.safe_dump(feed))

    states: set[str] = set()

    def followed(key: str) -> bool:
        states.add(pair.state(database))
        return all(target[table].find_one({"_id": key}) for table in _TABLES)

    for number in range(10):
        for table in _TABLES:
            source[table].insert_one({"_id": f"while broken {number}"})
        until(lambda: followed(f"while broken {number}"), f"rows {number} of all tables")  # noqa: B023  # called at once
    assert states == {"normal"}
    assert pair.homes(database) == {"n1": len(_TABLES)}
    status, reason = pair.lame.get("/readyz")
    assert (status, "Java" in reason) == (503, True), reason
    assert "JAVA" in pair.node("n2")["not_ready"].upper()

    pair.mend()
    pair.lame.until_ready()
    until(lambda: min(pair.homes(database).get(name, 0) for name in ("n1", "n2")) == len(_TABLES) // 2, "even nodes")
    for table in _TABLES:
        source[table].insert_one({"_id": "mended"})
    until(lambda: followed("mended"), "the last rows")
    assert states == {"normal"}
    assert "identical" in pair.sluice("verify", database)
