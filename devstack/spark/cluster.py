"""`SparkCluster`: a standalone master with workers; all of them fit on two cores and little memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from devstack.process import START_TIMEOUT_SECONDS, ServerFailed, side_by_side, wait_until
from devstack.spark.daemons import SparkMaster, SparkWorker

_MEMORY = "1200m"


class SparkCluster:
    """Started by `with`. Each worker may be killed, frozen and started alone; `add_worker` adds one.

    Executors find Python and its packages where their worker has them: `python3` is the interpreter of the tests, as on machines on which an
    operator has installed Sluice beside Spark.
    """

    def __init__(
        self, directory: Path, *, workers: int = 2, cores: int = 2, environment: Mapping[str, str] | None = None
    ) -> None:
        self._directory = directory
        self._cores = cores
        self._environment = environment or {}
        self.master = SparkMaster(directory / "master", directory / "log" / "spark-master.log")
        self.workers = [self._worker(number) for number in range(workers)]

    @property
    def url(self) -> str:
        """The value of `spark.master`."""
        return self.master.url

    def start(self) -> Self:
        """Starts everything that does not run, and waits until the workers are registered."""
        try:
            if not self.master.running:
                self.master.start()
            side_by_side([worker.start for worker in self.workers if not worker.running])
            if not wait_until(lambda: self.master.workers() >= len(self.workers), START_TIMEOUT_SECONDS):
                raise ServerFailed(f"{self.url} has {self.master.workers()} workers, not {len(self.workers)}")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends all processes, frozen ones too. May be called again."""
        side_by_side([server.kill for server in (self.master, *self.workers)])

    def add_worker(self) -> SparkWorker:
        worker = self._worker(len(self.workers)).start()
        self.workers.append(worker)
        return worker

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _worker(self, number: int) -> SparkWorker:
        name = f"spark-worker-{number}"
        return SparkWorker(
            name,
            self.master,
            self._directory / name,
            self._directory / "log" / f"{name}.log",
            cores=self._cores,
            memory=_MEMORY,
            environment=self._environment,
        )
