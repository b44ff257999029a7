from __future__ import annotations

from dataclasses import replace

import pytest
from bson.datetime_ms import DatetimeMS
from bson.objectid import ObjectId

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.documents.row_key import KeyRange
from changefeed.errors import InvariantError
from changefeed.position import Position
from changefeed.records.copy import CopiedChunk, CopyFloor, CopyPart, CopyProgress, CopyRate, CopyRecord, CopyStage
from changefeed.table import TableSize
from coordination.etcd.protocol import MAX_TXN_BYTES, KeyValue
from coordination.layout import decode, encode
from processor.copy.table_copy import CHUNKS_PER_PART, CopyPace, TableCopy

START = Position(ClusterTime(100, 1))


def bound(value: object) -> Document:
    return Document.of({"_id": value})


def chunk(after: int, until: int | None = None) -> CopiedChunk:
    times = ClusterTime(100, after), ClusterTime(100, until or after)
    return CopiedChunk(after=times[0], until=times[1], documents=7, bytes=70)


FIRST, SECOND = KeyRange(upper=bound(1)), KeyRange(lower=bound(1))


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
    copy = TableCopy.planned(START, [bound(1)], whole=False).with_chunk(FIRST, chunk(4, 9)).with_chunk(SECOND, chunk(6))
    assert copy.complete
    assert copy.upto == Position(ClusterTime(100, 10))
    assert copy.progress == CopyProgress(documents=14, bytes=140, chunks_done=2, chunks=2, left=TableSize(), share=1.0)


def with_chunks(copy: TableCopy, *chunks: CopiedChunk, first: int = 0) -> TableCopy:
    """The chunks from `first` on are copied."""
    for number, copied in enumerate(chunks, first):
        copy = copy.with_chunk(copy.chunks[number], copied)
    return copy


def shown(copy: TableCopy) -> tuple[int, int, float | None]:
    progress = copy.progress
    return progress.documents, progress.bytes, progress.share


def test_what_is_left_follows_from_the_chunks_and_the_size_at_the_start() -> None:
    size = TableSize(documents=40, bytes=400)
    copy = with_chunks(TableCopy.planned(START, map(bound, [1, 2, 3]), whole=False, size=size), chunk(4))
    assert copy.progress.left == TableSize(documents=30, bytes=300)


def test_the_share_of_a_table_that_has_grown_is_that_of_its_chunks() -> None:
    """Twice as much as the source's counters said at the start."""
    copy = TableCopy.planned(START, map(bound, [1, 2, 3]), whole=False, size=TableSize(documents=14, bytes=140))
    for number in range(4):
        before, copy = copy, with_chunks(copy, chunk(number + 1), first=number)
        assert shown(copy) > shown(before)
    assert shown(copy) == (28, 280, 1.0)
    assert copy.progress.left == TableSize()


def test_a_divided_chunk_counts_by_the_size_of_its_pieces() -> None:
    """Two planned chunks of 140 bytes each, the second one in pieces of 70."""
    copy = TableCopy.planned(START, [bound(1)], whole=False, size=TableSize(documents=28, bytes=280))
    shares = []
    for piece in (
        KeyRange(lower=bound(1), upper=bound(5)),
        KeyRange(lower=bound(5), upper=bound(7)),
        KeyRange(lower=bound(7)),
    ):
        copy = copy.with_chunk(piece, chunk(4))
        shares.append(copy.progress.share)
    assert shares == [0.25, 0.495, 0.5]
    assert stored(copy).progress == copy.progress
    assert copy.progress.left == TableSize(documents=14, bytes=140)


def test_what_is_shown_as_copied_does_not_fall_when_chunks_are_read_again() -> None:
    copy = TableCopy.planned(START, map(bound, [1, 2]), whole=False, size=TableSize(documents=21, bytes=210))
    copy = with_chunks(copy, chunk(4), chunk(5, 9))
    again = copy.without([1])
    assert shown(stored(again)) == shown(again) == shown(copy)
    assert again.progress.left == TableSize(documents=14, bytes=140)
    smaller = with_chunks(again, replace(chunk(12), documents=1, bytes=10), first=1)
    assert shown(stored(smaller)) == shown(copy)
    assert shown(with_chunks(smaller, chunk(13), first=2).done()) == (15, 150, 1.0)


def test_what_is_shown_as_copied_does_not_fall_when_the_copy_starts_again() -> None:
    copy = with_chunks(TableCopy.planned(START, map(bound, [1, 2]), whole=False), chunk(4), chunk(5))
    later = Position(ClusterTime(200, 1))
    restarting = TableCopy.restarting(later, copy)
    again = TableCopy.planned(later, map(bound, range(9)), whole=False, before=stored(restarting))
    assert shown(stored(restarting)) == shown(stored(again)) == shown(copy)
    assert shown(with_chunks(again, chunk(8))) == shown(copy)


def test_a_copy_that_is_done_keeps_how_much_it_was() -> None:
    copy = with_chunks(TableCopy.planned(START, [], whole=False), chunk(4)).done()
    assert stored(copy).record.floor == CopyFloor(copied=TableSize(documents=7, bytes=70), share=1.0)


