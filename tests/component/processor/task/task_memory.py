"""Replicates one window as a worker does, and prints the number of applied events and the largest resident set in bytes.

python task_memory.py WAY ETCD SOURCE SINK DATABASE START END
"""

from __future__ import annotations

import pickle
import re
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.lifecycle import Lifecycle
from changefeed.position import Position, Window
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableName, TableSchema
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig, Put
from coordination.layout import encode
from coordination.task_fence import Fence
from credentials.secret_files import SecretFiles
from processor.lanes.lanes import LaneJob
from processor.spark.worker_daemon import keep_freed_memory
from processor.task.job import JobContext, JobSpec, TableSet
from processor.task.rows import applier
from processor.task.wide_window import ShuffledBlob, apply_bucket, read_slice
from processor.task.window_task import replicate_window
from schema_store.versions import SchemaVersions
from source.connection import connect
from tests.component.processor.windowing import Handed


def _schemas(source: str, database: str, valid_from: Position) -> SchemaVersions:
    with connect(source) as client:
        found = list(client[database].list_collections())
    return SchemaVersions.of(
        [
            TableSchema(
                id=TableId(entry["info"]["uuid"].hex()), name=TableName(database, entry["name"]), valid_from=valid_from
            )
            for entry in found
        ]
    )


def _context(etcd: str, source: str, sink: str, database: str, start: Position) -> JobContext:
    place, config = f"/memory-{uuid.uuid4().hex[:8]}", EtcdConfig(endpoints=(etcd,))
    status = ChangefeedStatus(lifecycle=Lifecycle(), run=1, info_version=1, epoch=1)
    fields = {"id": "memory", "source": source, "sink": sink, "filter": {"tables": [f"{database}.*"]}}
    configuration = Configuration.parse({**fields, "pipeline": {"max_lag_batch": "1GiB"}})
    info = ChangefeedInfo(configuration=configuration, created_at=datetime.now(UTC))
    with EtcdClient(config) as client:
        records = {f"{place}/node": b"{}", f"{place}/status": encode(status), f"{place}/info": encode(info)}
        epoch = client.txn((), [Put(key, value) for key, value in records.items()]).revision
    schemas = _schemas(source, database, start)
    return JobContext(
        key=place,
        base_key=f"{place}/base",
        changefeed=ChangefeedId("memory"),
        configuration=configuration.without_credentials(),
        info_key=f"{place}/info",
        secret_files=SecretFiles(),
        capture=Capture.OPLOG,
        schemas=schemas,
        tables=TableSet.of(schema.id for schema in schemas.tables_at(start)),
        fence=Fence(etcd=config, node_key=f"{place}/node", epoch=epoch, status_key=f"{place}/status", run=1),
    )


def _shuffled(chunks: Iterable[ShuffledBlob]) -> Iterator[ShuffledBlob]:
    """Passes the chunks through files, as Spark does: a worker runs one task at a time."""
    directory = Path(tempfile.mkdtemp())
    paths: list[Path] = []
    for chunk in chunks:
        paths.append(directory / str(len(paths)))
        paths[-1].write_bytes(pickle.dumps(chunk))
    return (pickle.loads(path.read_bytes()) for path in paths)


def _without_early_end() -> None:
    """However slow the machine is: what is measured is the memory of a whole window."""
    applier.LONGEST_SECONDS = applier.HELD_UP_SECONDS = float("inf")


def main(way: str, etcd: str, source: str, sink: str, database: str, start: str, end: str) -> None:
    keep_freed_memory()
    _without_early_end()
    window = Window(Position.parse(start), Position.parse(end))
    shared = Handed(_context(etcd, source, sink, database, window.start))
    job = LaneJob(number=1, window=window, tables=shared.context.tables, replay_until=window.start)
    spec = JobSpec(attempt=f"{shared.key}/revoked", job=job, default=True)
    if way == "narrow":
        outcome = replicate_window(shared, spec)
    else:
        outcome = apply_bucket(shared, spec, _shuffled(read_slice(shared, spec, [window], 1, (), 0)))
    if outcome.error is not None:
        raise SystemExit(f"{outcome.error.code}: {outcome.error.message}")
    largest = _largest_resident()
    sys.stdout.write(f"{sum(outcome.rows.tally.applied.values())} {largest}\n")


def _largest_resident() -> int:
    """Of this program alone: `getrusage` counts what its parent had before it became this program, and a process of tests may have had more."""
    [kilobytes] = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), flags=re.MULTILINE)
    return int(kilobytes) * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
