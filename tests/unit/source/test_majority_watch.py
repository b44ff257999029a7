"""When a majority is reported as stalled, and when the source is only quiet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from pymongo import ReadPreference
from pymongo.errors import AutoReconnect

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from source.connection import Client
from source.majority_watch import MajorityWatch
from tests.unit.changefeed.test_cluster_time import hello


class ScriptedSource:
    """A source whose `hello` follows a script, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.read_preference = ReadPreference.PRIMARY
        self.asked = 0
        self.reply: Mapping[str, Any] | Exception = hello(0, 0)
        self.watch = MajorityWatch(cast("Client", self), monotonic=lambda: self.now)

    def __getitem__(self, db: str) -> ScriptedSource:
        return self

    def command(self, command: Mapping[str, Any], **_: object) -> Mapping[str, Any]:
        self.asked += 1
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def follow(self, committed: int, *, seconds: float) -> list[str | None]:
        """The reports of the watch, every half second."""
        said = []
        for _ in range(int(seconds * 2)):
            trouble = self.watch.look_at(ClusterTime(1795335500 + committed, 1))
            said.append(str(trouble) if trouble else None)
            self.now += 0.5
        return said


def test_a_stalled_majority_is_reported_while_it_is_stalled() -> None:
    source = ScriptedSource()
    source.reply = hello(2, 0)
    said = source.follow(0, seconds=12)
    assert said[10] is None
    assert said[16] is not None
    assert "replica set 'rs' has not moved since 2026-11-22T08:18:20Z" in said[16]
    assert set(said[16:]) == {said[16]}
    assert source.follow(2, seconds=1) == [None, None]


def test_a_quiet_source_is_no_trouble_and_rarely_asked() -> None:
    source = ScriptedSource()
    assert set(source.follow(0, seconds=60)) == {None}
    assert source.asked <= 30


def test_a_busy_source_is_not_asked_at_all() -> None:
    source = ScriptedSource()
    source.reply = hello(99, 0)
    assert [source.follow(second, seconds=1) for second in range(20)] == [[None, None]] * 20
    assert source.asked == 0


def test_a_write_that_the_majority_lacks_for_a_moment_is_no_trouble() -> None:
    source = ScriptedSource()
    source.reply = hello(1, 0)
    assert set(source.follow(0, seconds=3)) == {None}
    source.reply = hello(0, 0)
    assert set(source.follow(0, seconds=3)) == {None}
    source.reply = hello(1, 0)
    assert set(source.follow(0, seconds=3)) == {None}


def test_a_router_is_never_reported_as_stalled() -> None:
    source = ScriptedSource()
    source.reply = {"msg": "isdbgrid"}
    assert set(source.follow(0, seconds=20)) == {None}


def test_a_source_that_is_away_is_another_error() -> None:
    source = ScriptedSource()
    source.reply = AutoReconnect("db1:27017: connection closed")
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        source.follow(0, seconds=5)
