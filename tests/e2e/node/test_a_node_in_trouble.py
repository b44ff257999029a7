"""A node's trouble stays its own: it gets tables only once its Spark has run a job, and the others are not disturbed by it."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from devstack.mongodb.server import Client
from devstack.proxy import Loop, Proxy, opened_by
from tests.component.node.server_process import Server
from tests.until import until

_PATIENCE = ("--session-ttl", "10", "--grace", "1")  # nodes share two cores with their Spark
_TABLES = tuple(f"t{number}" for number in range(6))


def _jdk() -> Path:
    java = shutil.which("java")
    assert java is not None
    return Path(java).resolve().parents[1]


class Pair:
    """Two nodes, `n1` and `n2`. The second one's JDK is a link, which does not lead anywhere until a test mends it."""

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

    def feed(self, changefeed: str) -> dict[str, Any]:
        return dict(json.loads(self.sluice("changefeed", "query", changefeed, "-o", "json")))


@pytest.fixture
def pair(etcd_endpoint: str, tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as started:
        yield Pair(etcd_endpoint, tmp_path, started)


@pytest.mark.soak
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
        states.add(pair.feed(database)["state"])
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


@pytest.mark.soak
def test_a_node_that_alone_does_not_reach_the_target_loses_its_tables_and_the_others_go_on(
    pair: Pair, database: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> None:
    source, target = source_client[database], target_client[database]
    for table in _TABLES:
        source[table].insert_one({"_id": "before"})
    pair.mend()
    pair.lame.until_ready()
    with Loop() as loop:
        proxy = Proxy(loop, int(target_uri.partition("/?")[0].rpartition(":")[2]))
        sink = f"mongodb://{proxy.address}/?directConnection=true"
        feed = {"id": database, "source": source_uri, "sink": sink, "filter": {"tables": [f"{database}.*"]}}
        pair.sluice("changefeed", "create", "-", input=yaml.safe_dump(feed))

        def followed(key: str, tables: Iterable[str] = _TABLES) -> None:
            for table in tables:
                source[table].insert_one({"_id": key})
            until(lambda: all(target[table].find_one({"_id": key}) for table in tables), f"{key} in {tables}")

        followed("at first")
        assert pair.homes(database) == {"n1": 3, "n2": 3}
        on_n1 = [table["name"] for table in pair.listed("table", "list", database) if table["node"].startswith("n1-")]
        states: set[str] = set()
        seen: set[str] = set()
        warnings: set[str] = set()
        proxy.block("n2", opened_by(lambda: pair.lame.processes))

        def left() -> bool:
            now = pair.feed(database)
            states.add(now["state"])
            warnings.add(now["error"]["message"] if now["error"] else "")
            seen.update(table["state"] for table in pair.listed("table", "list", database) if "n2-" in table["node"])
            followed(f"blocked {len(warnings)} {time.monotonic()}", [name.partition(".")[2] for name in on_n1])
            return pair.homes(database) == {"n1": 6}

        until(left, "all tables on the other node")
        assert states <= {"normal", "warning"}
        assert any(message.startswith("node n2-") for message in warnings), warnings
        assert "failing" in seen
        assert pair.node("n2")["target_reachable"] is False
        assert pair.node("n1")["target_reachable"] is True
        followed("without it")
        until(lambda: pair.feed(database)["state"] == "normal", "a changefeed without troubles")
        proxy.unblock("n2")
        until(lambda: pair.node("n2")["target_reachable"], "the node to see that it reaches the target again")
        assert "identical" in pair.sluice("verify", database)
