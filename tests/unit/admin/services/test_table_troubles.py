"""Which of a table's troubles counts: it says what a user may do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from admin.services.troubles import TroubleKind, troubles
from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SinkRefused
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Scope
from changefeed.records.status import Straggler
from changefeed.table import TableId, TableName
from owner.ddl.stragglers import StoredStraggler

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
TABLE = TableId("a" * 32)
AT = Position(ClusterTime(100, 1))
LOST = ErrorReport.of(HistoryLost("its history is gone"), NOW)
REFUSED = ErrorReport.of(SinkRefused("no"), NOW)


def refused(type: DdlType, *, ends: bool) -> DdlRecord:
    event = DdlEvent(position=AT, type=type, db="shop", table=TableName("shop", "a"), id=TABLE)
    tables = frozenset({TABLE})
    scope = Scope(tables=tables, ended=tables if ends else frozenset())
    return DdlRecord(event=event, scope=scope, refused=REFUSED, seen_at=NOW)


INDEX, DROP = refused(DdlType.CREATE_INDEXES, ends=False), refused(DdlType.DROP, ends=True)


@pytest.mark.parametrize(
    ("error", "record", "kind", "said"),
    [
        (LOST, None, TroubleKind.LOST, LOST),
        (LOST, INDEX, TroubleKind.LOST, LOST),
        (LOST, DROP, TroubleKind.REFUSED, REFUSED),
        (None, DROP, TroubleKind.REFUSED, REFUSED),
        (None, INDEX, TroubleKind.STOPPED, None),
    ],
)
def test_a_table_whose_end_was_refused_waits_for_that_alone(
    error: ErrorReport | None, record: DdlRecord | None, kind: TroubleKind, said: ErrorReport | None
) -> None:
    """Even if it was lost before: there is nothing to copy anew any more."""
    stopped = StoredStraggler(Straggler(at=AT, stopped=True, error=error, since=NOW), 7)
    [trouble] = troubles({TABLE: stopped}, [record] if record else []).values()
    assert (trouble.kind, trouble.error) == (kind, said)


def test_a_refused_ddl_of_a_table_that_is_to_end_counts_even_if_it_is_not_the_end_itself() -> None:
    lost = StoredStraggler(Straggler(at=AT, stopped=True, error=LOST, since=NOW), 7)
    drop = replace(DROP, event=replace(DROP.event, position=Position(ClusterTime(200, 1))), refused=None)
    rename = refused(DdlType.RENAME, ends=False)
    [trouble] = troubles({TABLE: lost}, [drop, rename]).values()
    assert (trouble.kind, trouble.error) == (TroubleKind.REFUSED, REFUSED)


def test_of_several_refused_ddls_the_first_one_counts() -> None:
    later = replace(DROP, event=replace(DROP.event, position=Position(ClusterTime(200, 1))), refused=LOST)
    [trouble] = troubles({}, [later, INDEX]).values()
    assert trouble.error is REFUSED
