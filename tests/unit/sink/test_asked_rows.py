"""Rows that a verification found different, as the source has them at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence

import bson

from changefeed.cluster_time import ClusterTime
from changefeed.event import RowType
from changefeed.position import Position
from changefeed.table import TableId, TableName
from sink.asked_rows import RowRepairs
from sink.row import AskedRows, RowChange, SoleTable, SourceRow, TargetTable

TABLE = TargetTable(id=TableId("ab" * 16), source=TableName("s", "a"), name=TableName("t", "a"))
OTHER = TargetTable(id=TableId("cd" * 16), source=TableName("s", "b"), name=TableName("t", "b"))
READ = ClusterTime(9, 1)


def key(id: object) -> bytes:
    return bson.encode({"_id": id})


def change(id: object, seconds: int, table: TargetTable = TABLE) -> RowChange:
    return RowChange(table, RowType.UPDATE, key(id), None, b"{}", seconds << 32, b"")


class Source:
    def __init__(self, *ids: object, dropped: bool = False, ignored: Sequence[object] = ()) -> None:
        self.ids = ids
        self.ignored = ignored
        self.dropped = dropped
        self.asked: list[tuple[object, int]] = []

    def fetch(self, change: RowChange) -> SourceRow | None:
        id = bson.decode(change.key)["_id"]
        self.asked.append((id, change.position.ts.seconds))
        if self.dropped:
            return None
        return SourceRow(key(id) if id in self.ids else None, READ, ignored=id in self.ignored)


def asked(*ids: object, removes: bool = True) -> AskedRows:
    return AskedRows(
        place=SoleTable(TABLE, Position(ClusterTime(5, 0))),
        keys=[key(id) for id in ids],
        removes=removes,
    )


def written(repairs: RowRepairs) -> list[tuple[str, object]]:
    return [(whole.type.value, bson.decode(whole.key)["_id"]) for whole, _ in repairs.rows_of_now()]


def test_rows_that_the_source_does_not_have_are_removed_first() -> None:
    repairs = RowRepairs([asked(1, 2, 3, 4)], Source(1, 3).fetch)
    assert written(repairs) == [("delete", 2), ("delete", 4), ("replace", 1), ("replace", 3)]


def test_rows_stay_where_nothing_may_be_removed_and_where_the_filter_leaves_them_out() -> None:
    repairs = RowRepairs([asked(1, 2, 3, removes=False)], Source(1, 3, ignored=[3]).fetch)
    assert written(repairs) == [("replace", 1)]


def test_a_table_that_the_source_has_dropped_is_left_as_it_is() -> None:
    source = Source(dropped=True)
    assert written(RowRepairs([asked(1, 2)], source.fetch)) == []
    assert len(source.asked) == 1


def test_no_row_is_read_in_a_state_before_the_last_change_of_its_table() -> None:
    """The source may be read at a member that is behind; an older row would undo a change that the run has written."""
    source = Source(1)
    repairs = RowRepairs([asked(1)], source.fetch)
    repairs.meet([change(7, 6), change(8, 8), change(1, 12, OTHER)])
    written(repairs)
    assert source.asked == [(1, 8)]
    untouched = Source(1)
    written(RowRepairs([asked(1)], untouched.fetch))
    assert untouched.asked == [(1, 5)]


def test_a_row_that_the_run_has_changed_too_is_not_only_asked_for() -> None:
    repairs = RowRepairs([asked(1, 2)], Source().fetch)
    repairs.meet([change(2.0, 6)])
    assert [repairs.only_asked(change(id, 7)) for id in (1, 2, 3)] == [True, False, False]
