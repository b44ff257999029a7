"""A shard that was removed may be added again under its name, with nothing of its first life."""

from __future__ import annotations

from changefeed.cluster_time import ClusterTime
from changefeed.sharded_history import ShardHistory
from source.sharded.effective_order import Operation
from source.sharded.shard_roster import ArrivingShard, ShardRoster

NOTHING = ArrivingShard({}, {}, ())
REMOVED: Operation = {"op": "d", "ns": "config.shards", "o": {"_id": "sc"}}


def added(host: str) -> Operation:
    return {"op": "i", "ns": "config.shards", "o": {"_id": "sc", "host": host}}


def at(seconds: int) -> ClusterTime:
    return ClusterTime(seconds, 0)


def present(roster: ShardRoster, host: str) -> ShardHistory:
    return roster.present("sc", host, quiet_ts=None, late_ts=None)


def test_a_shard_that_comes_again_is_not_gone_as_the_former_one() -> None:
    roster = ShardRoster()
    roster.read(REMOVED, at(5))
    roster.gone.add("sc")
    roster.read(added("sc/other"), at(9))
    assert roster.removed_before("sc"), "until then the former one is read"
    roster.arrives("sc", NOTHING)
    assert present(roster, "sc/other") == ShardHistory(host="sc/other", since_ts=at(9))
    assert (roster.removed, roster.gone) == ({}, set())


def test_a_removal_of_one_that_has_not_arrived_yet_is_kept() -> None:
    roster = ShardRoster()
    roster.read(added("sc/one"), at(5))
    roster.read(REMOVED, at(9))
    assert not roster.removed_before("sc")
    roster.arrives("sc", NOTHING)
    assert roster.removed == {"sc": at(9)}
