"""What one stream of a cluster knows when it begins: the transactions that were prepared before and may commit later."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import SimpleNamespace
from typing import Any

import bson
import pytest
from pymongo.errors import ExecutionTimeout

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from source.connection import HELLO
from source.sharded import stream
from source.sharded.stream import ClusterStream, caught_up


def at(increment: int) -> ClusterTime:
    return ClusterTime(100, increment)


class Shard:
    """A member with one prepared transaction, of the time 3. `elects`: another member answers after the list.

    Each read takes 30 s. `failures`: what the next reads end with, None if they are answered.
    """

    def __init__(self) -> None:
        self.majority_ts = at(9)
        self.member = "one"
        self.elects = False
        self.now = 0.0
        self.failures: list[Exception | None] = []
        self.history: dict[ClusterTime, dict[str, Any]] = {}

    def answer(self, _: object, db: str, command: Mapping[str, Any], **__: object) -> dict[str, Any]:
        assert (db, list(command)) == ("admin", [HELLO])
        return {"lastWrite": {"majorityOpTime": {"ts": self.majority_ts.to_bson(), "t": 1}}}

    def listed(self, _: object, coll: str, __: object) -> list[dict[str, Any]]:
        assert coll == "transactions"
        prepared = {"_id": {"id": 1}, "txnNum": 1, "state": "prepared", "startOpTime": {"ts": at(3).to_bson()}}
        self.member = "two" if self.elects else self.member
        return [prepared]

    def entries(
        self, _: object, start_ts: ClusterTime, end_ts: ClusterTime, *__: object
    ) -> Generator[list[bytes], None, None]:
        self.now += 30.0
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        found = sorted((ts, entry) for ts, entry in self.history.items() if start_ts <= ts < end_ts)
        yield [bson.encode({"ts": ts.to_bson(), "op": "c", "ns": "admin.$cmd", **entry}) for ts, entry in found]

    def transaction(self, number: int, ts: ClusterTime, after_ts: ClusterTime | None = None, **o: Any) -> None:
        """An entry of it."""
        before = {"prevOpTime": {"ts": (after_ts or ClusterTime(0, 0)).to_bson(), "t": 1}}
        self.history[ts] = {"lsid": {"id": 7}, "txnNumber": number, "o": o, **before}

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def shard(monkeypatch: pytest.MonkeyPatch) -> Shard:
    """In place of a server's. Its clock is the stream's: no test can read for minutes."""
    shard = Shard()
    monkeypatch.setattr(stream, "time", SimpleNamespace(monotonic=lambda: shard.now, sleep=shard.wait))
    monkeypatch.setattr(stream, "read_command", shard.answer)
    monkeypatch.setattr(stream, "config_documents", shard.listed)
    monkeypatch.setattr(stream, "member_read", lambda _: shard.member)
    monkeypatch.setattr(stream, "entries", shard.entries)
    return shard


def began(start: int = 5) -> ClusterStream:
    client: Any = SimpleNamespace(start_session=lambda **_: None)
    return ClusterStream("sa", client, at(start))


def test_a_transaction_that_was_prepared_before_holds_the_stream(shard: Shard) -> None:
    """Nothing is known before the member's majority is beyond where it was listed: what was prepared meanwhile is in no list."""
    began_here = began()
    began_here.poll()
    assert began_here.point.read_ts == at(10)
    assert began_here.point.complete_ts == at(3)


def test_a_list_of_another_member_counts_for_nothing(shard: Shard) -> None:
    shard.elects = True
    stream = began()
    with pytest.raises(SourceUnavailable, match="is read from another member now"):
        stream.poll()
    assert stream.point.read_ts == at(5), "it has read nothing"


def test_a_member_that_has_not_reached_the_start_is_not_listed(shard: Shard) -> None:
    shard.majority_ts = at(3)
    with pytest.raises(SourceUnavailable, match=r"has not reached 100\.5 yet"):
        began().poll()
    shard.majority_ts = at(4)
    began().poll()


TOO_SLOW = ExecutionTimeout("operation exceeded time limit", 50)


def test_a_stride_that_takes_the_server_too_long_is_read_again_in_part(shard: Shard) -> None:
    shard.failures = [TOO_SLOW]
    stream = began()
    assert stream.poll() == []
    assert (stream.caught_up, stream.point.read_ts) == (False, at(5)), "it has read nothing"
    stream.poll()
    assert (stream.caught_up, stream.point.read_ts) == (True, at(10))


def test_a_read_that_takes_too_long_and_cannot_be_shorter_is_an_error(shard: Shard) -> None:
    shard.failures = [TOO_SLOW, TOO_SLOW]
    stream = began()
    assert stream.poll() == [], "a shorter one is tried"
    with pytest.raises(SourceUnavailable, match="exceeded time limit"):
        stream.poll()


def test_a_stream_that_reads_on_is_waited_for_however_long(shard: Shard) -> None:
    """An election after minutes of reading would otherwise discard all of it, and another opening would need as long again."""
    shard.majority_ts = ClusterTime(130, 1)
    election = SourceUnavailable("the shard elects a primary")
    shard.failures = [None, election, TOO_SLOW, None, election, None, election]
    stream = began()
    caught_up(stream)
    assert shard.failures == []
    assert stream.point.read_ts == ClusterTime(130, 2)
    assert shard.now > 200


def test_a_stream_that_does_not_read_on_is_given_up(shard: Shard) -> None:
    shard.failures = [None, *[SourceUnavailable("no primary")] * 9]
    shard.majority_ts = ClusterTime(130, 1)
    with pytest.raises(SourceUnavailable, match="no primary"):
        caught_up(began())
    assert 60 < shard.now < 150


def test_a_transaction_that_is_decided_is_forgotten(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream of an owner lives for months. One of rows only is not read again when it commits."""
    monkeypatch.setattr(stream, "entry_at", lambda *_: pytest.fail("expected no part to be read"))
    row = {"op": "i", "ns": "shop.orders"}
    decisions = {20: "commitTransaction", 21: "abortTransaction"}
    for number, decision in decisions.items():
        shard.transaction(number, at(number), applyOps=[row], prepare=True)
        shard.transaction(number, at(number + 10), at(number), **{decision: 1})
    reader = began()
    for majority in (25, 35):
        shard.majority_ts = at(majority)
        assert reader.poll() == []
        assert len(reader._rows_only) == (2 if majority == 25 else 0)


def test_a_transaction_with_a_command_is_read_when_it_commits(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    create = {"op": "c", "ns": "shop.$cmd", "o": {"create": "orders"}}
    shard.transaction(20, at(20), applyOps=[create], prepare=True)
    shard.transaction(20, at(30), at(20), commitTransaction=1, commitTimestamp=at(22).to_bson())
    monkeypatch.setattr(
        stream, "entry_at", lambda _, ts, __: bson.encode({"ts": ts.to_bson(), "op": "c", **shard.history[ts]})
    )
    shard.majority_ts = at(35)
    [unit] = began().poll()
    assert unit.ts == at(22)
    assert [dict(each["o"]) for each in unit.operations] == [{"create": "orders"}]
