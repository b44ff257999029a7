"""`paused`, `resumed`, `updated`, `ending`, `removed`: a changefeed's `info` after each of the user's verbs. Pure.

    verb        allowed in the states                       otherwise
    pause       normal, warning, pending                    already stopped: no change; failed, finished: there is nothing to pause
    resume      pending, stopped, failed, finished          already running: no change, unless a new start is given
    update      stopped, failed, finished                   pause it first, unless only live options change
    finalize    all that run, and finished                  resume it first
    give up     cut over with a way back, before its mark   nothing to give up; or users may have written at the target since
    remove      all, but amid a cut-over with a way back    already being removed: no change

The owner obeys each change once, by its version. So a verb is judged by the state and, until the owner has obeyed the last change, by
that change. A new start is kept until the changefeed has begun there, also through a pause: the owner may have begun to clear what the old
start left. If it were kept longer, it would restart the changefeed again.

`differences` says how a configuration that somebody keeps elsewhere differs from the one that is in effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from admin.preflight.update_effect import changed_options
from changefeed.capture import names_place
from changefeed.cluster_time import ClusterTime
from changefeed.config.capture_choice import CaptureChoice
from changefeed.config.configuration import Configuration
from changefeed.config.live_options import LIVE_OPTIONS, TABLE_OPTIONS, alike, differing, needing_a_pause
from changefeed.errors import ConfigurationError, ConflictError, WrongState
from changefeed.lifecycle import Lifecycle, State
from changefeed.position import Position
from changefeed.records.requests import ChangefeedInfo, DesiredState, Reroute
from changefeed.records.status import ChangefeedStatus

_ENDED = (State.FAILED, State.FINISHED)


@dataclass(frozen=True, slots=True)
class DeploymentIds:
    """Empty: not known."""

    source: str = ""
    sink: str = ""


def created(
    configuration: Configuration, choice: CaptureChoice, at: datetime, ids: DeploymentIds = DeploymentIds()
) -> ChangefeedInfo:
    info = ChangefeedInfo(configuration=configuration, created_at=at, source_id=ids.source, sink_id=ids.sink)
    return _decided(info, choice)


def paused(info: ChangefeedInfo, status: ChangefeedStatus | None) -> ChangefeedInfo:
    _check_not_removed(info)
    state = _state(status)
    if info.desired is DesiredState.PAUSED and state not in _ENDED:
        return info
    if state in _ENDED and _obeyed(info, status):
        raise WrongState(f"changefeed {info.configuration.id!r} is {state}; there is nothing to pause")
    return _changed(info, status, desired=DesiredState.PAUSED)


def resumed(info: ChangefeedInfo, status: ChangefeedStatus | None, start: Position | None) -> ChangefeedInfo:
    _check_not_removed(info)
    _check_not_reversed(info)
    state = _state(status)
    runs = state in (State.NORMAL, State.WARNING) if _obeyed(info, status) else info.desired is DesiredState.RUNNING
    id, target = info.configuration.id, info.configuration.target
    if runs and start is None:
        return info
    if runs:
        raise WrongState(f"changefeed {id!r} is {state}; pause it first, then resume it with a new start")
    if state is State.FINISHED and start is None and _at_its_target(status, target):
        raise WrongState(
            f"changefeed {id!r} has reached its target {target}; update it with a later target or none, then resume it"
        )
    if start is not None and status is not None and (status.tables == () or status.reroutes(info.configuration)):
        raise WrongState(
            f"changefeed {id!r} has to carry out its update first, which brings tables to their new names; resume it without a new start"
        )
    if start is not None and target is not None and start >= Position(target):
        raise ConfigurationError([f"start: found {start}, which is not before the changefeed's target {target}"])
    if start is not None and info.configuration.sink_traits.keeps_messages:
        raise WrongState(
            f"changefeed {id!r} writes messages, and those between its position and {start} would be missing or repeated; resume it without a "
            "new start, or create another changefeed with a sink of its own"
        )
    if start is not None and not names_place(info.capture, start.token):
        raise ConfigurationError(
            [f"start: found {start}, a place that {info.capture} cannot read; write its time alone, {start.ts}"]
        )
    asked = replace(info, resume_from=start) if start is not None else info
    return _changed(asked, None if start is not None else status, desired=DesiredState.RUNNING)


def check_update(
    info: ChangefeedInfo, status: ChangefeedStatus | None, configuration: Configuration, expected_version: int
) -> None:
    _check_not_removed(info)
    id, state = info.configuration.id, _state(status)
    if info.way_back is not None:
        raise WrongState(
            f"changefeed {id!r} is being cut over, or was, with the way back {info.way_back.id!r}; it keeps its configuration"
        )
    if expected_version not in (0, info.version):
        raise ConflictError(
            f"changefeed {id!r} is at version {info.version}, expected {expected_version}: another user changed it; query it again"
        )
    if configuration.id != id:
        raise ConfigurationError(
            [f"id: found {configuration.id!r}, expected {id!r}; an update does not rename a changefeed"]
        )
    if status is None or not status.lifecycle.resting or not _obeyed(info, status):
        changed = needing_a_pause(configuration, info.configuration)
        if not changed:
            return
        raise WrongState(
            f"changefeed {id!r} is {state}, and {', '.join(changed)} would change; pause it first, then update it "
            f"({', '.join(sorted(LIVE_OPTIONS))} and most routes change while it runs: `sluice changefeed options`)"
        )


def updated(
    info: ChangefeedInfo,
    status: ChangefeedStatus | None,
    configuration: Configuration,
    expected_version: int,
    choice: CaptureChoice,
    *,
    level: ChangefeedInfo | None = None,
    reroute: Reroute | None = None,
    ids: DeploymentIds = DeploymentIds(),
) -> ChangefeedInfo:
    """`level`: the `info` at the time when the positions allowed another capture; they still do while `info` is unchanged."""
    check_update(info, status, configuration, expected_version)
    if choice.capture is not info.capture and info != level:
        raise ConflictError(
            f"changefeed {info.configuration.id!r} was changed by another user meanwhile; query it again"
        )
    begun = status is not None and status.checkpoint is not None
    wanted = replace(
        info,
        configuration=configuration,
        reroute=reroute,
        source_id=ids.source or (info.source_id if begun else ""),
        sink_id=ids.sink or (info.sink_id if begun else ""),
    )
    if wanted == info:
        return info
    if runs_on(info, status, configuration) or changes_tables(info, status, configuration):
        return replace(_changed(info, status, desired=DesiredState.RUNNING), configuration=configuration)
    changed = _changed(wanted, status, desired=DesiredState.PAUSED)
    return _decided(replace(changed, leaves_stopped=False), choice)


def runs_on(info: ChangefeedInfo, status: ChangefeedStatus | None, configuration: Configuration) -> bool:
    """Whether an update stops nothing, and starts nothing: only limits change, and it runs, or is about to."""
    return _runs(info, status) and alike(configuration, info.configuration)


def changes_tables(info: ChangefeedInfo, status: ChangefeedStatus | None, configuration: Configuration) -> bool:
    """Whether an update takes tables in and out while the changefeed runs, or is about to."""
    changed = differing(configuration, info.configuration)
    return _runs(info, status) and bool(changed) and TABLE_OPTIONS.issuperset(changed)


def _runs(info: ChangefeedInfo, status: ChangefeedStatus | None) -> bool:
    return info.desired is DesiredState.RUNNING and not (status is not None and status.lifecycle.resting)


def ending(
    info: ChangefeedInfo, status: ChangefeedStatus | None, target: ClusterTime, *, leave_stopped: bool = False
) -> ChangefeedInfo:
    """The changefeed finishes at `target`, or at the target of an earlier call. `leave_stopped`: without its stopped tables."""
    check_can_end(info, status)
    asked = info.configuration.target
    if _state(status) is State.FINISHED:
        return info
    end = target if asked is None else min(asked, target)
    _check_begins_before(info, end)
    leaves_stopped = leave_stopped or info.leaves_stopped
    if (end, leaves_stopped) == (asked, info.leaves_stopped):
        return info
    configuration = info.configuration.model_copy(update={"target": end})
    changed = _changed(info, status, desired=DesiredState.RUNNING)
    return replace(changed, configuration=configuration, leaves_stopped=leaves_stopped)


def _check_begins_before(info: ChangefeedInfo, end: ClusterTime) -> None:
    """A start may lie ahead of the source's newest time."""
    id, start, again = info.configuration.id, info.configuration.start, info.resume_from
    configured = start if isinstance(start, ClusterTime) and start >= end else None
    ahead = again.ts if again is not None and again > Position(end) else configured
    if ahead is not None:
        raise WrongState(
            f"changefeed {id!r} starts at {ahead} ({ahead.to_iso()}), and the source is at {end} ({end.to_iso()}): there is nothing to finish; "
            "finalize it when the source has passed that time, or remove it (`sluice changefeed remove`). A local time is written with its "
            "offset, such as +09:00"
        )


