"""One window's job over recorded events, through Spark as the processor runs it, in a process of its own so that its CPU time can be told.

    python -m bench.replayed_job ETCD SOURCE SINK EVENTS SLICES

Prints `ready` once Spark, its workers and the JVM's compiler are warm; then runs the window for each line it is given, and
prints how many events were applied.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bench.recorded import EVENTS_A_SECOND, FIRST_SECOND, TABLES
from bench.usage import Usage
from changefeed.cluster_time import ClusterTime
from changefeed.configuration import Configuration
from changefeed.lifecycle import Lifecycle
from changefeed.position import Position, Window
from changefeed.records import ChangefeedId, ChangefeedStatus
from changefeed.table import TableId, TableName, TableSchema
from coordination.etcd import Put
from coordination.etcd_client import EtcdClient
from coordination.etcd_connection import EtcdConfig
from coordination.layout import encode
from node import logging
from node.configuration import LogFormat
from processor.job import JobSpec
from processor.job_context import Fence, JobContext
from processor.lanes import LaneJob
from processor.pipeline import Pipeline, SharedContext
from processor.spark import SparkRunner
from processor.windows import WindowLimits
from schema_store.versions import SchemaVersions

_ROOT = Path(__file__).parents[1]
_START = Position(ClusterTime(FIRST_SECOND, 0))
_WARM_UPS = 2


class ReplayedJob:
    """The process, from outside."""

    def __init__(self, *, etcd: str, source: str, sink: str, events: int, slices: int, log: Path) -> None:
        self._events, self._log = events, log
        command = [sys.executable, "-m", "bench.replayed_job", etcd, source, sink, str(events), str(slices)]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._expect("ready")

    def run(self) -> Usage:
        with Usage(driver=self._process.pid) as usage:
            assert self._process.stdin is not None
            self._process.stdin.write("run\n")
            self._process.stdin.flush()
            self._expect(str(self._events))
        return usage

    def close(self) -> None:
        self._process.communicate()

    def _expect(self, said: str) -> None:
        output: IO[str] | None = self._process.stdout
        line = output.readline().strip() if output else ""
        if line != said:
            self._process.kill()
            raise RuntimeError(f"a replayed job: expected {said!r}, observed {line!r}; see {self._log}")


def main(etcd: str, source: str, sink: str, events: int, slices: int) -> None:
    logging.set_up(LogFormat.CONSOLE)
    context = _context(etcd, source, sink, slices)
    with _alive(context.fence), SparkRunner() as spark:
        pipeline, shared = Pipeline(spark, WindowLimits()), SharedContext(context)
        for _ in range(_WARM_UPS):
            _run(pipeline, shared, events)
        print("ready", flush=True)
        for _ in sys.stdin:
            print(_run(pipeline, shared, events), flush=True)


def _run(pipeline: Pipeline, shared: SharedContext, events: int) -> int:
    end = Position(ClusterTime(FIRST_SECOND + (events - 1) // EVENTS_A_SECOND + 1, 0))
    job = LaneJob(number=1, window=Window(_START, end), tables=shared.context.tables, replay_until=_START)
    outcome = pipeline.run(shared, JobSpec(attempt=f"{shared.context.key}/revoked", job=job, default=True))
    if outcome.error is not None:
        raise RuntimeError(f"{outcome.error.code}: {outcome.error.message}")
    return sum(outcome.applied.values())


def _context(etcd: str, source: str, sink: str, slices: int) -> JobContext:
    ids = [TableId(uuid.UUID(int=number + 1).hex) for number in range(TABLES)]
    names = [TableName("bench", f"table{number:02}") for number in range(TABLES)]
    tables = [TableSchema(id=id, name=name, valid_from=_START) for id, name in zip(ids, names, strict=True)]
    fields = {"id": "replayed", "source": source, "sink": sink, "filter": {"tables": ["bench.*"]}}
    fields["pipeline"] = {"parallelism": slices}
    place = f"/sluice/replayed-{uuid.uuid4().hex[:8]}"
    config = EtcdConfig(endpoints=(etcd,))
    with EtcdClient(config) as client:
        written = client.txn((), (Put(f"{place}/node", b"{}"),))
    status_key = f"{place}/status"
    return JobContext(
        key=place,
        changefeed=ChangefeedId("replayed"),
        configuration=Configuration.parse(fields),
        schemas=SchemaVersions.of(tables),
        tables=frozenset(ids),
        fence=Fence(etcd=config, node_key=f"{place}/node", epoch=written.revision, status_key=status_key, run=1),
    )


@contextmanager
def _alive(fence: Fence) -> Iterator[None]:
    """A changefeed that runs, as its tasks look it up."""
    status = ChangefeedStatus(lifecycle=Lifecycle(), run=1, info_version=1, epoch=1)
    with EtcdClient(fence.etcd) as client:
        client.txn((), (Put(fence.status_key, encode(status)),))
        yield


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
