"""Bugs with unique indexes and capped tables. Where nothing else goes wrong, no row may meet another one that has its value (`Judge.taken`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from changefeed.documents.row_key import row_key
from changefeed.table import TableSchema
from processor.task.rows.shuffle import dependent, unique_indexes
from sink.dependence import Dependence
from sink.mongodb.rows import bulk_plan
from sink.mongodb.rows.bulk_plan import Batch, phase
from sink.row import RowChange
from tests.simulation.planted.bug import Bug


@contextmanager
def _ordered_if(holds: Callable[[TableSchema], bool]) -> Iterator[None]:
    with (
        patch("processor.task.rows.mounter.dependent", holds),
        patch("processor.task.rows.shuffle.dependent", holds),
    ):
        yield


def _rows_of_unique_indexes_do_not_depend_on_each_other() -> AbstractContextManager[Any]:
    return _ordered_if(lambda schema: False)


def _partial_indexes_do_not_count_as_unique() -> AbstractContextManager[Any]:
    def whole_ones(schema: TableSchema) -> bool:
        return any("partialFilterExpression" not in index for index in unique_indexes(schema))

    return _ordered_if(whole_ones)


def _only_indexes_of_one_field_count_as_unique() -> AbstractContextManager[Any]:
    def of_one_field(schema: TableSchema) -> bool:
        compound = [index for index in unique_indexes(schema) if len(index["key"]) > 1]
        return dependent(schema) and len(compound) < len(unique_indexes(schema))

    return _ordered_if(of_one_field)


def _an_update_of_a_unique_value_counts_as_any_other() -> AbstractContextManager[Any]:
    return patch.object(Dependence, "touched_by", lambda self, update: False)


def _a_value_is_taken_before_an_earlier_change_frees_it() -> AbstractContextManager[Any]:
    """Levels say no more than what each row needs."""

    def levels_of_each_row(rows: list[RowChange], _dependences: Any, levels: list[list[Batch]]) -> None:
        groups: dict[tuple[int, int], list[RowChange]] = {}
        last: dict[bytes, tuple[int, int]] = {}
        for row in rows:
            key, now = row_key(row.key), 2 - phase(row)
            level, before = last.get(key, (0, -1))
            last[key] = level if now >= before else level + 1, now
            groups.setdefault(last[key], []).append(row)
        for place in sorted(groups):
            while len(levels) <= place[0]:
                levels.append([])
            levels[place[0]].append(Batch(groups[place], ordered=True, dependent=True))

    return patch("sink.mongodb.rows.bulk_plan._dependent_levels", levels_of_each_row)


def _inserts_come_before_deletes() -> AbstractContextManager[Any]:
    return patch("sink.mongodb.rows.bulk_plan._DELETES_FIRST", (0, 1, 2))


def _an_insert_comes_before_the_delete_of_a_capped_table() -> AbstractContextManager[Any]:
    levels_of = bulk_plan._dependent_levels

    def inserts_first(rows: list[RowChange], dependences: list[Dependence], levels: list[list[Batch]]) -> None:
        capped = any(each.capped for each in dependences)
        with patch.object(bulk_plan, "_DELETES_FIRST", (0, 1, 2)) if capped else nullcontext():
            levels_of(rows, dependences, levels)

    return patch.object(bulk_plan, "_dependent_levels", inserts_first)


UNIQUE_BUGS: Mapping[str, Bug] = {
    "rows of unique indexes do not depend on each other": Bug(
        _rows_of_unique_indexes_do_not_depend_on_each_other, 10, unique=True, faults=False
    ),
    "partial indexes do not count as unique": Bug(
        _partial_indexes_do_not_count_as_unique, 20, unique=True, faults=False
    ),
    "only indexes of one field count as unique": Bug(
        _only_indexes_of_one_field_count_as_unique, 60, unique=True, faults=False
    ),
    "an update of a unique value counts as any other": Bug(
        _an_update_of_a_unique_value_counts_as_any_other, 10, unique=True, faults=False
    ),
    "a value is taken before an earlier change frees it": Bug(
        _a_value_is_taken_before_an_earlier_change_frees_it, 10, unique=True, faults=False
    ),
    "inserts come before deletes": Bug(_inserts_come_before_deletes, 10, unique=True, faults=False),
}
FULL_BUGS: Mapping[str, Bug] = {
    "an insert comes before the delete of a capped table": Bug(
        _an_insert_comes_before_the_delete_of_a_capped_table, 6, full=True, faults=False
    ),
}
