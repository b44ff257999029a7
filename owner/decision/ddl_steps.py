"""`ddl_steps`: the next steps of the DDLs that may run, and those that are released together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from changefeed.config.configuration import UnsupportedDdl
from changefeed.config.tables.filter import Disposition
from changefeed.errors import DdlUnsupported
from changefeed.event import DdlType
from changefeed.records.ddl import DdlRecord, DdlState
from owner.ddl import barrier
from owner.ddl.scope import DdlClassifier
from owner.ddl.steps import ReleaseDdl, Step, next_step, skipped
from owner.ddl.stragglers import SKIPPABLE, Waiting, brings_in, name_is_taken
from owner.decision.state import ChangefeedState
from owner.tables.progress import TableProgress

_MOST_TOGETHER = 48
_MOST_BYTES_TOGETHER = 200_000
"""Of one transaction: etcd accepts 128 operations and 1.5 MiB, and a DDL's record contains options and indexes."""
_MOST_BEGUN = 512
"""Observed, and applied, per decision: after dropDatabase each table of the database has a DDL that may run."""


def ddl_steps(
    state: ChangefeedState,
    gate: barrier.BarrierDecision,
    waiting: Waiting,
    classifier: DdlClassifier,
    now: datetime,
    monotonic: float,
) -> list[Step]:
    """A changefeed that does not run starts no step, but the DDLs that have been applied are still released."""
    releases = [
        ReleaseDdl(skipped(record, why, now))
        for record in state.records.values()
        if record.open and (why := _goes_on_without(record, state, waiting, classifier))
    ]
    released = {step.record.position for step in releases}
    others: list[Step] = []
    begun = Counter[DdlState]()
    for record in gate.runnable:
        progress = state.executions.get(record.position)
        too_many = progress is None and begun[record.state] == _MOST_BEGUN
        if record.position not in state.records or record.position in released or too_many:
            continue
        step = next_step(
            _as_it_can_be(_as_wished_now(record, classifier), waiting, state.checkpoints),
            progress,
            skip_unsupported=_skips_unsupported(state),
            monotonic=monotonic,
            now=now,
        )
        if isinstance(step, ReleaseDdl):
            releases.append(step)
        elif step is not None:
            begun[record.state] += progress is None
            others.append(step)
    started = others if state.status.lifecycle.running else []
    return [*releases, *started]


def released_together(released: Iterable[DdlRecord]) -> Iterator[tuple[DdlRecord, ...]]:
    """In their order, as many as one transaction holds."""
    together: list[DdlRecord] = []
    size = 0
    for record in sorted(released, key=lambda record: record.position.order):
        size += (more := _bytes(record))
        if together and (len(together) == _MOST_TOGETHER or size > _MOST_BYTES_TOGETHER):
            yield tuple(together)
            together, size = [], more
        together.append(record)
    if together:
        yield tuple(together)


def _bytes(record: DdlRecord) -> int:
    """Of BSON. As Extended JSON it is several times larger."""
    seen = record.before.tables.values() if record.before else ()
    parts = [document for table in seen if table is not None for document in (table.options, *table.indexes)]
    return sum(len(part.raw) for part in (record.event.description, *parts))


def _goes_on_without(record: DdlRecord, state: ChangefeedState, waiting: Waiting, classifier: DdlClassifier) -> str:
    """Why a DDL that waits is skipped. Empty: it is not."""
    refused = record.refused
    if record.position in waiting.needless:
        return "its table ends later" + (f"; {refused.message}" if refused is not None else "")
    if refused is None or record.taken:
        return ""
    if record.position in state.wishes.skips and record.event.type in SKIPPABLE:
        return f"a user skipped it; {refused.message}"
    if _as_wished_now(record, classifier).disposition is Disposition.SCHEMA_ONLY:
        return "the filter keeps it from the target"
    if refused.code == DdlUnsupported.code and _skips_unsupported(state):
        return refused.message
    return ""


def dropped_without_name(records: Iterable[DdlRecord], waiting: Waiting) -> Iterator[DdlRecord]:
    """The taken renames of tables that end later, and of which nothing is being written: what has the old name is dropped."""
    for record in records:
        if record.open and name_is_taken(record) and not brings_in(record) and record.event.id in waiting.passed:
            yield replace(record, refused=None, drops=True)


def _as_it_can_be(record: DdlRecord, waiting: Waiting, checkpoints: TableProgress) -> DdlRecord:
    """A table that is not awaited may not even exist downstream, so it is not renamed before it ends."""
    if record.event.type is not DdlType.RENAME or record.state is not DdlState.PENDING or record.taken:
        return record
    renamed = record.scope.tables - record.scope.ended
    behind = {table for table in renamed if checkpoints.of(table) != record.position}
    return replace(record, drops=bool(behind)) if waiting.passed else record


def _as_wished_now(record: DdlRecord, classifier: DdlClassifier) -> DdlRecord:
    """A user can skip a DDL that the target refuses by a filter that ignores it from now on."""
    ignored = classifier.filter.ddl(record.event) is Disposition.SCHEMA_ONLY
    return replace(record, disposition=Disposition.SCHEMA_ONLY) if ignored else record


def _skips_unsupported(state: ChangefeedState) -> bool:
    return state.info.configuration.ddl.unsupported is UnsupportedDdl.SKIP
