"""What is sent at the same time, and what stops a table."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import bson
import pytest

from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.mongodb.commander import TargetReply
from sink.mongodb.rows.batch_sender import Sent, SideBySide, halves
from sink.mongodb.rows.bulk_plan import Batch
from sink.row import RowChange, TargetTable
from tests.until import PATIENCE_SECONDS

_CLEAN: Mapping[str, Any] = {"n": 1}
_REFUSED: Mapping[str, Any] = {"n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "is there"}]}


def _batch(table: str, kind: RowType = RowType.INSERT, changes: int = 1) -> Batch:
    name = TableName("shop", table)
    target = TargetTable(id=TableId("ab" * 16), source=name, name=name)
    document = bson.encode({"_id": 1})
    update = document if kind is RowType.UPDATE else None
    change = RowChange(target, kind, document, document if update is None else None, update, 1 << 32, b"82")
    return Batch([change] * changes, ordered=False)


def _sent(*batches: Batch, answers: Mapping[int, Sent | None]) -> Mapping[int, Sent]:
    numbers = {id(batch): number for number, batch in enumerate(batches)}

    def attempt(batch: Batch) -> Sent | None:
        number = numbers[id(batch)]
        return answers.get(number, Sent(TargetReply(document=_CLEAN, results=[], again=False), 0.1))

    return SideBySide().sent(batches, attempt)


def test_one_table_is_left_to_the_run() -> None:
    assert _sent(_batch("a"), _batch("a", RowType.UPDATE), answers={}) == {}


@pytest.mark.parametrize(
    "answer",
    [
        Sent(TargetReply(document=_REFUSED, results=[], again=False), 0.1),
        Sent(None, 0.1),
        Sent(TargetReply(document={"n": 0}, results=[], again=False), 0.1),
    ],
    ids=["refused", "lost", "unmatched"],
)
def test_a_table_stops_at_an_answer_that_is_not_clean_and_others_go_on(answer: Sent) -> None:
    a, b = _batch("a", RowType.UPDATE), _batch("b", RowType.UPDATE)
    sent = _sent(a, b, _batch("a", RowType.DELETE), _batch("b", RowType.DELETE), answers={0: answer})
    assert set(sent) == {0, 1, 3}
    assert sent[0] == answer


def test_what_is_not_to_be_sent_whole_stops_its_table() -> None:
    sent = _sent(_batch("a"), _batch("b"), _batch("a", RowType.DELETE), answers={0: None})
    assert set(sent) == {1}


def test_the_parts_are_about_equal_and_no_table_is_in_both() -> None:
    large, small = _batch("large", changes=10), [_batch(name, changes=2) for name in "abcd"]
    here, there = halves([*small, large, _batch("a", RowType.DELETE)])
    assert [at for at, _ in here] == [4]
    assert sorted(at for at, _ in there) == [0, 1, 2, 3, 5]


def test_an_error_of_one_part_waits_for_the_other() -> None:
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    def attempt(batch: Batch) -> Sent:
        if batch.changes[0].table.name.coll == "a":
            begun.wait(PATIENCE_SECONDS)
            goes_on.set()
            raise RuntimeError("a fault of ours")
        begun.set()
        goes_on.wait(PATIENCE_SECONDS)
        ended.set()
        return Sent(TargetReply(document=_CLEAN, results=[], again=False), 0.1)

    with pytest.raises(RuntimeError):
        SideBySide().sent([_batch("a"), _batch("b")], attempt)
    assert ended.is_set()
