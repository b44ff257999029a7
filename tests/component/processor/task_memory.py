"""Replicates one window of recorded events as a worker does, and prints how many it applied and its largest resident set in bytes.

python task_memory.py WAY ETCD PORT SECONDS

One server at the port is both source and target, by two names
"""

from __future__ import annotations

import resource
import sys
import uuid

from bench.recorded import FIRST_SECOND, TABLES
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
from processor.job import JobSpec
from processor.job_context import Fence, JobContext
from processor.lanes import LaneJob
from processor.window_task import apply_bucket, read_slice, replicate_window
from schema_store.versions import SchemaVersions
from tests.component.processor.windowing import Handed

_START = Position(ClusterTime(FIRST_SECOND, 0))


def _context(etcd: str, port: int) -> JobContext:
    place, config = f"/memory-{uuid.uuid4().hex[:8]}", EtcdConfig(endpoints=(etcd,))
    status = ChangefeedStatus(lifecycle=Lifecycle(), run=1, info_version=1, epoch=1)
    with EtcdClient(config) as client:
        epoch = client.txn((), (Put(f"{place}/node", b"{}"), Put(f"{place}/status", encode(status)))).revision
    schemas = [
        TableSchema(
            id=TableId(uuid.UUID(int=number + 1).hex), name=TableName("bench", f"table{number:02}"), valid_from=_START
        )
        for number in range(TABLES)
    ]
    source, sink = (f"mongodb://{host}:{port}/?directConnection=true" for host in ("127.0.0.1", "localhost"))
    fields = {"id": "memory", "source": source, "sink": sink, "filter": {"tables": ["bench.*"]}}
    return JobContext(
        key=place,
        changefeed=ChangefeedId("memory"),
        configuration=Configuration.parse(fields),
        schemas=SchemaVersions.of(schemas),
        tables=frozenset(schema.id for schema in schemas),
        fence=Fence(etcd=config, node_key=f"{place}/node", epoch=epoch, status_key=f"{place}/status", run=1),
    )


def main(way: str, etcd: str, port: int, seconds: int) -> None:
    shared = Handed(_context(etcd, port))
    window = Window(_START, Position(ClusterTime(FIRST_SECOND + seconds, 0)))
    job = LaneJob(number=1, window=window, tables=shared.context.tables, replay_until=_START)
    spec = JobSpec(attempt=f"{shared.key}/revoked", job=job, default=True)
    if way == "narrow":
        outcome = replicate_window(shared, spec)
    else:
        outcome = apply_bucket(shared, spec, read_slice(shared, spec, 0, window, 1))
    if outcome.error is not None:
        raise SystemExit(f"{outcome.error.code}: {outcome.error.message}")
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(f"{sum(outcome.applied.values())} {largest}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
