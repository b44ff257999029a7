"""`WorkerResources`: what one Python worker keeps open between the tasks that Spark gives it.

Connections, the mounter's caches and unpickled contexts cost more than the events of a narrow window, so they are kept. A worker process
runs one task at a time, so one permit is in force at a time: the permit of the running task.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, cached_property, partial
from typing import Any, Protocol, TypeAlias

import structlog
from pymongo import MongoClient

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration, OnDivergence, OnOccupied, OnRejected
from changefeed.config.sinks.sink_abilities import abilities_of
from changefeed.config.uri import ConnectionUri
from changefeed.errors import FencedError
from changefeed.event import RowType
from changefeed.records.requests import ChangefeedInfo
from changefeed.table import TableId, TableName, TableSchema
from coordination import failpoint
from coordination.etcd.client import EtcdClient
from coordination.etcd.config import EtcdConfig
from coordination.layout import decode
from credentials.clients import Renewed
from credentials.secrets import hash_key
from processor.lanes.apart_lane import rest_after
from processor.lanes.lanes import LaneJob
from processor.task.job import ContextBase, JobContext, JobSpec
from processor.task.limiter import Limiter, SharedBucket
from processor.task.permit import TaskPermit
from processor.task.rows.gate import RowFilter
from processor.task.rows.mounter import Mounter, MountOptions
from processor.task.rows.source_rows import PATIENCE, SourceRows, image_options, read_options
from processor.task.stall_watch import StallWatch
from sink.blackhole.ddl_applier import BlackholeDdlApplier
from sink.blackhole.document_loader import BlackholeDocumentLoader
from sink.blackhole.row_writer import BlackholeRowWriter
from sink.ddl import DdlApplier
from sink.event_sink import EventDdl, EventSink
from sink.load import DocumentLoader
from sink.mongodb.connection import connect as connect_to_target
from sink.mongodb.connection import is_sharded
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from sink.mongodb.letters.open_letters import LetterBox
from sink.mongodb.letters.stored_letters import StoredLetters
from sink.mongodb.rows.document_loader import MongoDocumentLoader
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.opening import event_sink
from sink.row import AskedRows, FetchRow, RowWriter, SoleTable, Turns
from source.columns import Columns, columns_of
from source.opening import open_source
from source.source import RowCapture, Source, TaskSource

_RETRY_FOR = timedelta(seconds=30)
"""A slow sink needs most of it for one large batch."""

_MOST_CONTEXTS = 16
_COLLECTED_AFTER = 100_000
"""New tuples and the like: several batches of changes."""
_SWITCH_SECONDS = 0.0005
"""The writing thread, which has the next command to send once the target has answered, waits no longer than this for the reading thread."""

_Client = MongoClient[dict[str, Any]]
_Place: TypeAlias = tuple[str, Capture | None]
"""A connection string as its user wrote it, and how it is read; None for a target."""

_log = structlog.get_logger()


class Shared(Protocol):
    """A context in the form that tasks receive."""

    @property
    def key(self) -> str: ...

    def load(self, bases: Mapping[str, ContextBase]) -> JobContext:
        """`bases`: those that the worker has. Any other is megabytes to read."""
        ...


@dataclass(frozen=True, slots=True)
class Uris:
    source: ConnectionUri
    sink: ConnectionUri


class ChangefeedResources:
    """One changefeed's context, with everything open that its tasks need."""

    def __init__(
        self,
        context: JobContext,
        uris: Uris,
        source: TaskSource,
        target: _Client | None,
        permit: Callable[[], float],
        turns: Turns,
        asked: Callable[[], ChangefeedInfo],
    ) -> None:
        """`asked` reads from etcd what the user wants."""
        configuration = context.configuration
        self.context = context
        self.uris = uris
        self.source = source
        self._target = target
        self._permit = permit
        self._asked = asked
        self._buckets: dict[str, SharedBucket] = {}
        self.rows = _rows(context, source, target)
        columns_of = cache(self._columns_of)
        self.mounter = Mounter(
            context.schemas,
            configuration.routes.target,
            self.rows.update_of,
            _mount_options(configuration, self.rows),
            columns_of,
        )
        self.row_filter = RowFilter(configuration.filter)
        self.source_rows = SourceRows(source, context.schemas, self.row_filter, columns_of)
        self._events = _event_sink(context, uris)
        self.writer = (
            self._events.writer(context.fence.epoch, permit)
            if self._events
            else _writer(configuration, context.capture, target, permit, turns, self.source_rows.fetch)
        )
        self.folds = self._events is None
        """The sink needs only the effect of several changes of one row."""

    def _columns_of(self, name: TableName) -> Columns | None:
        key_of = partial(hash_key, files=self.context.secret_files)
        return columns_of(self.context.configuration.columns_of(name), key_of)

    def connected_by(self, source: TaskSource, target: _Client | None) -> bool:
        return self.source is source and self._target is target

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
        if self._events is not None:
            return self._events.ddl(self.context.life, self._permit)
        if self._target is None:
            return BlackholeDdlApplier()
        return MongoDdlApplier(self._target, permit=self._permit, ttl=self.context.configuration.ddl.ttl)

    @property
    def event_ddl(self) -> EventDdl | None:
        """Says how a copy is getting on, to a sink of messages."""
        return self._events.ddl(self.context.life, self._permit) if self._events is not None else None

    def forget_letters(self, table: TableId) -> None:
        """Of a table that is about to be copied: they are about rows of an earlier copy."""
        letters = _writer_options(self.context.configuration, self.context.capture).letters
        if self._target is not None and letters is not None:
            StoredLetters(self._target, letters).forget(table, self._permit)

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
            kept = (
                configuration.on_occupied is OnOccupied.KEEP or len(self.sources.get(place.table.name.logical, ())) > 1
            )
            conditional = any(where.delete is not None for where in filter_.conditions)
            removes = not (kept or conditional or RowType.DELETE in filter_.ignored)
            found.append(AskedRows(place=place, keys=request.rows, removes=removes))
        return found

    def copy_limiter(self, share: float) -> Limiter:
        present, limit = self.context.configuration.copy_limit, lambda: self._asked().configuration.copy_limit
        return Limiter(present, share, partial(self._bucket, "copy"), limit=limit, permit=self._permit)

    def apply_limiter(self, share: float) -> Limiter:
        present, limit = self.context.configuration.apply_limit, lambda: self._asked().configuration.apply_limit
        return Limiter(present, share, partial(self._bucket, "apply"), limit=limit, permit=self._permit)

    def _bucket(self, kind: str) -> SharedBucket:
        if kind not in self._buckets:
            self._buckets[kind] = SharedBucket(f"{self.context.fence.node_key} {self.context.changefeed} {kind}")
        return self._buckets[kind]

    def check_reachable(self) -> None:
        """Raises if the source, the target or etcd does not answer here."""
        self.source.check()
        if self._target is not None:
            is_sharded(self._target)
        if self._events is not None:
            self._events.confirm(self.context.life)
            self._events.check()
        self._permit()

    def loader(self, schema: TableSchema, *, once: bool) -> DocumentLoader:
        """`once`: no document may be sent twice."""
        if self._events is not None:
            return self._events.loader(self.context.fence.epoch, self.mounter.mounted(schema).target, self._permit)
        if self._target is None:
            return BlackholeDocumentLoader()
        table, options = (
            self.mounter.mounted(schema).target,
            _writer_options(self.context.configuration, self.context.capture),
        )
        return MongoDocumentLoader(
            self._target,
            table=table,
            once=once,
            kept=self.context.configuration.on_occupied is OnOccupied.KEEP
            or len(self.sources.get(table.name.logical, ())) > 1,
            permit=self._permit,
            options=options,
        )


