"""The documents of a chunk are of the times that the reader says, and each comes once, also after a broken connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from datetime import timedelta
from types import TracebackType
from typing import Any

import bson
import pytest
from bson.max_key import MaxKey
from pymongo.errors import AutoReconnect, OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.documents.row_key import LAST_KEY, KeyRange
from changefeed.errors import SourceUnavailable
from changefeed.position import Position
from changefeed.table import TableName
from source.raw_find import Found
from source.tables import chunk_reader
from source.tables.chunk_reader import Chunk, ChunkReader, MemberBehind, ReadWay, SnapshotLost

MAJORITY, NEWEST = ClusterTime(100, 5), ClusterTime(100, 9)


class Source:
    """Seven documents, of which a reply has two. `breaks`: after how many replies each read breaks off. Its time goes on with each read."""

    def __init__(self) -> None:
        self.keys = list(range(1, 8))
        self.breaks: list[int] = []
        self.asked: list[Mapping[str, Any]] = []
        self.error: Exception = AutoReconnect("the connection broke")
        self.time = 4
        self.last = False
        """Whether it has `LAST_KEY`, which a scan from a key on does not show."""

    def replies(self, arguments: Mapping[str, Any]) -> Iterator[Found]:
        self.asked.append(arguments)
        self.time += 1
        concern = arguments["readConcern"]
        if "filter" in arguments:
            yield Found([LAST_KEY.raw] if self.last else [], 0, ClusterTime.from_bson(concern["atClusterTime"]))
            return
        at_ts = ClusterTime.from_bson(concern["atClusterTime"]) if "atClusterTime" in concern else None
        at_ts = at_ts or ClusterTime(100, self.time)
        least = arguments["min"]["_id"] if "min" in arguments else 0
        below = arguments["max"]["_id"] if "max" in arguments else 99
        keys = [key for key in self.keys if least <= key < below]
        left = self.breaks.pop(0) if self.breaks else None
        for number, begin in enumerate(range(0, max(len(keys), 1), 2)):
            if number == left:
                raise self.error
            found = [bson.encode({"_id": key}) for key in keys[begin : begin + 2]]
            found += (
                [LAST_KEY.raw] if self.last and begin + 2 >= len(keys) and not arguments.keys() & {"min", "max"} else []
            )
            yield Found(found, 0, at_ts if concern["level"] == "snapshot" else None)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    """The module asks a driver's client, whose replies are raw: they are replaced where it asks."""
    source = Source()

    class Replies:
        def __init__(self, _: object, table: TableName, arguments: Mapping[str, Any], **limits: int) -> None:
            self._arguments = arguments

        def __enter__(self) -> Iterator[Found]:
            return source.replies(self._arguments)

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...

    monkeypatch.setattr(chunk_reader, "RawFind", Replies)
    monkeypatch.setattr(chunk_reader, "majority_time", lambda _: MAJORITY)
    monkeypatch.setattr(chunk_reader, "newest_time", lambda _: NEWEST)
    monkeypatch.setattr(chunk_reader, "one_term", lambda *_: nullcontext())
    return source


def reader(way: ReadWay, *, not_before: int = 1, patience: float = 60, lower: int | None = None) -> ChunkReader:
    bounds = KeyRange(lower=Document.of({"_id": lower}), upper=Document.of({"_id": 6})) if lower else KeyRange()
    chunk = Chunk(table=TableName("shop", "a"), range=bounds, not_before=Position(ClusterTime(100, not_before)))
    return ChunkReader(None, chunk, way, patience=timedelta(seconds=patience))  # type: ignore[arg-type]  # see `source`


def keys(reader: ChunkReader) -> list[int]:
    return [bson.decode(document)["_id"] for batch in reader.batches() for document in batch]


@pytest.mark.parametrize("way", list(ReadWay))
def test_a_chunk_has_the_documents_of_its_range(way: ReadWay, source: Source) -> None:
    assert keys(reader(way)) == [1, 2, 3, 4, 5, 6, 7]
    assert keys(reader(way, lower=3)) == [3, 4, 5]


def test_a_snapshot_is_of_one_time(source: Source) -> None:
    read = reader(ReadWay.SNAPSHOT)
    keys(read)
    assert read.after == read.until == ClusterTime(100, 5)


def test_without_a_snapshot_the_documents_are_of_the_times_between_which_they_were_read(source: Source) -> None:
    """They have everything that the majority had before, and nothing of after."""
    read = reader(ReadWay.WATERMARK)
    keys(read)
    assert (read.after, read.until) == (MAJORITY, NEWEST)
    assert source.asked[0]["readConcern"] == {"level": "majority", "afterClusterTime": MAJORITY.to_bson()}


@pytest.mark.parametrize("breaks", [[1], [2], [1, 1, 1], [0]])
def test_a_snapshot_that_breaks_off_is_read_on_at_its_time(breaks: list[int], source: Source) -> None:
    source.breaks = list(breaks)
    read = reader(ReadWay.SNAPSHOT)
    read._resumable = lambda *_: timedelta()  # type: ignore[method-assign]  # it says a second, which nobody needs
    assert keys(read) == [1, 2, 3, 4, 5, 6, 7]
    assert read.after == read.until
    assert len([asked for asked in source.asked if "hint" in asked]) == len(breaks) + 1
    first = ClusterTime(100, 6 if breaks == [0] else 5)
    assert read.after == first, "that of the first reply"


def test_a_snapshot_that_the_source_no_longer_has_is_given_up(source: Source) -> None:
    source.breaks, source.error = [1], OperationFailure("the snapshot is too old", 239)
    with pytest.raises(SnapshotLost):
        keys(reader(ReadWay.SNAPSHOT))


@pytest.mark.parametrize("way", list(ReadWay))
def test_a_member_that_is_behind_the_start_of_the_copy_is_not_read(way: ReadWay, source: Source) -> None:
    """After an election: changes before the start, which it does not have, are never replayed."""
    with pytest.raises(MemberBehind, match=r"expected the source to be at 100\.7"):
        keys(reader(way, not_before=7, patience=-1))
    assert keys(reader(way, not_before=6, patience=-1)) == [1, 2, 3, 4, 5, 6, 7]


def test_a_capped_table_that_rolls_under_its_read_is_read_again(source: Source) -> None:
    source.breaks, source.error = (
        [1],
        OperationFailure("CollectionScan died due to position in capped being deleted", 136),
    )
    with pytest.raises(SourceUnavailable, match=r"shop\.a: this capped table removed documents .*filter\.tables"):
        keys(reader(ReadWay.WATERMARK))
    assert keys(reader(ReadWay.WATERMARK)) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("breaks", [[], [1], [3], [1, 1]])
def test_the_last_key_is_read_once_wherever_the_read_breaks_off(breaks: list[int], source: Source) -> None:
    source.breaks, source.last = list(breaks), True
    read = reader(ReadWay.SNAPSHOT)
    read._resumable = lambda *_: timedelta()  # type: ignore[method-assign]  # it says a second, which nobody needs
    assert keys(read) == [1, 2, 3, 4, 5, 6, 7, MaxKey()]


def test_nothing_is_read_behind_the_last_key(source: Source) -> None:
    """A server refuses a scan from there."""
    source.last = True
    read = reader(ReadWay.SNAPSHOT)
    read._resumable = lambda *_: timedelta()  # type: ignore[method-assign]  # it says a second, which nobody needs
    shown: Any = read.batches()
    while bson.decode(next(shown)[-1])["_id"] != MaxKey():
        pass
    with pytest.raises(StopIteration):
        shown.throw(AutoReconnect("the connection broke"))
    assert len(source.asked) == 1
