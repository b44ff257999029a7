"""The times and kinds of entries, found at their usual places and anywhere else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.int64 import Int64
from bson.timestamp import Timestamp

from source.oplog.row_entry import made_entry
from source.sharded.row_reader import kinds_of, times_of

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


_RETRIED: dict[str, Any] = {
    "lsid": {"id": Binary(bytes(16), 4), "uid": Binary(b"\x02op\x00\x02\x00\x00\x00c\x00" + bytes(22), 0)},
    "txnNumber": Int64(1),
}


@pytest.mark.parametrize("before", [{}, _RETRIED, {"lsid": {"id": 1}, "txnNumber": Int64(1)}, {"ts": Timestamp(1, 1)}])
@pytest.mark.parametrize(
    ("op", "kind"), [("i", ord("i")), ("d", ord("d")), ("c", ord("c")), ("n", ord("n")), ("ci", 0), ("xd", 0)]
)
def test_the_kind_of_an_entry_is_found_whatever_comes_before_it(before: dict[str, Any], op: str, kind: int) -> None:
    assert kinds_of([bson.encode(before | _ROW | {"op": op} | _TIMES)]) == [kind]