@dataclass(slots=True)
class SinkTurns:
    """Of the running task."""

    share: float = 1.0

    @property
    def shared(self) -> bool:
        return self.share < 1

    def rest(self, busy_seconds: float) -> None:
        if self.shared:
            time.sleep(rest_after(busy_seconds, self.share))


class WorkerResources:
    def __init__(self) -> None:
        self._kept: dict[str, ChangefeedResources] = {}
        self._sources: dict[_Place, Renewed[Source]] = {}
        self._targets: dict[_Place, Renewed[_Client]] = {}
        self._etcds: dict[EtcdConfig, EtcdClient] = {}
        self._permit: TaskPermit | None = None
        self._changefeed = ""
        self._check: Callable[[], None] | None = None
        self._turns = SinkTurns()
        self._stalls = StallWatch()
        self._asking = threading.Lock()

    @cached_property
    def beside(self) -> Executor:
        """One thread, in which the running task writes while it reads on. No task ends before its writes."""
        return ThreadPoolExecutor(1, "beside")

    @contextmanager
    def task(self, shared: Shared, attempt: str) -> Iterator[ChangefeedResources]:
        """The resources for one task, under a permit of its own."""
        resources = self._resources(shared)
        fence, self._changefeed = resources.context.fence, resources.context.changefeed
        self._permit = TaskPermit(self._etcd(fence.etcd), fence, attempt)
        try:
            with self._stalls.task(self._changefeed):
                yield resources
        finally:
            self._permit = None

    def permit(self) -> float:
        with self._asking:
            if self._permit is None:
                raise FencedError("no task is running in this worker; nothing may be written")
            try:
                left = self._permit()
                if self._check is not None:
                    self._check()
            except FencedError as fenced:
                _log.warning("task_fenced", changefeed=self._changefeed, reason=str(fenced))
                failpoint.reach("task_fenced", self._changefeed)
                raise
            return left

    @contextmanager
    def checking_before_writes(self, look: Callable[[], None]) -> Iterator[None]:
        """`look` raises when the running task must stop writing. It is called before each write, so it must be cheap."""
        self._check = look
        try:
            yield
        finally:
            self._check = None

    @contextmanager
    def sharing_the_sink(self, share: float) -> Iterator[None]:
        """The running task keeps the sink busy with rows for this part of the time at most."""
        self._turns.share = share
        try:
            yield
        finally:
            self._turns.share = 1.0

    def _resources(self, shared: Shared) -> ChangefeedResources:
        """Opened again if the context is new, and if the credentials of its source or its sink have changed since."""
        resources = self._kept.pop(shared.key, None)
        if resources is None:
            context = shared.load({kept.context.base_key: kept.context.base for kept in self._kept.values()})
            uris = self._uris(context)
            self._forget(context, uris)
        else:
            context, uris = resources.context, resources.uris
        source, target = self._source(context, uris), self._target(context, uris)
        if resources is None or not resources.connected_by(source, target):
            asked = partial(self._asked, context)
            resources = ChangefeedResources(context, uris, source, target, self.permit, self._turns, asked)
            _make_lasting()
        self._kept[shared.key] = resources
        return resources

    def _uris(self, context: JobContext) -> Uris:
        """As the changefeed's user wrote them. A run does not outlive a change of them, and its permit ends with it."""
        configuration = self._asked(context).configuration
        return Uris(configuration.source, configuration.sink)

    def _asked(self, context: JobContext) -> ChangefeedInfo:
        found = self._etcd(context.fence.etcd).get(context.info_key)
        if found is None:
            raise FencedError(f"{context.info_key}: expected a changefeed, found none; its tasks end")
        return decode(ChangefeedInfo, found)

    def _forget(self, newer: JobContext, uris: Uris) -> None:
        """Forgets the changefeed's older context, the least recently used contexts, and connections that no context uses."""
        kept = {
            key: resources for key, resources in self._kept.items() if resources.context.changefeed != newer.changefeed
        }
        self._kept = dict(list(kept.items())[-_MOST_CONTEXTS + 1 :])
        used = {place for resources in self._kept.values() for place in _places(resources.context, resources.uris)}
        used |= set(_places(newer, uris))
        for place in self._sources.keys() - used:
            self._sources.pop(place).close()
        for place in self._targets.keys() - used:
            self._targets.pop(place).close()

    def _source(self, context: JobContext, uris: Uris) -> Source:
        place, _ = _places(context, uris)
        if place not in self._sources:
            open_by_capture = partial(open_source, capture=context.capture)
            self._sources[place] = Renewed(uris.source, open_by_capture, context.secret_files)
        return self._sources[place].get()

    def _target(self, context: JobContext, uris: Uris) -> _Client | None:
        if not abilities_of(uris.sink.scheme).keeps_documents:
            return None
        _, place = _places(context, uris)
        if place not in self._targets:
            self._targets[place] = Renewed(uris.sink, connect_to_target, context.secret_files)
        return self._targets[place].get()

    def _etcd(self, config: EtcdConfig) -> EtcdClient:
        if config not in self._etcds:
            self._etcds[config] = EtcdClient(config)
        return self._etcds[config]