def test_a_chunk_is_copied_once() -> None:
    copy = TableCopy.planned(START, [bound(1)], whole=False).with_chunk(SECOND, chunk(4))
    assert list(copy.missing()) == [0]
    with pytest.raises(InvariantError):
        copy.with_chunk(SECOND, chunk(5))
    with pytest.raises(InvariantError):
        copy.with_chunk(KeyRange(lower=bound(2)), chunk(5))
    with pytest.raises(InvariantError):
        _ = copy.upto


def test_parts_of_an_earlier_and_larger_copy_are_not_taken_for_this_one() -> None:
    old = TableCopy.planned(START, [bound(number) for number in range(200)], whole=False)
    new = TableCopy.planned(START, [bound(5)], whole=False)
    assert TableCopy.from_records(new.record, [*new.parts(), *list(old.parts())[1:]]) == new
    with pytest.raises(InvariantError):
        TableCopy.from_records(old.record, list(old.parts())[:1])


def test_a_copy_that_is_done_or_begins_anew_has_no_chunks() -> None:
    copy = TableCopy.planned(START, [bound(1)], whole=False).with_chunk(FIRST, chunk(4)).with_chunk(SECOND, chunk(6))
    assert stored(copy.done()) == copy.done()
    assert copy.done().stage is CopyStage.DONE
    again = TableCopy.restarting(Position(ClusterTime(200, 1), "82AB"))
    assert stored(again) == again
    assert list(again.missing()) == []


def test_a_chunk_that_takes_long_is_divided_where_it_is() -> None:
    copy = TableCopy.planned(START, [bound(1)], whole=False).with_chunk(SECOND, chunk(4))
    copy = copy.with_chunk(KeyRange(upper=bound(-5)), chunk(6))
    assert copy.chunks == (KeyRange(upper=bound(-5)), KeyRange(lower=bound(-5), upper=bound(1)), SECOND)
    assert (list(copy.missing()), copy.number_from(bound(1))) == ([1], 2)
    copy = copy.with_chunk(KeyRange(lower=bound(-5), upper=bound(0)), chunk(7, 8))
    assert not copy.complete
    assert stored(copy) == copy
    assert stored(copy.without([0])) == copy.without([0])
    copy = copy.with_chunk(KeyRange(lower=bound(0), upper=bound(1)), chunk(9))
    assert copy.complete
    assert [(one.after.increment, one.until.increment) for _, one in sorted(copy.copied.items())] == [
        (6, 6),
        (7, 8),
        (9, 9),
        (4, 4),
    ]
    assert copy.ranges.bounds == (bound(-5).raw, bound(0).raw, bound(1).raw)
    with pytest.raises(InvariantError):
        copy.with_chunk(KeyRange(lower=bound(0), upper=bound(0.5)), chunk(9))


def test_an_earlier_release_copies_a_divided_chunk_again() -> None:
    """It sees the planned chunks only, and one of them is missing."""
    copy = TableCopy.planned(START, [bound(1)], whole=False).with_chunk(SECOND, chunk(4))
    for piece in (KeyRange(upper=bound(0)), KeyRange(lower=bound(0), upper=bound(1))):
        copy = copy.with_chunk(piece, chunk(6))
    part = replace(copy.part(0), divided={})
    assert part == CopyPart(uppers=(bound(1), None), copied=(None, chunk(4)))
    assert list(TableCopy.from_records(copy.record, [part]).missing()) == [0]


def test_a_part_with_very_many_pieces_is_divided_no_more() -> None:
    copy = TableCopy.planned(START, [bound(10_000 + number) for number in range(100)], whole=False)
    lower = None
    while copy.may_divide(0) and copy.may_divide(number := copy.number_from(lower)):
        copy = copy.with_chunk(KeyRange(lower=lower, upper=bound(number)), chunk(6))
        lower = bound(number)
    assert 900 < len(copy.bounds) < 1200
    assert copy.may_divide(len(copy.bounds))
    assert stored(copy) == copy
    assert len(encode(copy.part(0))) < MAX_TXN_BYTES / 4
    assert not TableCopy.planned(START, (), whole=True).may_divide(0)


CHUNK = TableSize(documents=1_000, bytes=64_000_000)


def after(pace: CopyPace, *ends: float) -> CopyPace:
    for at in ends:
        pace = pace.after(CHUNK, at)
    return pace


def test_there_is_no_rate_before_a_chunk_has_ended() -> None:
    assert CopyPace.begun(5.0).rate is None


def test_the_rate_is_that_of_the_chunks_until_now() -> None:
    assert after(CopyPace.begun(0), 10, 20, 30).rate == CopyRate(documents=100, bytes=6_400_000)


def test_a_gap_counts_and_is_forgotten() -> None:
    slow = after(CopyPace.begun(0), 10, 20, 30, 200)
    assert slow.rate == CopyRate(documents=5.9, bytes=376_470.6)
    assert after(slow, 210, 220, 230, 240, 250, 260, 270).rate == CopyRate(documents=100, bytes=6_400_000)


def test_chunks_that_end_at_once_count_together() -> None:
    assert after(CopyPace.begun(0), 2, 2, 2, 2).rate == CopyRate(documents=2_000, bytes=128_000_000)


def test_many_small_tables_need_little_memory() -> None:
    pace = after(CopyPace.begun(0), *(number / 100 for number in range(1, 100_001)))
    assert len(pace.ends) < 150
    assert pace.rate is not None
    assert abs(pace.rate.documents - 100_000) < 1_000
