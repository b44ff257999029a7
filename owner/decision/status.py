"""`newest_status`, `phase_of`: what a changefeed's status becomes, for users and for the next owner, and what is to be done for it. Pure.

    phase        when                                        what the owner does
    REMOVE       the user removed it                         waits until no pipeline runs, then deletes its keys
    BEGIN        it has no checkpoint                        reads the source's catalog, writes the bases, sets the checkpoint
    RESTART      resumed with another start                  stops its pipelines, then clears its state; BEGIN follows
    RECAPTURE    updated to another capture                  folds the DDL records, writes the capture
    REFILTER     updated to other tables or routes, and it   takes tables in and out, brings them to their names downstream; writes the
                 is to run; or tables without a name         filter's tables and the routes. Open DDLs are waited for: RUN, with the
                 downstream may have got one                 tables of before. Not if tables get other names, which needs a pause
    RUN          otherwise                                   `decide.py`: barrier, DDL, status

The first row that holds is taken. A crash in a phase leaves a state in which the same phase is found again, or the next one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum, auto
from itertools import islice
from random import Random

from changefeed.config.configuration import Configuration
from changefeed.lifecycle import Command, ErrorReport, Event, Lifecycle, Sign, State
from changefeed.position import Position
from changefeed.records.requests import ChangefeedInfo, DesiredState
from changefeed.records.status import ChangefeedStatus
from owner.ddl.execution import OF_ITS_TABLES, Failed
from owner.decision.state import ChangefeedState, end_of

_PASSING = timedelta(seconds=5)
"""How long something new at the source may take to be read, while no row flows, before it counts as lag: most often it is a no-op."""
_CURRENT_AGAIN = timedelta(seconds=10)
"""How often an owner reports again that nothing is left, though nothing else changes."""


def newest_status(
    state: ChangefeedState, checkpoint: Position, resolved: Position, now: datetime, random: Random, *, awaits: bool
) -> ChangefeedStatus:
    status = state.status
    assert status.checkpoint is not None
    checkpoint = max(checkpoint, status.checkpoint)
    lifecycle = _lifecycle(state, checkpoint, now, random, awaits=awaits)
    current_at = _current_at(state, checkpoint, now)
    latest = state.sightings.latest
    newest = replace(
        status,
        lifecycle=lifecycle,
        routes=status.routes if status.routes is not None else state.info.configuration.routes,
        checkpoint=checkpoint,
        resolved=resolved,
        current_at=current_at,
        seen_at=latest.at if latest else status.seen_at,
        behind=_behind(state, checkpoint, current_at),
        overdue_seconds=_overdue_seconds(state, checkpoint),
        run=status.run + (lifecycle.running and not status.lifecycle.running),
        info_version=state.info.version,
        epoch=state.epoch,
        still=lifecycle.resting and (status.still or state.still),
        copying_since=(status.copying_since or now) if _in_copy(state) else None,
        letters=status.letters if state.letters is None else state.letters,
    )
    return status if _says_the_same(status, newest) else newest


def _current_at(state: ChangefeedState, checkpoint: Position, now: datetime) -> datetime:
    """Uses the source's own time, which is on another clock, only while the checkpoint is older than this owner's sightings."""
    before = state.status.current_at
    if before is not None and _in_copy(state):
        return before
    reached = state.sightings.reached(checkpoint)
    found = reached.at if reached else min(checkpoint.ts.to_datetime(), now)
    return max(found, before or found)


def _in_copy(state: ChangefeedState) -> bool:
    return any(report.copies for report in state.reports)


def _behind(state: ChangefeedState, checkpoint: Position, current_at: datetime) -> bool:
    latest = state.sightings.latest
    if latest is None or not state.watching or _in_copy(state):
        return True
    flowing = any(report.flowing for report in state.reports)
    return checkpoint < latest.end and (flowing or latest.at - current_at >= _PASSING)


def _overdue_seconds(state: ChangefeedState, checkpoint: Position) -> int | None:
    """By the source's clock alone. A few seconds are no lag: they pass while a window is applied."""
    if state.horizon is None:
        return None
    late = state.horizon.ts.seconds - checkpoint.ts.seconds
    return late if late >= _PASSING.total_seconds() else 0


