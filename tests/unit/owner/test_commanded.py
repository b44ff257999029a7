"""A user's change of a changefeed is obeyed once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.lifecycle import Lifecycle, State
from changefeed.records.requests import ChangefeedInfo, DesiredState
from changefeed.records.status import ChangefeedStatus
from owner.status import commanded

NOW = datetime(2026, 11, 21, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
INFO = ChangefeedInfo(
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
    assert commanded(INFO, failed, now=LATER, random=Random(1)) == failed.lifecycle
    again = replace(INFO, version=3)
    assert commanded(again, failed, now=LATER, random=Random(1)).state is State.NORMAL
