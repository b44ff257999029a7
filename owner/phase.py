"""`phase_of`: what the owner does for a changefeed at a tick. Pure.

    phase        when                                        what the owner does
    REMOVE       the user removed it                         waits until no pipeline runs, then deletes its keys
    BEGIN        it has no checkpoint                        reads the source's catalog, writes the bases, sets the checkpoint
    RESTART      resumed with another start                  stops its pipelines, then clears its state; BEGIN follows
    RECAPTURE    updated to another capture                  folds the DDL records, writes the capture
    REFILTER     updated to other tables or routes, and it   takes tables in and out, brings them to their names downstream; writes the
                 is to run; or tables without a name         filter's tables and the routes. Open DDLs are waited for: RUN, with the
                 downstream may have got one                 tables of before. Not if tables get other names, which needs a pause
    RUN          otherwise                                   `decision/decide.py`: barrier, DDL, status

The first row that holds is taken. A crash in a phase leaves a state in which the same phase is found again, or the next one.
"""

from __future__ import annotations

from enum import Enum, auto

from changefeed.config.configuration import Configuration
from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedInfo, DesiredState
from changefeed.records.status import ChangefeedStatus


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
