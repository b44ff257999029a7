"""A window of a full capped table is written again, on a target that has all of it, a part, or nothing: both sides have the same rows in the same order.

A user may delete rows in the middle of it since 5.0. What rolls off at the source is in its oplog as a delete.
"""

from __future__ import annotations

import bson
from hypothesis import given
from hypothesis import strategies as st

from changefeed.event import RowType
from changefeed.table import TableId, TableName
from processor.task.rows.folding import fold
from sink.dependence import Dependence
from sink.mongodb.rows.bulk_plan import Limits, plan, upserted
from sink.row import RowChange, TargetTable

_NAME = TableName("shop", "log")
_TABLE = TargetTable(id=TableId("ab" * 16), source=_NAME, name=_NAME, ordered=True, dependence=Dependence(capped=True))
_MOST = 3
_LIMITS = Limits(joined=False)


class Capped:
    def __init__(self, rows: list[int]) -> None:
        self.rows = list(rows)

    def insert(self, row: int) -> list[int]:
        """What rolls off."""
        self.rows.append(row)
        off, self.rows = self.rows[:-_MOST], self.rows[-_MOST:]
        return off

    def delete(self, row: int) -> None:
        if row in self.rows:
            self.rows.remove(row)


def source_of(draws: list[int]) -> tuple[list[list[int]], list[RowChange]]:
    """Its rows before each change and at the end, and the changes: a 0 is an insert, a number deletes the row at that place, if there is one."""
    table, changes = Capped([1, 2, 3]), list[RowChange]()
    states = [list(table.rows)]

    def say(kind: RowType, row: int) -> None:
        document = bson.encode({"_id": row}) if kind is RowType.INSERT else None
        changes.append(RowChange(_TABLE, kind, bson.encode({"_id": row}), document, None, len(changes), b""))

    newest = 3
    for place in draws:
        if place == 0:
            newest += 1
            off = table.insert(newest)
            say(RowType.INSERT, newest)
            for row in off:
                states.append(list(table.rows))
                say(RowType.DELETE, row)
        elif place <= len(table.rows):
            row = table.rows[-place]
            table.delete(row)
            say(RowType.DELETE, row)
        else:
            continue
        states.append(list(table.rows))
    return states, changes


def replay(changes: list[RowChange], rows: list[int]) -> list[int]:
    target = Capped(rows)
    for batch in plan(upserted(fold(changes, replay=True)), _LIMITS, replay=True):
        for change in batch.changes:
            row = bson.decode(change.key)["_id"]
            if change.type is RowType.DELETE:
                target.delete(row)
            elif row not in target.rows:
                target.insert(row)
    return target.rows


@given(st.lists(st.integers(0, _MOST), min_size=1, max_size=12), st.data())
def test_a_window_that_was_written_up_to_any_place_is_written_again(draws: list[int], data: st.DataObject) -> None:
    states, changes = source_of(draws)
    if not changes:
        return
    assert replay(changes, data.draw(st.sampled_from([*states, states[-1]]))) == states[-1]


def test_a_row_that_came_and_went_does_not_roll_another_one_off() -> None:
    """The source has 2, 3, 5: with all of it at the target, 4 would take the place of 2."""
    states, changes = source_of([0, 1, 0])
    assert replay(changes, states[-1]) == states[-1] == [2, 3, 5]
