"""`CutOver`: the end of a migration. It can be called again at any time; each step first checks what is done already.

    running ──target: the source's time at the first call──▶ replicating up to it ──▶ finished ──▶ expiry restored downstream

Writers at the source should stop before the first call: later writes are not replicated. It can stop them itself, and does so before it
reads that time; a call after a crash in between does both again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from admin.cluster_reader import ChangefeedTables, Changes, ClusterReader, tables_of
from admin.copy_totals import whole_copy
from admin.desired import verbs
from admin.desired.desired_store import DesiredStore
from admin.preflight.source_probe import newest_start
from admin.readiness import CutOverFacts, Readiness, readiness_of
from admin.services.changefeed_messages import duration, stopped_tables, text
from admin.services.troubles import troubles
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.config.configuration import Ttl
from changefeed.errors import PermanentError, RetryableError, SluiceError, WrongState
from changefeed.lifecycle import ErrorReport, Lifecycle, State
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableKind
from credentials.redaction import redacted
from credentials.secrets import expanded
from owner.etcd_view import OwnerView
from sink.mongodb.commander import Commander
from sink.mongodb.connection import connect
from sink.mongodb.ddl.ddl_commands import DdlCommand, restore_ttl
from source.connection import LIFTED_BY

_MOST_NAMED = 5
_RETRY_FOR = timedelta(seconds=30)
_STILL = (State.STOPPED, State.FAILED, State.REMOVED)


@dataclass(frozen=True, slots=True)
class Restored:
    count: int = 0
    problems: tuple[str, ...] = ()


class CutOver:
    def __init__(self, reader: ClusterReader, store: DesiredStore) -> None:
        self._reader = reader
        self._store = store

    def ready(self, id: ChangefeedId, *, within: timedelta, leave_stopped: bool) -> Readiness:
        """Asks the source for its newest time, as `finalize` does first, and changes nothing."""
        info, _ = self._store.read(id)
        problem = ""
        try:
            newest_start(info.configuration)
        except SluiceError as error:
            problem = redacted(str(error))
        with self._reader.read() as view:
            facts = _facts(id, view.changefeed(id), problem, self._reader.serving.unwritable())
        return readiness_of(facts, datetime.now(UTC), within=within, leave_stopped=leave_stopped)

    def finalize(
        self, id: ChangefeedId, changes: Changes, *, leave_stopped: bool = False, block_writes: bool = False
    ) -> Iterator[pb.FinalizeProgress]:
        """Ends with a message that has `done` set, or without one if the call ends earlier."""
        info, status = self._store.read(id)
        if status is None or status.lifecycle.state is not State.FINISHED:
            with self._reader.read() as view:
                _check_nothing_stopped(id, view.changefeed(id), leave_stopped=leave_stopped)
            verbs.check_can_end(info, status)
            now = newest_start(info.configuration, block_writes=block_writes).ts
            if block_writes:
                yield pb.FinalizeProgress(block_lifted_by=LIFTED_BY)
            self._store.change(id, lambda info, status: verbs.ending(info, status, now, leave_stopped=leave_stopped))
        while changes.wait():
            with self._reader.read() as view:
                known = view.changefeed(id)
            progress = _progress(known)
            if known.status is not None and known.status.lifecycle.state is State.FINISHED:
                restored = _restore(known)
                progress.MergeFrom(pb.FinalizeProgress(done=True, restored=restored.count, problems=restored.problems))
                yield progress
                return
            _check_goes_on(id, known)
            _check_nothing_stopped(id, known, leave_stopped=leave_stopped)
            yield progress


def _facts(id: ChangefeedId, known: OwnerView, source_problem: str, unwritable: ErrorReport | None) -> CutOverFacts:
    found, lifecycle = tables_of(known), known.status.lifecycle if known.status else Lifecycle()
    error = unwritable or lifecycle.error
    names = {schema.id: str(schema.name) for schema in found.living}
    in_trouble = troubles(known.stragglers, known.records.values())
    copy = whole_copy(known, found.progress.tables)
    return CutOverFacts(
        id=id,
        state=lifecycle.state,
        error=error.message if error else "",
        status=known.status,
        source_problem=source_problem,
        stopped=sorted(names.get(table, table) for table, each in in_trouble.items() if each.waits_for_user),
        behind=sorted(names.get(table, table) for table, each in in_trouble.items() if not each.waits_for_user),
        copying=copy.tables - copy.tables_done if copy is not None else 0,
        copy_left=copy.left_for if copy is not None else None,
        open_ddls=[record for record in known.records.values() if record.open],
        rejected=known.status.letters.count if known.status else 0,
        expiries=len(_expiries(known, found)),
    )


def _progress(known: OwnerView) -> pb.FinalizeProgress:
    checkpoint = known.status.checkpoint if known.status else None
    target = known.info.configuration.target
    progress = pb.FinalizeProgress(checkpoint=text(checkpoint), target=str(target or ""))
    if checkpoint is not None and target is not None:
        left = target.to_datetime() - checkpoint.ts.to_datetime()
        progress.left.CopyFrom(duration(max(left, timedelta(0))))
    return progress


def _check_nothing_stopped(id: ChangefeedId, known: OwnerView, *, leave_stopped: bool) -> None:
    stopped = stopped_tables(known, tables_of(known))
    if stopped and not leave_stopped and not known.info.leaves_stopped:
        named = ", ".join(f"{table.name} ({table.trouble})" for table in stopped[:_MOST_NAMED])
        raise WrongState(
            f"changefeed {id!r} cannot finish: {len(stopped)} of its tables wait for a user: {named}; `sluice table list {id}` shows why. "
            "Resume them, or finish without them (--leave-stopped)"
        )


def _check_goes_on(id: ChangefeedId, known: OwnerView) -> None:
    lifecycle = known.status.lifecycle if known.status else None
    if lifecycle is not None and lifecycle.state in _STILL:
        reason = f": {lifecycle.error.message}" if lifecycle.error else ""
        raise WrongState(
            f"changefeed {id!r} is {lifecycle.state} before it was finished{reason}; resume it, then finalize it again"
        )


def _expiries(known: OwnerView, found: ChangefeedTables) -> list[DdlCommand]:
    """What restores them."""
    configuration = known.info.configuration
    if not configuration.sink_traits.keeps_documents or configuration.ddl.ttl is not Ttl.DEFERRED:
        return []
    return [
        command
        for schema in found.living
        if schema.kind is not TableKind.VIEW and configuration.filter.wants_table(schema.name)
        for command in restore_ttl(configuration.routes.target(schema.name), schema)
    ]


def _restore(known: OwnerView) -> Restored:
    """Tries every table, even if others fail."""
    configuration, commands = known.info.configuration, _expiries(known, tables_of(known))
    if not commands:
        return Restored()
    problems = []
    with closing(connect(expanded(configuration.sink))) as client:
        commander = Commander(client, permit=_RETRY_FOR.total_seconds, retry_for=_RETRY_FOR, patience=_RETRY_FOR)
        for command in commands:
            doing = f"restoring the expiry of {command.db}.{command.body['collMod']}"
            commander.begin()
            try:
                commander.send(command.db, {**command.body, "writeConcern": {"w": "majority"}}, doing)
            except (PermanentError, RetryableError) as error:
                problems.append(str(error))
    return Restored(len(commands) - len(problems), tuple(problems))
