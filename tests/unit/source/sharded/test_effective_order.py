"""Below `resolved` nothing is missing, whatever the order in which shards prepare, decide, and are read.

Places of DDLs inside one cluster time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from bson.binary import Binary
from hypothesis import given
from hypothesis import strategies as st

from changefeed.capture import Capture, names_place
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from source.sharded.effective_order import (
    Operation,
    Prepares,
    StreamPoint,
    effective_ts,
    held_by,
    key_of_entry,
    nudges,
    numbered,
    place_of,
    resolved,
)

SHARDS = ("sa", "sb", "sc")


def at(number: int) -> ClusterTime:
    return ClusterTime(100, number)


def command(number: int, o: dict[str, Any], session: int) -> Operation:
    lsid = {"id": Binary(bytes([session]) * 16, 4), "uid": Binary(bytes(32), 0)}
    return {"op": "c", "ns": "admin.$cmd", "ts": at(number).to_bson(), "lsid": lsid, "txnNumber": 1, "o": o}


@dataclass
class ModelTransaction:
    number: int
    to_prepare: list[str]
    prepared: dict[str, int] = field(default_factory=dict)
    to_decide: list[str] = field(default_factory=list)


class ModelCluster:
    """Oplogs of shards, as the servers write them: prepares, then each shard's decision, with the time of the greatest prepare."""

    def __init__(self, seed: int, transactions: int) -> None:
        chance = random.Random(seed)
        self.oplogs: dict[str, list[Operation]] = {shard: [] for shard in SHARDS}
        self._clock = 1
        left = [
            ModelTransaction(number, chance.sample(SHARDS, chance.randrange(1, 4)))
            for number in range(1, transactions + 1)
        ]
        begun: list[ModelTransaction] = []
        while left or begun:
            self._clock += chance.randrange(0, 2)
            if chance.random() < 0.3:
                self._log(chance.choice(SHARDS), {"op": "i", "ns": "shop.a", "o": {}})
            if left and chance.random() < 0.3:
                begun.append(left.pop())
            if begun:
                transaction = chance.choice(begun)
                self._go_on(transaction)
                begun = [each for each in begun if each.to_prepare or each.to_decide]

    def _go_on(self, transaction: ModelTransaction) -> None:
        if transaction.to_prepare:
            shard = transaction.to_prepare.pop()
            self._log(shard, command(0, {"applyOps": [], "prepare": True}, transaction.number))
            transaction.prepared[shard] = self._last(shard)
            transaction.to_decide.append(shard)
            return
        commit = max(transaction.prepared.values())
        self._clock = max(self._clock, commit)
        o = {"commitTransaction": 1, "commitTimestamp": at(commit).to_bson()}
        self._log(
            transaction.to_decide.pop(),
            command(0, o if transaction.number % 5 else {"abortTransaction": 1}, transaction.number),
        )

    def _last(self, shard: str) -> int:
        return int(self.oplogs[shard][-1]["ts"].inc)

    def _log(self, shard: str, entry: Operation) -> None:
        """At the clock's time, or just after the shard's last entry: one shard's times differ, those of two shards may not."""
        number = max(self._clock, self._last(shard) + 1 if self.oplogs[shard] else 1)
        self.oplogs[shard].append({**entry, "ts": at(number).to_bson()})


class Reading:
    def __init__(self) -> None:
        self.read_ts, self.prepares = at(0), Prepares()

    def read(self, entries: list[Operation], to_ts: ClusterTime) -> None:
        for entry in entries:
            if self.read_ts <= ClusterTime.from_bson(entry["ts"]) < to_ts:
                self.prepares.take(entry)
        self.read_ts = to_ts

    @property
    def point(self) -> StreamPoint:
        return StreamPoint(read_ts=self.read_ts, prepared_ts=self.prepares.oldest_ts)


def visible(entries: list[Operation]) -> list[Operation]:
    return [entry for entry in entries if "commitTransaction" in entry["o"] or entry["op"] == "i"]


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(0, 10_000))
def test_below_resolved_every_unit_was_read_and_until_finds_it(seed: int, transactions: int, reads: int) -> None:
    cluster, order = ModelCluster(seed, transactions), random.Random(reads)
    readings = {shard: Reading() for shard in SHARDS}
    end = max(entry["ts"].inc for entries in cluster.oplogs.values() for entry in entries) + 1
    before = at(0)
    while any(reading.read_ts < at(end) for reading in readings.values()):
        shard = order.choice(SHARDS)
        to = min(end, readings[shard].read_ts.increment + order.randrange(1, 6))
        readings[shard].read(cluster.oplogs[shard], at(to))
        reached = resolved({name: reading.point for name, reading in readings.items()})
        assert reached >= before
        before = reached
        for name, reading in readings.items():
            until = reading.prepares.until(reached)
            assert until <= reading.read_ts or until == reached
            for entry in visible(cluster.oplogs[name]):
                if effective_ts(entry) < reached:
                    assert ClusterTime.from_bson(entry["ts"]) < min(reading.read_ts, until)
    assert before == at(end)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(0, 10_000))
