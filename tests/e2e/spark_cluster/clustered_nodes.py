"""`ClusteredNodes`: nodes whose windows run on a real Spark cluster. A changefeed follows a source that is written to all the time.

The cluster and the nodes run for all tests of a module. Each test writes to databases of its own.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self, TypeVar

import psutil

from coordination import failpoint
from devstack.mongodb.server import Client
from devstack.node import Node
from devstack.process import side_by_side
from devstack.spark.cluster import SparkCluster
from devstack.spark.daemons import SparkWorker
from tests.component.node.server_process import run
from tests.component.processor.spark.held_workers import HeldWorkers
from tests.e2e.chaos.workload import Workload
from tests.independent_compare import differences
from tests.until import until

T = TypeVar("T")

FEED = "spark-cluster"
_PREFIX = "cluster"
_POINTS = ("rows_due", "task_fenced")

_CONF = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "8s",
    "spark.network.timeoutInterval": "1s",
}
_ROOT = Path(__file__).parents[3]


class ClusteredNodes:
    def __init__(self, etcd: str, source: Client, target: Client, uris: tuple[str, str], directory: Path) -> None:
        self.source, self.target = source, target
        self._uris = uris
        self._directory = directory
        self._holds = directory / "holds"
        for point in _POINTS:
            (self._holds / point).mkdir(parents=True)
        points = {failpoint.VARIABLE: " ".join(f"{point}=hold:{self._holds}" for point in _POINTS)}
        self.spark = SparkCluster(directory / "spark", environment={"PYTHONPATH": str(_ROOT), **points})
        conf = [word for name, value in _CONF.items() for word in ("--spark-conf", f"{name}={value}")]
        flags = ("--cluster", directory.name, "--log-format", "json", "--spark-master", self.spark.url, *conf)
        self.nodes = {
            name: Node(name, etcd, directory / name, directory / "log" / f"{name}.log", *flags) for name in ("n1", "n2")
        }
        self._seeds = itertools.count(1)
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as running:
            running.callback(self.spark.stop)
            running.callback(side_by_side, [node.kill for node in self.nodes.values()])
            self.spark.start()  # with both workers, so that each gets an executor
            self.nodes["n1"].start()
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def sluice(self, *arguments: str) -> str:
        node = next(node for node in self.nodes.values() if node.running)
        done = run(arguments, {"SLUICE_SERVER": node.address})
        assert done.returncode == 0, f"{arguments}: {done.stderr}{done.stdout}"
        return done.stdout

    def create(self) -> None:
        """With tables to copy."""
        for number in range(6):
            rows = [{"_id": row, "text": "x" * 100} for row in range(2_000)]
            self.source[_PREFIX][f"copied{number}"].insert_many(rows)
        file = self._directory / "changefeed.yaml"
        source, sink = self._uris
        file.write_text(
            f"""
id: {FEED}
source: {source}
sink: {sink}
on_divergence: fail
filter: {{tables: ["{_PREFIX}*.*"]}}
routes: [{{from: "{_PREFIX}*.*", to: "to_{_PREFIX}*.*"}}]
""",
            encoding="utf-8",
        )
        self.sluice("changefeed", "create", str(file))
        self.until_replicated()

    @contextmanager
    def load(self) -> Iterator[Workload]:
        """Writes rows and DDL to the source all the time. At the end both sides must be equal."""
        seed = next(self._seeds)
        workload = Workload(self.source, seed, name=f"{_PREFIX}{seed}")
        workload.prepare()
        with workload:
            yield workload
            broken_off = time.monotonic()
            self.until_replicated()
        self.until(lambda: not self._differences(workload), "equality")
        took = time.monotonic() - broken_off
        sys.stdout.write(f"\nreplicates and is equal after {took:.1f} s; {workload.summary()}\n")

    def until_replicated(self) -> None:
        """Waits until a row written now has arrived."""
        mark = f"mark {time.monotonic()}"
        self.write(mark)
        self.until(lambda: self.arrived(mark), "a row that is written now")

    def write(self, key: str) -> None:
        self.source[_PREFIX]["marks"].insert_one({"_id": key})

    def delete(self, key: str) -> None:
        self.source[_PREFIX]["marks"].delete_one({"_id": key})

    def arrived(self, key: str) -> bool:
        return self.target[f"to_{_PREFIX}"]["marks"].find_one({"_id": key}) is not None

    def held(self, point: str, subject: str = FEED) -> HeldWorkers:
        return HeldWorkers(self._holds, point, subject)

    def worker_of(self, pid: int) -> SparkWorker:
        """The Spark worker on whose machine the process runs."""
        return next(worker for worker in self.spark.workers if pid in {each.pid for each in worker.processes})

    @staticmethod
    def executor_of(pid: int) -> psutil.Process:
        """The executor's JVM that the Python worker belongs to."""
        return next(parent for parent in psutil.Process(pid).parents() if parent.name() == "java")

    until = staticmethod(until)

    def _differences(self, workload: Workload) -> list[str]:
        return [
            difference
            for database in (_PREFIX, *workload.databases)
            for difference in differences(self.source, database, self.target, f"to_{database}")
        ]
