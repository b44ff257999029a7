"""A user sees the progress of the initial copy, over all tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from admin.services import messages
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.errors import HistoryLost
from changefeed.lifecycle import ErrorReport, Lifecycle, State
from changefeed.position import Position
from changefeed.records import (
    AssignedTable,
    Assignment,
    Barrier,
    ChangefeedId,
    ChangefeedInfo,
    ChangefeedStatus,
    CopyProgress,
    LetterTotals,
    NodeId,
    PositionReport,
    RowCounts,
)
from changefeed.table import TableId, TableName, TableSchema
from cli.changefeed_view import changed_line, facts
from coordination import decoded
from owner.etcd_view import OwnerView

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NODE = NodeId("n1-1")
TABLES = [TableId(f"{number:032x}") for number in range(4)]


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def copying(under_way: dict[TableId, CopyProgress], left: dict[TableId, Position]) -> OwnerView:
    """Four tables whose copy begins at 5; those of `left` are at the given positions, the others at 9."""
    configuration = Configuration.parse({"id": "f", "source": "mongodb://s", "sink": "mongodb://t"})
    report = PositionReport(run=1, barrier_rev=1, assignment_rev=7, checkpoint=at(9), exceptions=left, copies=under_way)
    assignment = Assignment(tables={table: AssignedTable(start=at(5), copy=True) for table in TABLES})
    return OwnerView(
        info=ChangefeedInfo(configuration=configuration, created_at=NOW),
        status=ChangefeedStatus(
            start=at(5), copied_from=at(5), checkpoint=at(5), resolved=at(9), run=1, info_version=1, epoch=1
        ),
        status_rev=1,
        barrier=Barrier(epoch=1, position=at(9)),
        barrier_rev=1,
        records={},
        bases={id: TableSchema(id=id, name=TableName("s", id[-1]), valid_from=at(5)) for id in TABLES},
        assignments={NODE: decoded.StoredRecord(assignment, create_rev=7, mod_rev=7)},
        reports={NODE: report},
        rows=RowCounts(),
        renames={},
        moves={},
        stragglers={},
        requests={},
        skips=frozenset(),
        copied=frozenset(),
        processors={},
        isolates=True,
    )


def test_what_nodes_have_skipped_and_repaired_is_added_up() -> None:
    known = copying({}, {})
    counted = RowCounts(skipped=3, repaired=2)
    reports = {NODE: replace(known.reports[NODE], rows=RowCounts(skipped=4, rejected=1))}
    shown = dict(facts(messages.changefeed(ChangefeedId("f"), replace(known, rows=counted, reports=reports), now=NOW)))
    assert shown["replayed changes skipped"] == "7"
    assert shown["divergent rows repaired"] == "2"
    assert shown["changes rejected"] == "1"


def shown(known: OwnerView) -> tuple[dict[str, str], str]:
    message = messages.changefeed(ChangefeedId("f"), known, now=NOW)
    return {name: str(value) for name, value in facts(message)}, changed_line(message)


def test_a_changefeed_with_rows_that_the_target_refuses_does_not_look_normal() -> None:
    known = copying({}, {})
    assert known.status is not None
    letters = LetterTotals(count=3, bytes=1_500, since=NOW)
    told, line = shown(replace(known, status=replace(known.status, letters=letters)))
    assert (told["state"], told["error"], told["rows rejected"]) == (
        "warning",
        "row_rejected",
        "3 (1.5 kB of dead letters)",
    )
    assert "rejected 3" in line
    assert "`sluice table retry-rejected f TABLE`" in line
    assert shown(known)[0]["state"] == "normal"


def test_a_failed_changefeed_stays_failed_whatever_the_target_refuses() -> None:
    known = copying({}, {})
    assert known.status is not None
    failed = Lifecycle(state=State.FAILED, error=ErrorReport.of(HistoryLost("gone"), NOW))
    status = replace(known.status, lifecycle=failed, letters=LetterTotals(count=3))
    assert shown(replace(known, status=status))[0]["error"] == "history_lost"


def test_the_tables_that_lag_most_are_named_with_their_lag() -> None:
    known = copying({}, {TABLES[1]: Position(ClusterTime(40, 1))})
    assert known.status is not None
    status = replace(known.status, checkpoint=at(9), current_at=NOW, seen_at=NOW, behind=False)
    told = messages.changefeed(ChangefeedId("f"), replace(known, status=status), now=NOW)
    assert told.lag.seconds == 0
    assert [(each.name, each.lag.seconds) for each in told.slowest] == [("s.1", 60)]


def test_the_copy_is_shown_as_a_bar_over_all_tables() -> None:
    progress = CopyProgress(documents=1_200, bytes=9_000, chunks_done=1, chunks=2)
    stored = copying({TABLES[0]: progress}, {TABLES[0]: at(5), TABLES[1]: at(5)})
    message = messages.changefeed(ChangefeedId("f"), stored, now=NOW)
    expected = "████████████░░░░░░░░ 62%  2 of 4 tables  1,200 docs, 9.0 kB"
    assert dict(facts(message))["copy"] == expected
    assert f"copy {expected}" in changed_line(message)


def test_a_table_whose_documents_are_all_copied_is_not_done_before_its_copy_ends() -> None:
    whole = CopyProgress(documents=10, bytes=100, chunks_done=1, chunks=1)
    stored = copying(dict.fromkeys(TABLES[2:], whole), dict.fromkeys(TABLES[2:], at(5)))
    assert dict(facts(messages.changefeed(ChangefeedId("f"), stored, now=NOW)))["copy"] == (
        "███████████████████░ 99%  2 of 4 tables  20 docs, 200 B"
    )


def test_the_rest_of_a_copy_takes_as_long_as_the_copy_until_now() -> None:
    progress = CopyProgress(documents=1_200, bytes=9_000, chunks_done=1, chunks=2)
    stored = copying({TABLES[0]: progress}, {TABLES[0]: at(5), TABLES[1]: at(5)})
    assert stored.status is not None
    stored = replace(stored, status=replace(stored.status, copying_since=NOW - timedelta(minutes=10)))
    copy = dict(facts(messages.changefeed(ChangefeedId("f"), stored, now=NOW)))["copy"]
    assert str(copy).endswith("  about 6min left")


def test_when_all_tables_are_copied_there_is_no_bar() -> None:
    message = messages.changefeed(ChangefeedId("f"), copying({}, {}), now=NOW)
    assert not message.HasField("copy")
    assert "copy" not in changed_line(message)


def test_a_copy_that_has_not_begun_is_shown_too() -> None:
    message = messages.changefeed(ChangefeedId("f"), copying({}, dict.fromkeys(TABLES, at(5))), now=NOW)
    assert dict(facts(message))["copy"] == "░░░░░░░░░░░░░░░░░░░░ 0%  0 of 4 tables"
