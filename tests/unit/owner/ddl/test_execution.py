"""Each step of a DDL follows from durable state and this process's knowledge, so any owner can resume a DDL at any step.

A rename must not change which fields of a table's rows are left out.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import Disposition
from changefeed.errors import (
    DdlAmbiguous,
    DdlRefused,
    DdlUnsupported,
    FencedError,
    InvariantError,
    SinkUnavailable,
    SluiceError,
)
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Observation, Scope
from changefeed.table import TableName
from owner.ddl.execution import (
    Applied,
    Apply,
    DdlProgress,
    Failed,
    Observe,
    Observed,
    RecordExecuting,
    Refuse,
    ReleaseDdl,
    Running,
    Step,
    next_step,
    shown_otherwise,
)

NOW = datetime(2026, 11, 21, tzinfo=UTC)
BEFORE = Observation(tables={})
PENDING = DdlRecord(
    event=DdlEvent(position=Position(ClusterTime(100, 1)), type=DdlType.DROP, db="shop"),
    scope=Scope(),
    seen_at=NOW - timedelta(seconds=1),
)
EXECUTING = replace(PENDING, state=DdlState.EXECUTING, before=BEFORE, executing_at=NOW)


def step(
    record: DdlRecord, progress: DdlProgress | None, *, skip: bool = False, monotonic: float = 50.0
) -> Step | None:
    return next_step(record, progress, skip_unsupported=skip, monotonic=monotonic, now=NOW)


def test_the_downstream_is_looked_at_before_anything_is_recorded() -> None:
    assert step(PENDING, None) == Observe(PENDING)


def test_what_was_seen_is_recorded_before_anything_is_applied() -> None:
    assert step(PENDING, Observed(BEFORE)) == RecordExecuting(EXECUTING)


def test_an_owner_that_takes_over_applies_with_what_was_recorded() -> None:
    assert step(EXECUTING, None) == Apply(EXECUTING)


def test_applied_and_not_yet_recorded_is_released() -> None:
    assert step(EXECUTING, Applied("")) == ReleaseDdl(replace(EXECUTING, state=DdlState.DONE, done_at=NOW))


def test_nothing_is_begun_twice() -> None:
    assert step(PENDING, Running()) is None
    assert step(EXECUTING, Running()) is None


def test_a_failure_that_may_go_away_is_tried_again_at_the_step_that_failed_when_its_delay_is_over() -> None:
    failed = Failed(SinkUnavailable("no primary"), NOW, retry_deadline=60.0)
    assert step(PENDING, failed, monotonic=59.9) is None
    assert step(PENDING, failed, monotonic=60.0) == Observe(PENDING)
    assert step(EXECUTING, failed, monotonic=60.0) == Apply(EXECUTING)


def refusal(error: SluiceError) -> ErrorReport:
    return ErrorReport.of(error, NOW)


def test_a_refused_ddl_is_pending_again_and_waits_for_a_user() -> None:
    error = DdlRefused("duplicate key")
    refused = Failed(error, NOW, retry_deadline=0.0)
    assert step(EXECUTING, refused) == Refuse(replace(PENDING, refused=refusal(error)))


def test_after_mending_the_downstream_is_looked_at_anew() -> None:
    refused = step(EXECUTING, Failed(DdlRefused("stands there"), NOW, retry_deadline=0.0))
    assert isinstance(refused, Refuse)
    assert step(replace(refused.record, refused=None), None) == Observe(PENDING)


@pytest.mark.parametrize("error", [DdlAmbiguous("another UUID"), InvariantError("a bug")])
def test_what_is_not_understood_waits_for_a_user_and_stays_compared_with_what_was_recorded(error: SluiceError) -> None:
    failed = Failed(error, NOW, retry_deadline=0.0)
    assert step(EXECUTING, failed) == Refuse(replace(EXECUTING, refused=refusal(error)))


def test_an_owner_whose_turn_is_over_refuses_nothing() -> None:
    assert step(EXECUTING, Failed(FencedError("closed"), NOW, retry_deadline=0.0)) is None


def test_an_unsupported_ddl_is_skipped_only_where_the_user_said_so() -> None:
    error = DdlUnsupported("the target is not sharded")
    failed = Failed(error, NOW, retry_deadline=0.0)
    assert step(PENDING, failed) == Refuse(replace(PENDING, refused=refusal(error)))
    released = step(PENDING, failed, skip=True)
    assert isinstance(released, ReleaseDdl)
    assert (released.record.state, released.record.note) == (DdlState.SKIPPED, "the target is not sharded")


def test_a_refusal_is_never_skipped() -> None:
    error = DdlRefused("duplicate key")
    refused = Failed(error, NOW, retry_deadline=0.0)
    assert step(EXECUTING, refused, skip=True) == Refuse(replace(PENDING, refused=refusal(error)))


def test_a_ddl_that_the_user_does_not_want_downstream_goes_through_the_schema_store_only() -> None:
    released = step(replace(PENDING, disposition=Disposition.SCHEMA_ONLY), None)
    assert isinstance(released, ReleaseDdl)
    assert released.record.state is DdlState.SKIPPED


CONFIGURATION = Configuration.parse(
    {
        "id": "f",
        "source": "mongodb://a",
        "sink": "mongodb://b",
        "filter": {"tables": ["shop.*"]},
        "columns": [{"tables": ["*.users*"], "drop": ["ssn"]}],
    }
)


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ("shop.users", "shop.people", True),
        ("shop.people", "shop.users", True),
        ("shop.users", "shop.users_old", False),
        ("shop.orders", "shop.sales", False),
        ("shop.users", "elsewhere.people", False),
    ],
)
def test_a_rename_that_shows_other_fields_is_refused(old: str, new: str, *, refused: bool) -> None:
    rename = DdlEvent(
        position=Position(ClusterTime(5, 1)),
        type=DdlType.RENAME,
        db="shop",
        table=TableName.parse(old),
        renamed_to=TableName.parse(new),
    )
    assert bool(shown_otherwise(rename, CONFIGURATION)) is refused
