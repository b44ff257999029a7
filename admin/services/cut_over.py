"""`CutOver`: the end of a migration. It can be called again at any time; each step first checks what is done already.

    running ──target: the source's time at the first call──▶ replicating up to it ──▶ finished ──▶ expiry restored downstream

Writers at the source should stop before the first call: later writes are not replicated. It can stop them itself, and does so before it
reads that time; a call after a crash in between does both again. With a way back, `Reversal` has steps of its own before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from admin.access import Caller
from admin.cluster_reader import Changes, ClusterReader, tables_of
from admin.copy_totals import whole_copy
from admin.desired import verbs
from admin.desired.desired_store import DesiredStore
from admin.preflight.source_probe import newest_end
from admin.preflight.validation import Validator
from admin.readiness import CutOverFacts, readiness_of
from admin.services.changefeed_messages import stopped_tables, text
from admin.services.troubles import troubles
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.way_back.reversal import AskedReversal, Reversal, check_plain
from admin.way_back.sides import LIFTED_BY, CutOverSide, expiries_of
from changefeed.config.configuration import Configuration
from changefeed.errors import SluiceError, WrongState
from changefeed.lifecycle import ErrorReport, Lifecycle, State
from changefeed.records.requests import ChangefeedId, Expiry
from changefeed.table import TableKind, TableSchema
from credentials.redaction import redacted
from owner.etcd_view import OwnerView
from sink.opening import instead_of_documents

_MOST_NAMED = 5
_STILL = (State.STOPPED, State.FAILED, State.REMOVED)


class CutOver:
    def __init__(self, reader: ClusterReader, store: DesiredStore, validator: Validator) -> None:
        self._reader = reader
        self._store = store
        self._reversal = Reversal(reader, store, validator)

    def ready(
        self,
        id: ChangefeedId,
        *,
        within: timedelta,
        leave_stopped: bool,
        block_writes: bool = False,
        reversed_as: AskedReversal | None = None,
    ) -> pb.Readiness:
        """Asks the source for its newest time, and whether it can block writes, as `finalize` does first, and changes nothing."""
        info, _ = self._store.read(id)
        try:
            newest_end(info.configuration)
            problems = _unblockable(info.configuration) if block_writes and reversed_as is None else []
        except SluiceError as error:
            problems = [redacted(str(error))]
        facts = _facts(id, self._reader.changefeed(id), problems, self._reader.serving.unwritable())
        if reversed_as is not None:
            facts = replace(
                facts, way_back=self._reversal.obstacles(reversed_as), notes=self._reversal.notes(reversed_as)
            )
        return readiness_of(facts, datetime.now(UTC), within=within, leave_stopped=leave_stopped)

    def give_up(self, id: ChangefeedId, caller: Caller) -> pb.FinalizeProgress:
        return self._reversal.give_up(id, caller)

    def reverse(self, asked: AskedReversal, changes: Changes, caller: Caller) -> Iterator[pb.FinalizeProgress]:
        """The same with a way back."""
        info, status = self._store.read(asked.id)
        if info.way_back is None:
            _check_nothing_stopped(asked.id, self._reader.changefeed(asked.id), leave_stopped=False)
            verbs.check_can_end(info, status)
            if asked.blocks:
                self._store.by(caller).record(asked.id, "block writes", "source and target", after="blocked")
        self._reversal.begin(asked, caller)
        for known in self._until_finished(asked.id, changes, leave_stopped=False):
            if _finished(known):
                yield from self._reversal.complete(asked, caller, changes)
            else:
                yield _progress(known)

    def finalize(
        self,
        id: ChangefeedId,
        changes: Changes,
        caller: Caller,
        *,
        leave_stopped: bool = False,
        block_writes: bool = False,
    ) -> Iterator[pb.FinalizeProgress]:
        """Ends with a message that has `done` set, or without one if the call ends earlier."""
        info, status = self._store.read(id)
        check_plain(info)
        if status is None or status.lifecycle.state is not State.FINISHED:
            _check_nothing_stopped(id, self._reader.changefeed(id), leave_stopped=leave_stopped)
            verbs.check_can_end(info, status)
            store = self._store.by(caller)
            if block_writes:
                if problems := _unblockable(info.configuration):
                    raise WrongState("; ".join(problems))
                store.record(id, "block writes", "source", after="blocked")
                CutOverSide("source", info.configuration.source).block(blocked=True)
                yield pb.FinalizeProgress(block_lifted_by=LIFTED_BY)
            end = newest_end(info.configuration)
            store.change(
                id, lambda info, status: verbs.ending(info, status, end, leave_stopped=leave_stopped), "finalize"
            )
        for known in self._until_finished(id, changes, leave_stopped=leave_stopped):
            if not _finished(known):
                yield _progress(known)
                continue
            configuration = known.info.configuration
            expiries = expiries_to_restore(configuration, tables_of(known).living)
            target, lifted = CutOverSide("target", configuration.sink), known.info.lifts_block
            problems = target.restore(expiries, configuration.routes.target).problems if expiries else []
            if lifted:
                target.block(blocked=False)
            restored = len(expiries) - len(problems)
            yield _progress(known, done=True, restored=restored, problems=problems, block_lifted=lifted)

    def _until_finished(self, id: ChangefeedId, changes: Changes, *, leave_stopped: bool) -> Iterator[OwnerView]:
        """The last one has finished, unless the call ends earlier."""
        while changes.wait():
            known = self._reader.changefeed(id)
            if not _finished(known):
                _check_goes_on(id, known)
                _check_nothing_stopped(id, known, leave_stopped=leave_stopped)
            yield known
            if _finished(known):
                return


def _unblockable(configuration: Configuration) -> list[str]:
    source = CutOverSide("source", configuration.source)
    return list(source.unblockable(["setUserWriteBlockMode"], ("backup", "admin")))


def _finished(known: OwnerView) -> bool:
    return known.status is not None and known.status.lifecycle.state is State.FINISHED


def _facts(
    id: ChangefeedId, known: OwnerView, source_problems: Sequence[str], unwritable: ErrorReport | None
) -> CutOverFacts:
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
        source_problems=source_problems,
        stopped=sorted(table.name for table in stopped_tables(known, found)),
        behind=sorted(names.get(table, table) for table, each in in_trouble.items() if not each.waits_for_user),
        copying=copy.tables - copy.tables_done if copy is not None else 0,
        copy_left=copy.left.ToTimedelta() if copy is not None and copy.HasField("left") else None,
        open_ddls=[record for record in known.records.values() if record.open],
        rejected=known.status.letters.count if known.status else 0,
        expiries=len(expiries_to_restore(known.info.configuration, found.living)),
    )


def _progress(known: OwnerView, **ended: Any) -> pb.FinalizeProgress:
    checkpoint = known.status.checkpoint if known.status else None
    target = known.info.configuration.target
    left = None
    if checkpoint is not None and target is not None:
        left = max(target.to_datetime() - checkpoint.ts.to_datetime(), timedelta(0))
    return pb.FinalizeProgress(checkpoint=text(checkpoint), target=str(target or ""), left=left, **ended)


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


def expiries_to_restore(configuration: Configuration, tables: Iterable[TableSchema]) -> list[Expiry]:
    """Under any `ddl.ttl`: it may have been another one when the target got them, and one that is not suspended is set to what it is."""
    if instead_of_documents(configuration):
        return []
    wanted = (schema for schema in tables if configuration.filter.wants_table(schema.name))
    return [expiry for schema in wanted if schema.kind is not TableKind.VIEW for expiry in expiries_of(schema)]
