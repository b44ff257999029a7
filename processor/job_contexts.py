"""`JobContexts`: the contexts that the jobs of one changefeed share, one after another; `task/job.py` says what is in one."""

from __future__ import annotations

from collections.abc import Collection

from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId
from coordination.task_fence import Fence
from credentials.secrets import allowed
from processor.etcd_view import ProcessorView
from processor.job_runs import ProcessorSession
from processor.spark.pipeline import SharedBase, SharedContext
from processor.task.job import JobContext, TableSet
from schema_store.versions import SchemaVersions


class JobContexts:
    """For the processor's thread. A context is made when a job needs it, and closed when no job uses it any more."""

    def __init__(self, id: ChangefeedId, life: str, session: ProcessorSession) -> None:
        """`life` differs for each changefeed that was ever created."""
        self._id = id
        self._life = life
        self._session = session
        self._made = 0
        self._base: SharedBase | None = None
        self._lane_tables: frozenset[TableId] = frozenset()
        self._tables = TableSet()
        """The tables of the default lane when the last context was made, twice: `_lane_tables` as the lanes have them."""
        self._shared: SharedContext | None = None
        self._retired: list[SharedContext] = []

    def of(
        self, stored: ProcessorView, versions: SchemaVersions, tables: frozenset[TableId], *, default: bool
    ) -> SharedContext:
        """`tables`: those of the default lane. A job of that lane needs a context that has them."""
        shared = self._shared
        stale = shared is None or shared.context.fence.run != stored.orders.run
        if stale or (default and self._lane_tables is not tables):
            self.renew()
        if self._shared is None:
            context = self._new(stored, versions, tables)
            self._shared = SharedContext(context, self._base_of(context))
        return self._shared

    def renew(self) -> None:
        """The next job gets a new context."""
        if self._shared is not None:
            self._retired.append(self._shared)
            self._shared = None

    def retire(self, used: Collection[SharedContext]) -> None:
        """Closes the former contexts that no job uses."""
        used_ids = set(map(id, used))
        for shared in [shared for shared in self._retired if id(shared) not in used_ids]:
            self._retired.remove(shared)
            self._session.threads.submit(shared.close)

    def _base_of(self, context: JobContext) -> SharedBase:
        """The base that this context and later ones share."""
        if self._base is None or self._base.base.key != context.base_key:
            if self._base is not None:
                self._base.release()
            self._base = SharedBase(context.base)
        return self._base

    def _new(self, stored: ProcessorView, versions: SchemaVersions, tables: frozenset[TableId]) -> JobContext:
        session, before, self._lane_tables = self._session, self._lane_tables, tables
        if before is not tables:
            self._tables = self._tables.changed(before - tables, tables - before)
        self._made += 1
        key = f"{session.node}/{self._id}/{stored.orders.life}/{self._made}"
        base = self._base.base if self._base is not None else None
        same = base is not None and base.schemas is versions.base and base.tables is self._tables.base
        return JobContext(
            key=key,
            base_key=base.key if base is not None and same else f"{key}/base",
            changefeed=self._id,
            life=self._life,
            configuration=stored.configuration.without_credentials(),
            info_key=session.layout.info(self._id),
            secret_files=allowed(),
            capture=stored.capture,
            schemas=versions,
            tables=self._tables,
            fence=Fence(
                etcd=session.etcd,
                node_key=session.layout.node(session.node),
                epoch=session.store.epoch,
                status_key=session.layout.status(self._id),
                run=stored.orders.run,
            ),
        )
