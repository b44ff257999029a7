"""The times of entries, found at their usual places from the end and anywhere else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.int64 import Int64
from bson.timestamp import Timestamp

from source.oplog.row_entry import made_entry
from source.sharded.row_reader import times_of

_TIME = (100 << 32) + 7
_ROW: dict[str, Any] = {"op": "i", "ns": "shop.orders", "o": {"_id": 1, "ts": Timestamp(1, 1)}, "o2": {"_id": 1}}
_TIMES: dict[str, Any] = {
    "ts": Timestamp(100, 7),
    "t": Int64(3),
    "v": Int64(2),
    "wall": datetime(2026, 1, 1, tzinfo=UTC),
}
_PREVIOUS = {"prevOpTime": {"ts": Timestamp(0, 0), "t": Int64(-1)}}
_UNUSUAL = {"needsRetryImage": "postImage"}


@pytest.mark.parametrize(
    "entry",
    [
        _ROW | _TIMES,
        _ROW | {"stmtId": 0} | _TIMES | _PREVIOUS,
        _ROW | {"fromMigrate": True} | _TIMES,
        _ROW | _TIMES | _PREVIOUS | _UNUSUAL,
        _ROW | {"ts": Timestamp(100, 7)},
        {"ts": Timestamp(100, 7)} | _ROW | {"o": {"_id": bson.encode(_TIMES)}},
    ],
)
def test_the_time_of_an_entry_is_found_whatever_comes_after_it(entry: dict[str, Any]) -> None:
    assert times_of([bson.encode(entry)] * 2) == [_TIME] * 2


def test_the_time_of_an_operation_that_was_made_an_entry_is_that_of_its_transaction() -> None:
    operation = bson.encode({**_ROW, "ts": Timestamp(1, 1), "wall": datetime(2026, 1, 1, tzinfo=UTC)})
    assert times_of([made_entry(operation, _TIME.to_bytes(8, "little"), 3, upserts=False)]) == [_TIME]
