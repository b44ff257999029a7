"""`ChangefeedResources`: what a worker has open for one changefeed, made of the changefeed's context."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration, OnOccupied
from changefeed.event import RowType
from changefeed.records.requests import ChangefeedInfo
from changefeed.table import TableId, TableName, TableSchema
from credentials.clients import Closable
from credentials.secret_files import SecretFiles
from credentials.secrets import hash_key
from processor.lanes.lanes import LaneJob
from processor.task.job import JobContext, JobSpec
from processor.task.limiter import FollowedLimit, Limiter, SharedBucket
from processor.task.rows.gate import RowFilter
from processor.task.rows.mounter import Mounter, MountOptions
from processor.task.rows.source_rows import SourceRows, image_options, read_options
from sink.ddl import DdlApplier
from sink.opening import open_sink
from sink.row import AskedRows, SoleTable, TargetTable, Turns
from sink.sink import CopyLog, DocumentLoader, Permit, TaskTerms
from source.columns import Columns, columns_of
from source.source import RowCapture, TaskSource


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ends:
    """Source and sink of a changefeed, as they are open now."""

    asked: Configuration
    """As the changefeed's user wrote it. A run does not outlive a change of its URIs, and its permit ends with it."""
    source: TaskSource
    connection: Closable | None
    """What the process keeps open of the sink (`kept_connection`)."""

    def open(self, source: TaskSource, connection: Closable | None) -> bool:
        """Whether these are still what is open."""
        return self.source is source and self.connection is connection


class ChangefeedResources:
    """Nothing that they keep may refer to them: a worker collects no cycles of what it keeps (`worker_resources.py`)."""

    def __init__(
        self, context: JobContext, ends: Ends, permit: Permit, turns: Turns, asked: Callable[[], ChangefeedInfo]
    ) -> None:
        """`asked` reads from etcd what the user wants."""
        configuration = context.configuration
        self.context = context
        self.ends = ends
        self.source = ends.source
        self._permit = permit
        self._asked = asked
        self._buckets: dict[str, SharedBucket] = {}
        as_written = configuration.model_copy(
            update={"sink": ends.asked.sink}
        )  # the URI in a context may lack its options
        self.sink = open_sink(as_written, context.secret_files, kept=ends.connection, life=context.life, permit=permit)
        reading = read_options(configuration)
        self.rows = self.source.rows(
            context.schemas.names(),
            context.schemas.by_uuid(),
            replace(reading, whole_keys=self.sink.whole_keys, about=self.sink.every_change),
        )
        columns_of = cache(partial(_shown_columns, configuration, context.secret_files))
        self.mounter = Mounter(
            context.schemas,
            configuration.routes.target,
            self.rows.update_of,
            MountOptions(
                order_by=configuration.pipeline.order_by,
                about_of=self.rows.about_of if self.sink.every_change else None,
                images=configuration.images,
            ),
            columns_of,
        )
        self.row_filter = RowFilter(configuration.filter)
        self.source_rows = SourceRows(self.source, context.schemas, self.row_filter, columns_of)
        self._terms = TaskTerms(
            epoch=context.fence.epoch,
            turns=turns,
            fetch=self.source_rows.fetch,
            several_shards=context.capture is Capture.SHARD_OPLOGS,
        )
        self.writer = self.sink.writer(self._terms)
        self.folds = not self.sink.every_change

    def close(self) -> None:
        """No task may use them any more. What `ends` has stays open, as others use it, too."""
        self.writer.close()
        for bucket in self._buckets.values():
            bucket.close()

    @cached_property
    def rows_with_images(self) -> RowCapture:
        """Also reads the documents before and after each change, where the source keeps them. Only change streams show them."""
        return self.source.rows_with_images(image_options(self.context.configuration))

    @cached_property
    def sources(self) -> Mapping[TableName, Sequence[TableName]]:
        """The source's tables, at any position, by their names downstream. Computed once, not for each table that is copied."""
        route = self.context.configuration.routes.target
        found: dict[TableName, list[TableName]] = defaultdict(list)
        for name in self.context.schemas.names():
            if (target := route(name)) is not None:
                found[target].append(name)
        return found

    @cached_property
    def ddl(self) -> DdlApplier:
        """For the tables of initial copies; all other DDL is the owner's."""
        return self.sink.ddl()

    @cached_property
    def copy_log(self) -> CopyLog | None:
        return self.sink.copy_log()

    def sole(self, job: LaneJob, copied: Container[TableId], table: TableId) -> SoleTable | None:
        """For a job that is one task. A copy writes rows of its table, too.

        The source may have no cluster time as late as the window's end yet, so a read after it would be refused.
        """
        window = job.of(table)
        if window is None or table in copied:
            return None
        schema = self.context.schemas.at(table, window.start)
        return None if schema is None else SoleTable(self.mounter.mounted(schema).target, window.start)

    def asked(self, job: LaneJob, spec: JobSpec) -> list[AskedRows]:
        """The rows to be repaired, of the tables that the job alone writes.

        A row that the source does not have is removed from a plain copy only: elsewhere it may be another table's, may have been there
        before, or the filter may have kept it.
        """
        found: list[AskedRows] = []
        for table, request in spec.repairs.items():
            place = self.sole(job, spec.copied, table)
            if place is None:
                continue
            configuration, name = self.context.configuration, place.table.source
            filter_ = configuration.filter.of(name)
            kept = configuration.on_occupied is OnOccupied.KEEP or self._shared(place.table)
            conditional = any(where.delete is not None for where in filter_.conditions)
            removes = not (kept or conditional or RowType.DELETE in filter_.ignored)
            found.append(AskedRows(place=place, keys=request.rows, removes=removes))
        return found

    def copy_limiter(self, share: float) -> Limiter:
        limit = FollowedLimit(self.context.configuration.copy_limit, lambda: self._asked().configuration.copy_limit)
        return Limiter(limit, share, partial(self._bucket, "copy"), permit=self._permit)

    def apply_limiter(self, share: float) -> Limiter:
        limit = FollowedLimit(self.context.configuration.apply_limit, lambda: self._asked().configuration.apply_limit)
        return Limiter(limit, share, partial(self._bucket, "apply"), permit=self._permit)

    def _bucket(self, kind: str) -> SharedBucket:
        if kind not in self._buckets:
            self._buckets[kind] = SharedBucket(f"{self.context.fence.node_key} {self.context.changefeed} {kind}")
        return self._buckets[kind]

    def check_reachable(self) -> None:
        """Raises if the source, the sink or etcd does not answer here."""
        self.source.check()
        self.sink.confirm()
        self.sink.check()
        self._permit()

    def loader(self, schema: TableSchema, *, once: bool) -> DocumentLoader:
        """`once`: no document may be sent twice."""
        table = self.mounter.mounted(schema).target
        return self.sink.loader(table, self._terms, once=once, shared=self._shared(table))

    def _shared(self, table: TargetTable) -> bool:
        """Whether other tables of the source may have its name downstream, too."""
        return self.context.configuration.routes.may_share(table.source)


def _shown_columns(configuration: Configuration, files: SecretFiles, name: TableName) -> Columns | None:
    return columns_of(configuration.columns_of(name), partial(hash_key, files=files))
