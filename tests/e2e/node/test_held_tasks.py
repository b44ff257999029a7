"""A task that nothing ends: it is told, and a removal ends it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from coordination import failpoint
from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.component.processor.spark.held_workers import HeldWorkers
from tests.e2e.node.conftest import PATIENCE
from tests.until import until

pytestmark = pytest.mark.soak


@pytest.fixture
def holds(tmp_path: Path) -> Path:
    for point in ("window_read", "chunk_loaded"):
        (tmp_path / point).mkdir()
    return tmp_path


@pytest.fixture
def node(etcd_endpoint: str, holds: Path) -> Iterator[Server]:
    points = " ".join(f"{point}=hold:{holds}" for point in ("window_read", "chunk_loaded"))
    environment = {failpoint.VARIABLE: points}
    with Server(
        etcd_endpoint, holds / "log", *PATIENCE, name="n1", roles="owner,processor", environment=environment
    ) as started:
        yield started


def sluice(node: Server, *arguments: str, input: str | None = None) -> str:
    answer = node.sluice(*arguments, input=input)
    assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}"
    return answer.stdout


def create(node: Server, source: str, sink: str, database: str) -> None:
    configuration = yaml.safe_dump(
        {"id": database, "source": source, "sink": sink, "filter": {"tables": [f"{database}.*"]}}
    )
    sluice(node, "changefeed", "create", "-", input=configuration)


def query(node: Server, feed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sluice(node, "changefeed", "query", feed, "-o", "json"))
    return found


def test_a_held_window_is_named_and_a_removal_ends_it(
    node: Server, holds: Path, source_uri: str, target_uri: str, source_client: Client, database: str
) -> None:
    table = source_client[database]["orders"]
    table.insert_one({"_id": 1})
    create(node, source_uri, target_uri, database)
    with HeldWorkers(holds, "window_read", database) as held:
        table.insert_one({"_id": "the last row"})
        worker = psutil.Process(held.worker())
        until(lambda: query(node, database)["state"] == "warning", "the warning of a window that takes long")
        error = query(node, database)["error"]
        [listed] = json.loads(sluice(node, "table", "list", database, "-o", "json"))
        assert error["code"] == "task_overdue"
        assert f"a window of {database}.orders has had no answer for 60 s" in error["message"]
        assert listed["state"] == "failing"
        log = holds / "log"
        until(lambda: "task_stands_still" in log.read_text(encoding="utf-8"), "the row in the log")
        stands = next(line for line in log.read_text(encoding="utf-8").splitlines() if "task_stands_still" in line)
        assert "the last row" in stands

        waited = node.sluice("changefeed", "remove", database, "--yes", "--timeout", "10")
        assert waited.returncode == 1
        assert f"changefeed {database} is not removed after 10 s" in waited.stderr
        assert "tasks of it still run on n1" in waited.stderr
        until(lambda: database not in sluice(node, "changefeed", "list", "-o", "json"), "the end of the changefeed")
        assert not worker.is_running()