def test_a_reader_that_starts_at_a_resolved_time_finds_what_the_first_did_not(
    seed: int, transactions: int, reads: int
) -> None:
    """It may read a member that is behind the first one, so the prepared transactions are listed as that member has them."""
    cluster, order = ModelCluster(seed, transactions), random.Random(reads)
    end = max(entry["ts"].inc for entries in cluster.oplogs.values() for entry in entries) + 1
    stops = {shard: at(order.randrange(1, end + 1)) for shard in SHARDS}
    first = {shard: Reading() for shard in SHARDS}
    for shard, reading in first.items():
        reading.read(cluster.oplogs[shard], stops[shard])
    start = resolved({name: reading.point for name, reading in first.items()})
    again: dict[str, Reading] = {}
    for shard in SHARDS:
        entries = cluster.oplogs[shard]
        listed_at = at(order.randrange(start.increment, end + 1))
        listing = Reading()
        listing.read(entries, listed_at)
        again[shard] = Reading()
        again[shard].read_ts = start
        for key, ts in listing.prepares._open.items():
            again[shard].prepares.listed(key, ts)
        again[shard].read(entries, at(order.randrange(listed_at.increment, end + 1)))
    reached = resolved({name: reading.point for name, reading in again.items()})
    for shard in SHARDS:
        for entry in visible(cluster.oplogs[shard]):
            if start <= effective_ts(entry) < reached:
                assert start <= ClusterTime.from_bson(entry["ts"]) < again[shard].read_ts


def test_the_example_of_the_docstring() -> None:
    points = {
        "cfg": StreamPoint(read_ts=at(10)),
        "sa": StreamPoint(read_ts=at(203), prepared_ts=at(101), waiting_ts=at(202)),
        "sb": StreamPoint(read_ts=at(45)),
    }
    assert resolved(points) == at(10)
    assert held_by(points) == ("cfg",)
    assert nudges(points) == {"cfg": at(202), "sb": at(202)}


def test_no_stream_is_nudged_for_no_ops() -> None:
    assert nudges({"sa": StreamPoint(read_ts=at(9)), "sb": StreamPoint(read_ts=at(3))}) == {}


def test_what_is_resolved_waits_no_longer() -> None:
    points = {"sa": StreamPoint(read_ts=at(9), waiting_ts=at(2)), "sb": StreamPoint(read_ts=at(3))}
    assert nudges(points) == {}


def test_a_transaction_that_was_prepared_before_the_start_and_commits_after_it_holds_resolved_until_its_decision() -> (
    None
):
    """A start at 45 was resolved when sa had been read to 61. Another member of sa is at 55, where only its list tells of the prepare at 10."""
    prepare = command(10, {"applyOps": [], "prepare": True}, 1)
    commit = command(60, {"commitTransaction": 1, "commitTimestamp": at(50).to_bson()}, 1)
    key = key_of_entry(prepare)
    assert key is not None
    again = Reading()
    again.read_ts = at(45)
    again.prepares.listed(key, at(10))
    again.read([prepare, commit], at(56))
    points = {"sa": again.point, "sb": StreamPoint(read_ts=at(58))}
    assert resolved(points) == at(10)
    again.read([prepare, commit], at(61))
    assert resolved(points | {"sa": again.point}) == at(58)
    assert again.prepares.until(at(58)) == at(61)


AT = ClusterTime(100, 1)
OF_A_SHARD = place_of(AT, "sa", 0).token


def test_ddls_of_one_time_are_in_the_order_of_shards_and_operations() -> None:
    first, second = place_of(AT, "sa", 0), place_of(AT, "sa", 1)
    places = [Position(AT), place_of(AT, "", 0), first, numbered(first, 1), numbered(first, 2), second]
    places += [place_of(AT, "sb", 0), Position(AT.next())]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    assert [Position.parse(str(each)) for each in places] == places


@pytest.mark.parametrize(
    ("capture", "known"),
    [
        (Capture.OPLOG, ["", "00000001", "00000001.0002"]),
        (Capture.SHARD_OPLOGS, ["", OF_A_SHARD, f"{OF_A_SHARD}.0001"]),
        (Capture.CHANGE_STREAM, ["", "8264AB"]),
    ],
)
def test_a_capture_knows_its_own_places(capture: Capture, known: list[str]) -> None:
    tokens = ("", "00000001", "00000001.0002", OF_A_SHARD, f"{OF_A_SHARD}.0001", "8264AB")
    assert [token for token in tokens if names_place(capture, token)] == known