def check_can_end(info: ChangefeedInfo, status: ChangefeedStatus | None) -> None:
    _check_not_removed(info)
    state = _state(status)
    if state is not State.FINISHED and (
        info.desired is not DesiredState.RUNNING or state in (State.STOPPED, State.FAILED)
    ):
        error = status.lifecycle.error if status else None
        reason = f" ({error.message})" if error is not None else ""
        raise WrongState(f"changefeed {info.configuration.id!r} is {state}{reason}; resume it, then finalize it")


def removed(info: ChangefeedInfo, status: ChangefeedStatus | None) -> ChangefeedInfo:
    way = info.way_back
    if way is not None and not way.open:
        raise WrongState(
            f"changefeed {info.configuration.id!r} is being cut over, and expiries are suspended and writes may be blocked until that is done; run "
            f"`sluice changefeed finalize {info.configuration.id} --reverse-as {way.id}` again, or give it up (--give-up), then remove it"
        )
    return info if info.desired is DesiredState.REMOVED else _changed(info, status, desired=DesiredState.REMOVED)


def _decided(info: ChangefeedInfo, choice: CaptureChoice) -> ChangefeedInfo:
    return replace(info, capture=choice.capture, capture_reason=choice.reason)


def _changed(info: ChangefeedInfo, status: ChangefeedStatus | None, *, desired: DesiredState) -> ChangefeedInfo:
    begun = status is not None and status.checkpoint is not None and _obeyed(info, status)
    resume_from = None if begun and info.desired is DesiredState.RUNNING else info.resume_from
    return replace(info, desired=desired, version=info.version + 1, resume_from=resume_from)


