"""The DDL watch resolves what it has read, and no more, and shows each DDL once."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.binary import Binary
from pymongo.errors import ExecutionTimeout

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SluiceError
from changefeed.position import Position
from source.connection import HELLO
from source.oplog import oplog_ddl_watch
from source.oplog.oplog_ddl_watch import OplogDdlWatch
from source.oplog.row_entry import position

UUID = Binary(b"a" * 16, 4)


def at(seconds: int, increment: int) -> ClusterTime:
    return ClusterTime(seconds, increment)


def drops(ts: ClusterTime, *tables: str) -> bytes:
    """One entry, with the operations of a transaction if it drops several."""
    operations = [{"op": "c", "ns": "shop.$cmd", "ui": UUID, "o": {"drop": table}} for table in tables]
    fields: dict[str, Any] = {"ts": ts.to_bson(), "t": 1, "v": 2, "wall": datetime(2026, 11, 21, tzinfo=UTC)}
    if len(operations) > 1:
        return bson.encode({"op": "c", "ns": "admin.$cmd", "o": {"applyOps": operations}, **fields})
    return bson.encode({**operations[0], **fields})


class Source:
    """Its commands, and how far its majority is. `slow`: how many of the next reads take the server too long."""

    def __init__(self) -> None:
        self.history: dict[ClusterTime, bytes] = {}
        self.majority_ts = at(100, 1)
        self.slow = 0
        self.reads: list[tuple[ClusterTime, ClusterTime]] = []

    def entries(
        self, _: object, start_ts: ClusterTime, end_ts: ClusterTime, wanted: object
    ) -> Generator[list[bytes], None, None]:
        self.reads.append((start_ts, end_ts))
        if self.slow:
            self.slow -= 1
            raise ExecutionTimeout("operation exceeded time limit", 50)
        yield [entry for ts, entry in sorted(self.history.items()) if start_ts <= ts < end_ts]

    def answer(self, _: object, db: str, command: dict[str, Any]) -> dict[str, Any]:
        assert list(command) == [HELLO]
        return {"lastWrite": {"majorityOpTime": {"ts": self.majority_ts.to_bson(), "t": 1}}}

    def watch(self, start: Position) -> OplogDdlWatch:
        return OplogDdlWatch(None, start)  # type: ignore[arg-type]  # what it asks of a client is replaced


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    """In place of a server's: `entries` has tests of its own. Nothing waits between two polls."""
    source = Source()
    monkeypatch.setattr(oplog_ddl_watch, "entries", source.entries)
    monkeypatch.setattr(oplog_ddl_watch, "read_command", source.answer)
    monkeypatch.setattr(oplog_ddl_watch, "_SHORTEST_WAIT", 0.0)
    monkeypatch.setattr(oplog_ddl_watch, "_LONGEST_WAIT", 0.0)
    return source


def test_what_the_majority_has_last_is_resolved(source: Source) -> None:
    watch = source.watch(Position(at(99, 1)))
    source.history[at(100, 1)] = drops(at(100, 1), "a")
    batch = watch.poll()
    assert [str(event.table) for event in batch.events] == ["shop.a"]
    assert batch.resolved == batch.end == Position(at(100, 2))


def test_each_ddl_is_shown_once_when_the_majority_has_it(source: Source) -> None:
    watch = source.watch(Position(at(99, 1)))
    for second, name in ((100, "a"), (101, "b"), (102, "c")):
        source.history[at(second, 1)] = drops(at(second, 1), name)
    shown: list[str] = []
    for second in (100, 100, 101, 102, 102):
        source.majority_ts = at(second, 1)
        batch = watch.poll()
        shown += [event.table.coll for event in batch.events if event.table is not None]
        assert batch.resolved == Position(at(second, 2))
        assert shown == ["a", "b", "c"][: second - 99]


def test_what_is_before_the_start_within_its_time_is_not_shown(source: Source) -> None:
    source.history[at(100, 1)] = drops(at(100, 1), "a", "b", "c")
    events = source.watch(position(at(100, 1), 1)).poll().events
    assert [event.table.coll for event in events if event.table is not None] == ["b", "c"]


def test_a_stride_that_takes_the_server_too_long_is_read_again_in_part(source: Source) -> None:
    watch = source.watch(Position(at(99, 1)))
    source.majority_ts = at(108, 1)
    source.history[at(107, 1)] = drops(at(107, 1), "a")
    source.slow = 1
    batch = watch.poll()
    assert (batch.events, batch.resolved) == ((), Position(at(99, 1)))
    shown: list[str] = []
    while batch.resolved < batch.end:
        batch = watch.poll()
        shown += [event.table.coll for event in batch.events if event.table is not None]
    assert shown == ["a"]
    assert [end for _, end in source.reads[1:-1]] == [start for start, _ in source.reads[2:]]


def test_a_read_that_takes_too_long_and_cannot_be_shorter_is_an_error(source: Source) -> None:
    watch = source.watch(Position(at(99, 1)))
    source.majority_ts = at(108, 1)
    source.slow = 99
    assert watch.poll().resolved == Position(at(99, 1)), "a shorter one is tried"
    with pytest.raises(SluiceError, match="exceeded time limit"):
        watch.poll()