def _says_the_same(before: ChangefeedStatus, after: ChangefeedStatus) -> bool:
    if before.current_at is None or after.current_at is None or after.current_at - before.current_at > _CURRENT_AGAIN:
        return False
    return replace(after, current_at=before.current_at, seen_at=before.seen_at) == before


def _lifecycle(
    state: ChangefeedState, checkpoint: Position, now: datetime, random: Random, *, awaits: bool
) -> Lifecycle:
    """`awaits`: it does not finish yet, since stragglers are behind."""
    status = state.status
    lifecycle = commanded(state.info, status, now=now, random=random)
    if lifecycle.state is not status.lifecycle.state:
        return lifecycle
    end = end_of(state)
    progress = status.checkpoint is not None and checkpoint > status.checkpoint
    events: list[Event] = [
        Sign.TICK,
        *([Sign.PROGRESS] if progress else []),
        *_errors(state),
        *([Sign.TARGET_REACHED] if end is not None and checkpoint >= end and not awaits else []),
    ]
    for event in events:
        lifecycle = lifecycle.after(event, now=now, random=random)
    for failure in _ddl_failures(state):
        if not (failure.retryable and lifecycle.state is State.WARNING):
            lifecycle = lifecycle.after(failure, now=now, random=random)
    return lifecycle


def commanded(info: ChangefeedInfo, status: ChangefeedStatus, *, now: datetime, random: Random) -> Lifecycle:
    """The lifecycle after the user's newest change. Each change is obeyed once."""
    if info.version == status.info_version:
        return status.lifecycle
    match info.desired:
        case DesiredState.PAUSED:
            command = Command.PAUSE
        case DesiredState.REMOVED:
            command = Command.REMOVE
        case DesiredState.RUNNING:
            command = Command.RESUME
    return status.lifecycle.after(command, now=now, random=random)


def _errors(state: ChangefeedState) -> list[ErrorReport]:
    """The errors of this run, without those that another error explains. Those that may lead to a pause are not hidden by others."""
    errors = [*state.errors, *state.node_errors, *_late(state)]
    errors = [error for error in errors if not any(other.explains(error) for other in errors)]
    return [error for error in errors if not error.keeps_running] or errors


def _late(state: ChangefeedState) -> list[ErrorReport]:
    """One is enough for a warning."""
    late = (error for report in state.reports if report.run == state.status.run for error in report.late.values())
    return list(islice(late, 1))


def _ddl_failures(state: ChangefeedState) -> list[ErrorReport]:
    """A failure that is retried gives a warning and nothing worse, however long it lasts: the DDL holds only its own tables."""
    return [
        ErrorReport.of(progress.error, progress.failed_at)
        for _, progress in sorted(state.executions.items())
        if isinstance(progress, Failed) and not isinstance(progress.error, OF_ITS_TABLES)
    ]


class Phase(Enum):
    REMOVE = auto()
    BEGIN = auto()
    RESTART = auto()
    RECAPTURE = auto()
    REFILTER = auto()
    RUN = auto()


def phase_of(
    info: ChangefeedInfo,
    status: ChangefeedStatus,
    configuration: Configuration,
    *,
    to_run: bool,
    takes_names: bool = False,
    blocked: bool = False,
) -> Phase:
    """`to_run`: whether the user's command lets it run. `takes_names`: tables wait for a name, which a resume may bring. `blocked`:
    tables cannot change at this position.
    """
    if status.lifecycle.state is State.REMOVED or never_began(info, status):
        return Phase.REMOVE
    if status.checkpoint is None:
        return Phase.BEGIN
    if _start_asked_for(info, status):
        return Phase.RESTART
    if status.capture is not info.capture:
        return Phase.RECAPTURE
    runs = status.lifecycle.running
    refilters = to_run and (not status.follows(configuration) or (takes_names and not runs))
    waits = blocked and bool(status.tables) and (runs or not status.reroutes(configuration))
    return Phase.REFILTER if refilters and not waits else Phase.RUN


def never_began(info: ChangefeedInfo, status: ChangefeedStatus) -> bool:
    """It is removed before it has a checkpoint, so nothing of it is at the target."""
    return info.desired is DesiredState.REMOVED and status.checkpoint is None


def _start_asked_for(info: ChangefeedInfo, status: ChangefeedStatus) -> bool:
    """By a change that the status does not reflect yet."""
    return info.resume_from is not None and info.desired is DesiredState.RUNNING and info.version != status.info_version
