"""A user sees the progress of the initial copy, over all tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from admin.services import changefeed_messages
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.errors import HistoryLost
from changefeed.lifecycle import ErrorReport, Lifecycle, State
from changefeed.position import Position
from changefeed.records.copy import CopiedChunk, CopyFloor, CopyPart, CopyProgress, CopyRate, CopyRecord, CopyStage
from changefeed.records.ddl import Barrier
from changefeed.records.node import AssignedTable, Assignment, NodeId, NodeRecord, PositionReport, Role, RowCounts
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus, LetterTotals
from changefeed.table import TableId, TableName, TableSchema, TableSize
from cli import cells
from cli.views import changed_line, facts, print_plan
from coordination import decoded
from owner.etcd_view import OwnerView

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NODE = NodeId("n1-1")
PROCESSOR = NodeRecord(
    id=NODE, name="n1", admin_address="", roles=frozenset({Role.PROCESSOR}), version="0.2", started_at=NOW
)
TABLES = [TableId(f"{number:032x}") for number in range(4)]


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def copying(
    under_way: dict[TableId, CopyProgress], left: dict[TableId, Position], sizes: dict[TableId, TableSize] | None = None
) -> OwnerView:
    """Four tables whose copy begins at 5; those of `left` are at the given positions, the others are copied and at 9."""
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
        bases={
            id: TableSchema(
                id=id, name=TableName("s", id[-1]), valid_from=at(5), copied=True, size=(sizes or {}).get(id)
            )
            for id in TABLES
        },
        assignments={NODE: decoded.StoredRecord(assignment, create_rev=7, mod_rev=7)},
        reports={NODE: report},
        rows=RowCounts(),
        renames={},
        moves={},
        repairs={},
        stragglers={},
        requests={},
        skips=frozenset(),
        copied=frozenset(TABLES) - left.keys(),
        processors={NODE: PROCESSOR},
    )


def test_what_nodes_have_skipped_and_repaired_is_added_up() -> None:
    known = copying({}, {})
    counted = RowCounts(skipped=3, repaired=2)
    reports = {NODE: replace(known.reports[NODE], rows=RowCounts(skipped=4, rejected=1))}
    shown = dict(
        facts(changefeed_messages.changefeed(ChangefeedId("f"), replace(known, rows=counted, reports=reports), now=NOW))
    )
    assert shown["replayed changes skipped"] == "7"
    assert shown["divergent rows repaired"] == "2"
    assert shown["changes rejected"] == "1"


def shown(known: OwnerView) -> tuple[dict[str, str], str]:
    message = changefeed_messages.changefeed(ChangefeedId("f"), known, now=NOW)
    return {name: str(value) for name, value in facts(message)}, changed_line(message)


def test_a_changefeed_with_rows_that_the_target_refuses_does_not_look_normal() -> None:
    known = copying({}, {})
    assert known.status is not None
    letters = LetterTotals(count=3, bytes=1_500, since=NOW)
    told, line = shown(replace(known, status=replace(known.status, letters=letters)))
    assert (told["state"], told["error"], told["rows rejected"]) == (
        "warning, 3 rows rejected",
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
    told = changefeed_messages.changefeed(ChangefeedId("f"), replace(known, status=status), now=NOW)
    assert told.lag.seconds == 0
    assert [(each.name, each.lag.seconds) for each in told.slowest] == [("s.1", 60)]


def test_the_copy_is_shown_as_a_bar_over_all_tables() -> None:
    progress = CopyProgress(documents=1_200, bytes=9_000, chunks_done=1, chunks=2, share=0.5)
    stored = copying({TABLES[0]: progress}, {TABLES[0]: at(5), TABLES[1]: at(5)})
    message = changefeed_messages.changefeed(ChangefeedId("f"), stored, now=NOW)
    expected = "████████████░░░░░░░░ 62%  2 of 4 tables  1,200 docs, 9.0 kB"
    assert dict(facts(message))["copy"] == expected
    assert f"copy {expected}" in changed_line(message)


def test_a_table_whose_documents_are_all_copied_is_not_done_before_its_copy_ends() -> None:
    whole = CopyProgress(documents=10, bytes=100, chunks_done=1, chunks=1, share=1.0)
    stored = copying(dict.fromkeys(TABLES[2:], whole), dict.fromkeys(TABLES[2:], at(5)))
    assert dict(facts(changefeed_messages.changefeed(ChangefeedId("f"), stored, now=NOW)))["copy"] == (
        "███████████████████░ 99%  2 of 4 tables  20 docs, 200 B"
    )


def test_the_rest_of_a_copy_takes_as_long_as_its_bytes_take_at_the_present_rate() -> None:
    progress = CopyProgress(
        documents=1_200,
        bytes=9_000_000,
        chunks_done=1,
        chunks=2,
        left=TableSize(documents=1_300, bytes=9_000_000),
        share=0.5,
    )
    left = {TABLES[0]: at(5), TABLES[1]: at(5)}
    stored = copying({TABLES[0]: progress}, left, {TABLES[1]: TableSize(documents=100, bytes=3_000_000)})
    reports = {NODE: replace(stored.reports[NODE], copy_rate=CopyRate(documents=10, bytes=100_000))}
    stored = replace(stored, reports=reports)
    message = changefeed_messages.changefeed(ChangefeedId("f"), replace(stored), now=NOW)
    assert cells.copy(message).endswith(
        "  2 of 4 tables  1,200 of about 2,600 docs, 9.0 MB of 21.0 MB  100.0 kB/s  about 2min left"
    )
    assert (message.copy.documents_left, message.copy.bytes_left) == (1_400, 12_000_000)
    assert [(each.name, each.copy.bytes_left) for each in message.copies] == [("s.0", 9_000_000)]


def test_a_paused_copy_has_no_rate() -> None:
    stored = copying({}, dict.fromkeys(TABLES, at(5)), dict.fromkeys(TABLES, TableSize(documents=1, bytes=1_000)))
    assert stored.status is not None
    paused = replace(stored.status, lifecycle=Lifecycle(state=State.STOPPED))
    reports = {NODE: replace(stored.reports[NODE], copy_rate=CopyRate(documents=10, bytes=1_000))}
    copy = changefeed_messages.changefeed(
        ChangefeedId("f"), replace(stored, status=paused, reports=reports), now=NOW
    ).copy
    assert (copy.bytes_left, copy.bytes_rate, copy.HasField("left")) == (4_000, 0, False)


def test_a_table_that_waits_for_its_turn_is_not_done_though_its_checkpoint_has_moved() -> None:
    stored = replace(copying({}, dict.fromkeys(TABLES, at(9))), copied=frozenset())
    assert changefeed_messages.changefeed(ChangefeedId("f"), stored, now=NOW).copy.tables_done == 0


def test_what_is_copied_does_not_fall_while_no_node_reports_it() -> None:
    """The node of the table is gone, and its successor has not reported yet."""
    half = CopyRecord(start=at(5), stage=CopyStage.COPYING, chunks=2, size=TableSize(documents=20, bytes=200))
    chunk = CopiedChunk(after=at(6).ts, until=at(6).ts, documents=10, bytes=100)
    part = CopyPart(uppers=(Document.of({"_id": 1}), None), copied=(chunk, None))
    stored = replace(copying({}, {TABLES[0]: at(5)}), copies={TABLES[0]: half}, chunks_of=lambda _: [part])
    copy = changefeed_messages.changefeed(ChangefeedId("f"), stored, now=NOW).copy
    assert (copy.documents, copy.bytes, copy.documents_left, copy.bytes_left) == (10, 100, 10, 100)


def test_a_table_that_is_done_counts_with_what_was_copied() -> None:
    done = CopyRecord(
        start=at(5), stage=CopyStage.DONE, floor=CopyFloor(copied=TableSize(documents=7, bytes=70), share=1.0)
    )
    stored = replace(copying({}, {TABLES[0]: at(5)}), copies={TABLES[1]: done})
    copy = changefeed_messages.changefeed(ChangefeedId("f"), stored, now=NOW).copy
    assert (copy.documents, copy.bytes, copy.tables_done) == (7, 70, 3)


def test_when_all_tables_are_copied_there_is_no_bar() -> None:
    message = changefeed_messages.changefeed(ChangefeedId("f"), copying({}, {}), now=NOW)
    assert not message.HasField("copy")
    assert "copy" not in changed_line(message)


def test_a_copy_that_has_not_begun_is_shown_too() -> None:
    message = changefeed_messages.changefeed(ChangefeedId("f"), copying({}, dict.fromkeys(TABLES, at(5))), now=NOW)
    assert dict(facts(message))["copy"] == "░░░░░░░░░░░░░░░░░░░░ 0%  0 of 4 tables"


def test_a_time_series_is_counted_in_the_buckets_that_are_copied(capsys: pytest.CaptureFixture[str]) -> None:
    progress = pb.CopyProgress(documents=12, bytes=3_000, documents_left=8, bytes_left=2_000, share=0.6)
    assert "  12 of about 20 buckets, 3.0 kB" in cells.copy_bar(progress, cells.rows("timeseries"))
    assert "  12 of about 20 docs, 3.0 kB" in cells.copy_bar(progress, cells.rows("collection"))
    tables = [pb.PlannedTable(name="s.t", kind=kind, documents=20) for kind in ("timeseries", "collection")]
    print_plan(pb.Plan(tables=tables))
    of_series, of_collection = (line for line in capsys.readouterr().out.splitlines() if line.startswith("s.t"))
    assert "20 buckets" in of_series
    assert "buckets" not in of_collection


def test_of_a_changefeed_too_a_copy_of_time_series_is_counted_in_buckets() -> None:
    def copied(*kinds: str) -> list[str]:
        one = pb.CopyProgress(documents=12, bytes=3_000, share=0.6)
        whole = pb.CopyProgress(documents=12, bytes=3_000, share=0.6, tables=2)
        copies = [pb.TableCopy(name=f"s.{kind}", kind=kind, copy=one) for kind in kinds]
        shown = facts(pb.Changefeed(state=pb.CHANGEFEED_STATE_NORMAL, copy=whole, copies=copies))
        return [str(value).rpartition("12 ")[2].partition(",")[0] for _, value in shown if "12 " in str(value)]

    assert copied("timeseries") == ["buckets", "buckets"]
    assert copied("timeseries", "collection") == ["docs", "buckets", "docs"]
