"""The owner's phase for a changefeed at a tick: the first phase whose condition holds.

A user's change of a changefeed is obeyed once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.config.tables.pattern import TablePattern
from changefeed.config.tables.routes import Routes
from changefeed.lifecycle import Lifecycle, State
from changefeed.position import Position
from changefeed.records.requests import ChangefeedInfo, DesiredState
from changefeed.records.status import ChangefeedStatus
from owner.decision.status import Phase, commanded, phase_of

AT = Position(ClusterTime(100, 1))
CONFIGURATION = Configuration.parse({"id": "f", "source": "mongodb://a", "sink": "mongodb://b"})
INFO = ChangefeedInfo(configuration=CONFIGURATION, created_at=datetime(2026, 11, 21, tzinfo=UTC))
BEGUN = ChangefeedStatus(
    lifecycle=Lifecycle(state=State.NORMAL),
    checkpoint=AT,
    resolved=AT,
    tables=CONFIGURATION.filter.tables,
    info_version=1,
    epoch=1,
)
UNBEGUN = replace(BEGUN, checkpoint=None, resolved=None)
OTHER_TABLES = replace(BEGUN, tables=(TablePattern.parse("shop.*"),))
OTHER_ROUTES = replace(BEGUN, routes=Routes.model_validate([{"from": "shop.*", "to": "dr.*"}]))
REMOVED = replace(INFO, desired=DesiredState.REMOVED, version=2)
RESTARTED = replace(INFO, resume_from=AT, version=2)
RECAPTURED = replace(INFO, capture=Capture.OPLOG, version=2)


@pytest.mark.parametrize(
    ("info", "status", "to_run", "phase"),
    [
        (INFO, BEGUN, True, Phase.RUN),
        (INFO, BEGUN, False, Phase.RUN),
        (INFO, UNBEGUN, True, Phase.BEGIN),
        (INFO, UNBEGUN, False, Phase.BEGIN),
        (REMOVED, BEGUN, False, Phase.RUN),
        (REMOVED, replace(BEGUN, lifecycle=Lifecycle(state=State.REMOVED)), False, Phase.REMOVE),
        (REMOVED, UNBEGUN, False, Phase.REMOVE),
        (RESTARTED, BEGUN, True, Phase.RESTART),
        (RESTARTED, UNBEGUN, True, Phase.BEGIN),
        (RESTARTED, replace(BEGUN, info_version=2), True, Phase.RUN),
        (replace(RESTARTED, desired=DesiredState.PAUSED), BEGUN, False, Phase.RUN),
        (replace(RESTARTED, capture=Capture.OPLOG), OTHER_TABLES, True, Phase.RESTART),
        (RECAPTURED, BEGUN, False, Phase.RECAPTURE),
        (RECAPTURED, OTHER_TABLES, True, Phase.RECAPTURE),
        (INFO, OTHER_TABLES, True, Phase.REFILTER),
        (INFO, OTHER_ROUTES, True, Phase.REFILTER),
        (INFO, OTHER_ROUTES, False, Phase.RUN),
        (INFO, OTHER_TABLES, False, Phase.RUN),
    ],
)
def test_the_first_condition_that_holds_decides(
    info: ChangefeedInfo, status: ChangefeedStatus, to_run: bool, phase: Phase
) -> None:
    assert phase_of(info, status, CONFIGURATION, to_run=to_run) is phase


@pytest.mark.parametrize("status", [OTHER_TABLES, OTHER_ROUTES], ids=["tables", "routes"])
def test_what_runs_goes_on_with_its_tables_while_ddls_are_in_the_way_of_others(status: ChangefeedStatus) -> None:
    assert phase_of(INFO, status, CONFIGURATION, to_run=True, blocked=True) is Phase.RUN
    assert phase_of(INFO, replace(status, tables=()), CONFIGURATION, to_run=True, blocked=True) is Phase.REFILTER


def test_a_resume_waits_for_ddls_with_the_tables_of_before_but_not_with_names_of_before() -> None:
    stopped = Lifecycle(state=State.STOPPED)
    for status, phase in ((OTHER_TABLES, Phase.RUN), (OTHER_ROUTES, Phase.REFILTER)):
        assert phase_of(INFO, replace(status, lifecycle=stopped), CONFIGURATION, to_run=True, blocked=True) is phase


def test_a_status_says_what_its_changefeed_replicates_now() -> None:
    assert BEGUN.as_found(CONFIGURATION) is CONFIGURATION
    assert replace(BEGUN, tables=None).as_found(CONFIGURATION) is CONFIGURATION
    assert replace(BEGUN, tables=()).as_found(CONFIGURATION) is CONFIGURATION
    assert OTHER_TABLES.as_found(CONFIGURATION).filter.tables == OTHER_TABLES.tables
    assert OTHER_ROUTES.as_found(CONFIGURATION).routes == OTHER_ROUTES.routes


def test_a_resume_and_nothing_else_takes_names_that_have_become_free() -> None:
    stopped = replace(BEGUN, lifecycle=Lifecycle(state=State.STOPPED))
    assert phase_of(INFO, stopped, CONFIGURATION, to_run=True, takes_names=True) is Phase.REFILTER
    assert phase_of(INFO, stopped, CONFIGURATION, to_run=False, takes_names=True) is Phase.RUN
    assert phase_of(INFO, BEGUN, CONFIGURATION, to_run=True, takes_names=True) is Phase.RUN


NOW = datetime(2026, 11, 21, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
PAUSED = ChangefeedInfo(
    configuration=Configuration.parse({"id": "f", "source": "mongodb://a", "sink": "mongodb://b"}),
    desired=DesiredState.RUNNING,
    created_at=NOW,
    capture=Capture.OPLOG,
    version=2,
)


def test_a_changefeed_that_ends_by_itself_is_not_resumed_by_an_earlier_command() -> None:
    """Until the user says so once more."""
    failed = ChangefeedStatus(
        lifecycle=Lifecycle(state=State.FAILED, since_at=NOW), info_version=2, epoch=1, capture=Capture.OPLOG
    )
    assert commanded(PAUSED, failed, now=LATER, random=Random(1)) == failed.lifecycle
    again = replace(PAUSED, version=3)
    assert commanded(again, failed, now=LATER, random=Random(1)).state is State.NORMAL
