"""`WorkerResources`: what one Python worker keeps open between the tasks that Spark gives it.

Connections, the mounter's caches and unpickled contexts cost more than the events of a narrow window, so they are kept. A worker process
runs one task at a time, so one permit is in force at a time: the permit of the running task.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol, TypeAlias

import structlog

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.errors import FencedError, InvariantError
from changefeed.records.requests import ChangefeedInfo
from coordination import failpoint
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig
from coordination.layout import decode
from credentials.clients import Closable, Renewed
from processor.lanes.apart_lane import rest_after
from processor.task.changefeed_resources import ChangefeedResources, Ends
from processor.task.job import ContextBase, JobContext
from processor.task.permit import TaskPermit
from processor.task.stall_watch import StallWatch
from sink.opening import kept_connection
from source.opening import open_source
from source.source import Source

_MOST_CONTEXTS = 16
_LOOKED_THROUGH_AFTER = 100
"""New contexts. To look through all that is kept costs 50 to 100 ms."""
_COLLECTED_AFTER = 100_000
"""New tuples and the like: several batches of changes."""
_SWITCH_SECONDS = 0.0005
"""The writing thread, which has the next command to send once the target has answered, waits no longer than this for the reading thread."""

_SourcePlace: TypeAlias = tuple[str, Capture]
"""A connection string as its user wrote it, and how it is read."""

_log = structlog.get_logger()


class Shared(Protocol):
    """A context in the form that tasks receive."""

    @property
    def key(self) -> str: ...

    def load(self, bases: Mapping[str, ContextBase]) -> JobContext:
        """`bases`: those that the worker has. Any other is megabytes to read."""
        ...


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
        self._sources: dict[_SourcePlace, Renewed[Source]] = {}
        self._sinks: dict[str, Renewed[Closable] | None] = {}
        self._etcds: dict[EtcdConfig, EtcdClient] = {}
        self._permit: TaskPermit | None = None
        self._changefeed = ""
        self._check: Callable[[], None] | None = None
        self._turns = SinkTurns()
        self._stalls = StallWatch()
        self._opened = 0
        self._asking = threading.Lock()

    @cached_property
    def beside(self) -> Executor:
        """One thread, in which the running task writes while it reads on. No task ends before its writes."""
        return ThreadPoolExecutor(1, "beside")

    @contextmanager
    def task(self, shared: Shared, attempt: str, sink_share: float = 1.0) -> Iterator[ChangefeedResources]:
        """The resources for one task, under a permit of its own. It keeps the sink busy with rows for `sink_share` of the time at most."""
        resources = self._resources(shared)
        fence, self._changefeed = resources.context.fence, resources.context.changefeed
        self._permit = TaskPermit(self._etcd(fence.etcd), fence, attempt)
        self._turns.share = sink_share
        try:
            with self._stalls.task(self._changefeed):
                yield resources
        finally:
            self._permit = self._check = None

    def in_context(self, shared: Shared) -> ChangefeedResources:
        """The resources for the running task in another context of its changefeed. Its permit stays, so the fence must be the same."""
        resources = self._resources(shared)
        if self._permit is None or resources.context.fence != self._permit.fence:
            raise InvariantError(
                f"{shared.key}: expected a context under the running task's permit, found another fence"
            )
        return resources

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

    def check_before_writes(self, look: Callable[[], None]) -> None:
        """`look` raises when the running task must stop writing. It is called before each write, so it must be cheap."""
        self._check = look

    def _resources(self, shared: Shared) -> ChangefeedResources:
        """Opened again if the context is new, and if the credentials of its source or its sink have changed since."""
        kept = self._kept.get(shared.key)
        if kept is None:
            context = shared.load({each.context.base_key: each.context.base for each in self._kept.values()})
            asked = self._asked(context).configuration
            self._forget(context, asked)
        else:
            context, asked = kept.context, kept.ends.asked
        source, connection = self._source(context, asked), self._sink_connection(context, asked)
        if kept is not None and kept.ends.open(source, connection):
            self._kept[shared.key] = self._kept.pop(shared.key)
            return kept
        ends = Ends(asked=asked, source=source, connection=connection)
        resources = ChangefeedResources(context, ends, self.permit, self._turns, partial(self._asked, context))
        if kept is not None:
            self._kept.pop(shared.key).close()
        self._kept[shared.key] = resources
        self._opened += 1
        _make_lasting(look_through=self._opened % _LOOKED_THROUGH_AFTER == 0)
        return resources

    def _asked(self, context: JobContext) -> ChangefeedInfo:
        found = self._etcd(context.fence.etcd).get(context.info_key)
        if found is None:
            raise FencedError(f"{context.info_key}: expected a changefeed, found none; its tasks end")
        return decode(ChangefeedInfo, found)

    def _forget(self, newer: JobContext, asked: Configuration) -> None:
        """Forgets the changefeed's older context, the least recently used contexts, and connections that no context uses."""
        kept = {
            key: resources for key, resources in self._kept.items() if resources.context.changefeed != newer.changefeed
        }
        before, self._kept = self._kept, dict(list(kept.items())[-_MOST_CONTEXTS + 1 :])
        for key in before.keys() - self._kept.keys():
            before[key].close()
        used = [(each.context.capture, each.ends.asked) for each in self._kept.values()] + [(newer.capture, asked)]
        for place in self._sources.keys() - {(each.source.reference, capture) for capture, each in used}:
            self._sources.pop(place).close()
        for reference in self._sinks.keys() - {each.sink.reference for _, each in used}:
            if (connection := self._sinks.pop(reference)) is not None:
                connection.close()

    def _source(self, context: JobContext, asked: Configuration) -> Source:
        place = asked.source.reference, context.capture
        if place not in self._sources:
            open_by_capture = partial(open_source, capture=context.capture)
            self._sources[place] = Renewed(asked.source, open_by_capture, context.secret_files)
        return self._sources[place].get()

    def _sink_connection(self, context: JobContext, asked: Configuration) -> Closable | None:
        reference = asked.sink.reference
        if reference not in self._sinks:
            self._sinks[reference] = kept_connection(asked.sink, context.secret_files)
        connection = self._sinks[reference]
        return connection.get() if connection is not None else None

    def _etcd(self, config: EtcdConfig) -> EtcdClient:
        if config not in self._etcds:
            self._etcds[config] = EtcdClient(config)
        return self._etcds[config]


worker_resources = WorkerResources()
"""The resources of this process. Nothing is open before the first task."""


def _make_lasting(*, look_through: bool) -> None:
    """Spark makes a worker collect garbage after each task. Scanning the kept objects each time would cost more than a narrow window.

    Kept objects still go when nothing refers to them. Those that refer to each other, of which a closed client leaves 70 KB, go only with `look_through`.

    Within a task, the tuples of a batch would be looked at again and again while they are made, though all of them live until it is written.
    """
    if look_through:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)
    sys.setswitchinterval(_SWITCH_SECONDS)