def _at_its_target(status: ChangefeedStatus | None, target: ClusterTime | None) -> bool:
    checkpoint = status.checkpoint if status else None
    return target is not None and checkpoint is not None and checkpoint >= Position(target)


def check_gives_up(info: ChangefeedInfo) -> None:
    id, way = info.configuration.id, info.way_back
    if way is None:
        raise WrongState(f"changefeed {id!r} is not being cut over with a way back; there is nothing to give up")
    if way.open:
        raise WrongState(
            f"changefeed {id!r} has been cut over, and users write at its target since; what they wrote comes back by its way back: "
            f"`sluice changefeed finalize {way.id}`"
        )


def gave_up(info: ChangefeedInfo, status: ChangefeedStatus | None) -> ChangefeedInfo:
    """It goes on as if it had not been asked to end."""
    check_gives_up(info)
    way = info.way_back
    if way is not None and way.mark_ts is not None:
        raise WrongState(
            f"changefeed {info.configuration.id!r} has reached the mark of its cut-over meanwhile; run the command again"
        )
    configuration = info.configuration.model_copy(update={"target": None})
    changed = _changed(info, status, desired=DesiredState.RUNNING)
    return replace(changed, configuration=configuration, way_back=None, leaves_stopped=False)


def _check_not_reversed(info: ChangefeedInfo) -> None:
    """Rows would go round in a circle."""
    if info.way_back is not None and info.way_back.mark_ts is not None:
        raise WrongState(
            f"changefeed {info.configuration.id!r} has been cut over, and {info.way_back.id!r} is its way back; finalize that "
            f"(`sluice changefeed finalize {info.way_back.id}`), then create a new changefeed"
        )


def _check_not_removed(info: ChangefeedInfo) -> None:
    if info.desired is DesiredState.REMOVED:
        raise WrongState(
            f"changefeed {info.configuration.id!r} is being removed; create it again when it no longer exists"
        )


def _state(status: ChangefeedStatus | None) -> State:
    return (status.lifecycle if status else Lifecycle()).state


def _obeyed(info: ChangefeedInfo, status: ChangefeedStatus | None) -> bool:
    return status is not None and status.info_version == info.version


_ONLY_AT_CREATION = frozenset({"start"})
_ADDRESSES = ("source", "sink")


def differences(kept: Configuration, present: Configuration) -> list[str]:
    """The names of options. Of addresses, credentials and options count too. A target that only the present one has was set by a cut-over."""
    found = {option.path for option in changed_options(kept, present)}
    found |= {name for name in _ADDRESSES if getattr(kept, name) != getattr(present, name)}
    cut_over = {"target"} if kept.target is None else set()
    return sorted(found - _ONLY_AT_CREATION - cut_over)
