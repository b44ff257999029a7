"""Bugs with `_id`s of several kinds in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import bson

from tests.simulation.planted.bug import Bug

_ASKS_FOR_ROW_KEYS = (
    "processor.task.rows.folding",
    "processor.task.rows.shuffle",
    "processor.task.rows.division",
    "sink.mongodb.letters.dead_letter",
    "sink.mongodb.rows.bulk_plan",
    "sink.mongodb.rows.row_look",
    "sink.mongodb.rows.waiting",
    "sink.row",
)


@contextmanager
def _row_key(wrong: Callable[[bytes], bytes]) -> Iterator[None]:
    with ExitStack() as stack:
        for module in _ASKS_FOR_ROW_KEYS:
            stack.enter_context(patch(f"{module}.row_key", wrong))
        yield


def _ids_that_look_alike_are_one_row() -> AbstractContextManager[Any]:
    return _row_key(lambda key: str(bson.decode(key)["_id"]).encode())


def _fields_of_an_id_have_no_order() -> AbstractContextManager[Any]:
    def sorted_key(key: bytes) -> bytes:
        id = bson.decode(key)["_id"]
        return bson.encode({"_id": dict(sorted(id.items())) if isinstance(id, dict) else id})

    return _row_key(sorted_key)


def _changes_find_their_chunk_by_bytes() -> AbstractContextManager[Any]:
    return patch("processor.task.copied_ranges._in_order", lambda key: bson.encode({"_id": key}))


KEY_BUGS: Mapping[str, Bug] = {
    "_ids that look alike are one row": Bug(_ids_that_look_alike_are_one_row, 40, refusing=True),
    "fields of an _id have no order": Bug(_fields_of_an_id_have_no_order, 100, refusing=True),
    "changes find their chunk by bytes": Bug(_changes_find_their_chunk_by_bytes, 250),
}
