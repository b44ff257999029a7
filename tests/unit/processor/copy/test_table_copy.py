from __future__ import annotations

from dataclasses import replace

import pytest
from bson.datetime_ms import DatetimeMS
from bson.objectid import ObjectId

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.documents.key_range import KeyRange
from changefeed.errors import InvariantError
from changefeed.position import Position
from changefeed.records import CopiedChunk, CopyPart, CopyProgress, CopyRecord, CopyStage
from coordination.etcd.protocol import MAX_TXN_BYTES, KeyValue
from coordination.layout import decode, encode
from processor.copy.table_copy import CHUNKS_PER_PART, TableCopy

START = Position(ClusterTime(100, 1))


def bound(value: object) -> Document:
    return Document.of({"_id": value})


def chunk(after: int, until: int | None = None) -> CopiedChunk:
    times = ClusterTime(100, after), ClusterTime(100, until or after)
    return CopiedChunk(after=times[0], until=times[1], documents=7, bytes=70)


def stored(copy: TableCopy) -> TableCopy:
    """The state that a node finds in etcd when it takes over."""
    values = [encode(copy.record), *map(encode, copy.parts())]
    record, *parts = [KeyValue(key="k", value=value, create_rev=1, mod_rev=1) for value in values]
    return TableCopy.from_records(decode(CopyRecord, record), [decode(CopyPart, part) for part in parts])


def test_ten_thousand_chunks_come_back_from_values_that_etcd_takes() -> None:
    copy = TableCopy.planned(START, [bound(ObjectId()) for _ in range(9_999)], whole=False)
    for number in range(0, 10_000, 3):
        copy = replace(copy, copied={**copy.copied, number: chunk(number + 1)}) if number < 30 else copy
    assert stored(copy) == copy
    assert max(len(encode(part)) for part in copy.parts()) < MAX_TXN_BYTES / 10
    assert len(list(copy.parts())) == -(-10_000 // CHUNKS_PER_PART)


def test_bounds_of_every_type_come_back() -> None:
    copy = TableCopy.planned(START, map(bound, [None, 1, 1.5, "x", {"a": [1]}, b"b", True, DatetimeMS(5)]), whole=False)
    assert stored(copy) == copy


def test_chunks_are_contiguous_and_open_at_both_ends() -> None:
    copy = TableCopy.planned(START, [bound(1), bound("a")], whole=False)
    assert copy.chunks == (
        KeyRange(upper=bound(1)),
        KeyRange(lower=bound(1), upper=bound("a")),
        KeyRange(lower=bound("a")),
    )


def test_a_copy_ends_beyond_all_that_its_chunks_may_hold() -> None:
    copy = TableCopy.planned(START, [bound(1)], whole=False).with_chunk(0, chunk(4, 9)).with_chunk(1, chunk(6))
    assert copy.complete
    assert copy.upto == Position(ClusterTime(100, 10))
    assert copy.progress == CopyProgress(documents=14, bytes=140, chunks_done=2, chunks=2)


def test_a_chunk_is_copied_once() -> None:
    copy = TableCopy.planned(START, [bound(1)], whole=False).with_chunk(1, chunk(4))
    assert list(copy.missing()) == [0]
    with pytest.raises(InvariantError):
        copy.with_chunk(1, chunk(5))
    with pytest.raises(InvariantError):
        copy.with_chunk(2, chunk(5))
    with pytest.raises(InvariantError):
        _ = copy.upto


def test_parts_of_an_earlier_and_larger_copy_are_not_taken_for_this_one() -> None:
    old = TableCopy.planned(START, [bound(number) for number in range(200)], whole=False)
    new = TableCopy.planned(START, [bound(5)], whole=False)
    assert TableCopy.from_records(new.record, [*new.parts(), *list(old.parts())[1:]]) == new
    with pytest.raises(InvariantError):
        TableCopy.from_records(old.record, list(old.parts())[:1])


def test_a_copy_that_is_done_or_begins_anew_has_no_chunks() -> None:
    copy = TableCopy.planned(START, [bound(1)], whole=False).with_chunk(0, chunk(4)).with_chunk(1, chunk(6))
    assert stored(copy.done()) == copy.done()
    assert copy.done().stage is CopyStage.DONE
    again = TableCopy.restarting(Position(ClusterTime(200, 1), "82AB"))
    assert stored(again) == again
    assert list(again.missing()) == []
