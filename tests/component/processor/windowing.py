"""Runs windows as Spark's tasks do, in this process: real source, real target, real etcd, no Spark and no loop."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import itemgetter

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration, OnDivergence
from changefeed.event import RowType
from changefeed.lifecycle import Lifecycle
from changefeed.position import Position, Window
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig, Put
from coordination.layout import encode
from coordination.task_fence import Fence
from credentials.secret_files import SecretFiles
from devstack.mongodb.server import Client
from processor.lanes.lanes import LaneJob
from processor.task.job import ContextBase, JobContext, JobOutcome, JobSpec, TableSet, together
from processor.task.rows.division import divided_tables
from processor.task.wide_window import ShuffledBlob, apply_bucket, divide_tables, read_slice
from processor.task.window_task import replicate_window
from processor.task.worker_resources import worker_resources
from schema_store.versions import SchemaVersions
from source.connection import deployment_of
from source.oplog.window import newest_time
from source.tables.catalog import read_catalog
from tests.independent_compare import differences


@dataclass(frozen=True)
class Handed:
    context: JobContext

    @property
    def key(self) -> str:
        return self.context.key

    def load(self, bases: Mapping[str, ContextBase]) -> JobContext:
        return self.context


_ROWS = frozenset(type_.value.encode() for type_ in RowType)


class Windowing:
    """Replicates the current tables of a database to a database of the same name with `_to` appended."""

    def __init__(
        self,
        etcd: str,
        source_uri: str,
        target_uri: str,
        source: Client,
        target: Client,
        database: str,
        capture: Capture = Capture.OPLOG,
    ):
        """With change streams, documents are read with their images, and these divide a wide window."""
        self.source, self.target, self.database = source, target, database
        place, config = f"/windowing-{uuid.uuid4().hex[:8]}", EtcdConfig(endpoints=(etcd,))
        images = capture is Capture.CHANGE_STREAM and deployment_of(source).shows_all_ddl
        fields = {
            "id": "windowing",
            "source": source_uri,
            "sink": target_uri,
            "filter": {"tables": [f"{database}.*"]},
            "routes": [{"from": f"{database}.*", "to": f"{database}_to.*"}],
            "pipeline": {"pre_images": [f"{database}.*"] if images else []},
        }
        status = ChangefeedStatus(lifecycle=Lifecycle(), run=1, info_version=1, epoch=1)
        configuration = Configuration.parse(fields)
        info = ChangefeedInfo(configuration=configuration, created_at=datetime.now(UTC))
        with EtcdClient(config) as client:
            records = {f"{place}/node": b"{}", f"{place}/status": encode(status), f"{place}/info": encode(info)}
            epoch = client.txn((), [Put(key, value) for key, value in records.items()]).revision
        reading = read_catalog(source, lambda name: name.db == database)
        self.start = reading.position
        schemas = [replace(schema, valid_from=self.start) for schema in reading.tables]
        self.shared = Handed(
            JobContext(
                key=place,
                base_key=f"{place}/base",
                changefeed=ChangefeedId("windowing"),
                configuration=configuration.without_credentials(),
                info_key=f"{place}/info",
                secret_files=SecretFiles(),
                capture=capture,
                schemas=SchemaVersions.of(schemas),
                tables=TableSet.of(schema.id for schema in schemas),
                fence=Fence(etcd=config, node_key=f"{place}/node", epoch=epoch, status_key=f"{place}/status", run=1),
            )
        )
        self.attempt = f"{place}/revoked"
        self.used: Counter[int] = Counter()
        """The number of chunks of each bucket in the last wide window."""

    def now(self) -> Position:
        """A position after all writes so far."""
        return Position(ClusterTime.from_int(newest_time(self.source).to_int() + 1))

    def events(self, window: Window) -> list[Position]:
        """The position of each row event in the window."""
        with worker_resources.task(self.shared, self.attempt) as resources:
            found = (
                resources.rows.scan(event)
                for batch in resources.rows.reader(None).read(window)
                for event in batch.events
            )
            return [header.position for header in found if header.type in _ROWS]

    def run(self, window: Window, *, replay_until: Position) -> JobOutcome:
        """Runs the window in one task, which must succeed."""
        return _good(self.attempt_at(window, replay_until=replay_until))

    def attempt_at(self, window: Window, *, replay_until: Position) -> JobOutcome:
        """Runs the window in one task, which may fail."""
        return replicate_window(self.shared, self.spec(window, replay_until))

    def on_divergence(self, what: str) -> None:
        """Sets the policy for the following windows."""
        context = self.shared.context
        configuration = context.configuration.model_copy(update={"on_divergence": OnDivergence(what)})
        key = f"{self.attempt.removesuffix('/revoked')}/{what}"
        self.shared = Handed(replace(context, key=key, configuration=configuration))

    def run_wide(
        self, cuts: Sequence[Window], *, replay_until: Position, buckets: int = 2, only: Container[int] = range(1024)
    ) -> JobOutcome:
        """Runs the window in stages with shuffles. An attempt that breaks off may have applied any of the buckets, as `only` says."""
        spec = self.spec(Window(cuts[0].start, cuts[-1].end), replay_until)
        divided = divided_tables(spec, self.shared.context)
        chunks = _shuffled(
            chunk
            for number in range(len(cuts))
            for chunk in read_slice(self.shared, spec, cuts, buckets, divided, number)
        )
        if divided:
            parts = [[chunk for chunk in chunks if chunk[0][0] % buckets == bucket] for bucket in range(buckets)]
            chunks = _shuffled(chunk for part in parts for chunk in divide_tables(buckets, part))
        self.used = Counter(chunk[0][0] for chunk in chunks)
        outcomes = [
            apply_bucket(self.shared, spec, [chunk for chunk in chunks if chunk[0][0] == bucket], in_order=not divided)
            for bucket in range(buckets)
            if bucket in only
        ]
        return _good(together(outcomes))

    def differences(self) -> list[str]:
        return differences(self.source, self.database, self.target, f"{self.database}_to")

    def spec(self, window: Window, replay_until: Position) -> JobSpec:
        job = LaneJob(number=1, window=window, tables=self.shared.context.tables, replay_until=replay_until)
        return JobSpec(attempt=self.attempt, job=job, default=True)


def _shuffled(chunks: Iterable[ShuffledBlob]) -> list[ShuffledBlob]:
    return sorted(chunks, key=itemgetter(0))


def _good(outcome: JobOutcome) -> JobOutcome:
    assert outcome.error is None, f"{outcome.error.code}: {outcome.error.message}"
    assert (outcome.rows.tally.repaired, outcome.rows.tally.rejected) == (0, 0), outcome.rows.samples
    return outcome