worker_resources = WorkerResources()
"""The resources of this process. Nothing is open before the first task."""


def _make_lasting() -> None:
    """Spark makes a worker collect garbage after each task. Scanning the kept objects each time would cost more than a narrow window.

    Within a task, the tuples of a batch would be looked at again and again while they are made, though all of them live until it is written.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)
    sys.setswitchinterval(_SWITCH_SECONDS)


def _places(context: JobContext, uris: Uris) -> tuple[_Place, _Place]:
    return (uris.source.reference, context.capture), (uris.sink.reference, None)


def _mount_options(configuration: Configuration, rows: RowCapture) -> MountOptions:
    return MountOptions(
        order_by=configuration.pipeline.order_by,
        about_of=rows.about_of if configuration.sink_can.keeps_messages else None,
        images=configuration.images,
    )


def _rows(context: JobContext, source: TaskSource, target: _Client | None) -> RowCapture:
    """A router finds rows by their whole keys."""
    options = replace(read_options(context.configuration), whole_keys=target is not None and is_sharded(target))
    return source.rows(context.schemas.names(), context.schemas.by_uuid(), options)


def _event_sink(context: JobContext, uris: Uris) -> EventSink | None:
    """The URI in a context may lack its options."""
    return event_sink(context.configuration.model_copy(update={"sink": uris.sink}), context.secret_files)


def _writer(
    configuration: Configuration,
    capture: Capture,
    target: _Client | None,
    permit: Callable[[], float],
    turns: Turns,
    fetch: FetchRow,
) -> RowWriter:
    if target is None:
        return BlackholeRowWriter()
    options = _writer_options(configuration, capture)
    repairs = configuration.on_divergence is OnDivergence.REPAIR
    return MongoRowWriter(target, permit=permit, turns=turns, options=options, fetch=fetch, repairs=repairs)


def _writer_options(configuration: Configuration, capture: Capture) -> RowWriterOptions:
    name, keeps = configuration.dead_letter, configuration.when_rejected is OnRejected.DEAD_LETTER
    letters = LetterBox(collection=name, changefeed=configuration.id) if name is not None and keeps else None
    several = capture is Capture.SHARD_OPLOGS
    return RowWriterOptions(retry_for=_RETRY_FOR, patience=PATIENCE, letters=letters, several_shards=several)
