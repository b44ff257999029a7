"""Bugs with unique indexes. Where nothing else goes wrong, no row may meet another one that has its value (`Judge.taken`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from changefeed.table import TableSchema
from processor.task.shuffle.routing import dependent, unique_indexes
from tests.simulation.planted.bug import Bug


@contextmanager
def _ordered_if(holds: Callable[[TableSchema], bool]) -> Iterator[None]:
    with (
        patch("processor.task.rows.mounter.dependent", holds),
        patch("processor.task.shuffle.routing.dependent", holds),
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
}
