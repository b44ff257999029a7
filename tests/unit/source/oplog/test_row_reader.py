"""Each row of a window is read once, wherever the window is cut and wherever a read breaks off."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import bson
import pytest
from bson.binary import Binary

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SourceUnavailable
from changefeed.position import Position, Window
from source.oplog import row_reader
from source.oplog.find import operations
from source.oplog.row_entry import position, scan
from source.oplog.row_reader import OplogReader

UUID = Binary(b"a" * 16, 4)


def at(seconds: int, increment: int = 1, index: int | None = None) -> Position:
    ts = ClusterTime(seconds, increment)
    return Position(ts) if index is None else position(ts, index)


def entry(seconds: int, op: str, ns: str, o: Mapping[str, Any]) -> bytes:
    ts = ClusterTime(seconds, 1).to_bson()
    return bson.encode(
        {"op": op, "ns": ns, "ui": UUID, "o": o, "ts": ts, "t": 1, "v": 2, "wall": datetime(2026, 11, 21, tzinfo=UTC)}
    )


def insert(seconds: int, ns: str = "shop.a") -> bytes:
    return entry(seconds, "i", ns, {"_id": seconds})


def transaction(seconds: int, count: int) -> bytes:
    operations = [{"op": "i", "ns": "shop.a", "ui": UUID, "o": {"_id": number}} for number in range(count)]
    return entry(seconds, "c", "admin.$cmd", {"applyOps": operations})


HISTORY = [insert(100), insert(101, "shop.b"), transaction(102, 4), insert(103), insert(118, "shop.b"), insert(125)]
PLACES = [at(100, index=0), at(101, index=0), *(at(102, index=n) for n in range(4)), at(103, index=0)]
PLACES += [at(118, index=0), at(125, index=0)]


class Oplog:
    """What `entries` reads, two entries in a reply. `breaks`: how many replies of which reads arrive before the connection breaks."""

    def __init__(self, *breaks: int) -> None:
        self.reads: list[tuple[int, int]] = []
        self._breaks = iter(breaks)

    def entries(
        self, _: object, start_ts: ClusterTime, end_ts: ClusterTime, wanted: Mapping[str, Any]
    ) -> Generator[list[bytes], None, None]:
        self.reads.append((start_ts.seconds, end_ts.seconds))
        names = wanted["$or"][1]["ns"]["$in"] if wanted else None
        found = [each for each in HISTORY if start_ts <= scan(each).position.ts < end_ts]
        found = [each for each in found if names is None or bson.decode(each)["ns"] in (*names, "admin.$cmd")]
        left = next(self._breaks, None)
        for number, begin in enumerate(range(0, len(found), 2)):
            if number == left:
                raise SourceUnavailable("the connection broke", retry_after=timedelta())
            yield found[begin : begin + 2]
        if left is not None:
            raise SourceUnavailable("the connection broke", retry_after=timedelta())


@pytest.fixture
def oplog(monkeypatch: pytest.MonkeyPatch) -> Oplog:
    """In place of a server's: `entries` has tests of its own."""
    return _installed(Oplog(), monkeypatch)


def _installed(oplog: Oplog, monkeypatch: pytest.MonkeyPatch) -> Oplog:
    monkeypatch.setattr(row_reader, "entries", oplog.entries)
    return oplog


def reader(names: Sequence[str] | None = None, patience: timedelta = timedelta(seconds=60)) -> OplogReader:
    return OplogReader(None, names, patience=patience)  # type: ignore[arg-type]  # `entries` is replaced


def read(window: Window, reader: OplogReader) -> list[Position]:
    """Also checks that each batch says no more than was read before it."""
    found: list[Position] = []
    reached = window.start
    for batch in reader.read(window):
        found += [scan(event).position for event in batch.events]
        assert window.start <= batch.reached <= window.end
        assert batch.reached >= reached
        assert all(place < batch.reached for place in found)
        reached = batch.reached
    assert reached == window.end
    return found


CUTS = [at(99), at(100), at(101, index=0), at(102), *(at(102, index=n) for n in range(1, 5)), at(103), at(104), at(126)]


def test_windows_side_by_side_have_each_row_once(oplog: Oplog) -> None:
    found = [read(Window(start, end), reader()) for start, end in pairwise(CUTS)]
    assert [place for part in found for place in part] == PLACES


@pytest.mark.parametrize("start", CUTS, ids=str)
@pytest.mark.parametrize("end", CUTS, ids=str)
def test_a_window_has_the_rows_from_its_start_to_before_its_end(start: Position, end: Position, oplog: Oplog) -> None:
    if start <= end:
        assert read(Window(start, end), reader()) == [place for place in PLACES if start <= place < end]


@pytest.mark.parametrize("breaks", [(0,), (1,), (2,), (1, 1, 1), (3, 0, 0, 1)])
def test_a_read_that_breaks_off_goes_on_with_the_next_row(
    breaks: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also within a transaction, whose operations come in several batches if they are large."""
    monkeypatch.setattr(row_reader, "_BATCH_BYTES", 1)
    oplog = _installed(Oplog(*breaks), monkeypatch)
    assert read(Window(CUTS[0], CUTS[-1]), reader()) == PLACES
    assert len(oplog.reads) == len(breaks) + 1


def test_a_read_that_breaks_off_within_a_transaction_goes_on_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_reader, "_BATCH_BYTES", 1)
    oplog = _installed(Oplog(), monkeypatch)
    broken: list[int] = []

    def breaking(*of: Any) -> Generator[tuple[bytes, bool], None, None]:
        for number, operation in enumerate(operations(*of)):
            if number == 2 and not broken:
                broken.append(number)
                raise SourceUnavailable("a part of it cannot be read", retry_after=timedelta())
            yield operation

    monkeypatch.setattr(row_reader, "operations", breaking)
    assert read(Window(CUTS[0], CUTS[-1]), reader()) == PLACES
    assert [start for start, _ in oplog.reads] == [99, 102]


def test_by_name_a_window_is_read_stride_by_stride_to_its_end(oplog: Oplog) -> None:
    """Few of the entries that were read are of wanted tables. Those of transactions are sent all the same."""
    by_name = reader(["shop.b"])
    by_name.took(0, 5_000)
    found = read(Window(CUTS[0], CUTS[-1]), by_name)
    assert [place for place in found if place.ts.seconds in (101, 118)] == [at(101, index=0), at(118, index=0)]
    assert not [place for place in found if place.ts.seconds in (100, 103, 125)]
    assert len(oplog.reads) > 1
    assert [end for _, end in oplog.reads[:-1]] == [start for start, _ in oplog.reads[1:]]
    assert oplog.reads[-1][1] == 126


def test_a_source_that_stays_away_is_an_error_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(Oplog(*[1] * 1_000), monkeypatch)
    with pytest.raises(SourceUnavailable, match="the connection broke"):
        read(Window(at(125), at(126)), reader(patience=timedelta()))


def test_history_that_is_gone_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> Generator[list[bytes], None, None]:
        raise HistoryLost("the oplog begins later")

    monkeypatch.setattr(row_reader, "entries", gone)
    with pytest.raises(HistoryLost, match="create it again with --start initial"):
        read(Window(CUTS[0], CUTS[-1]), reader())
