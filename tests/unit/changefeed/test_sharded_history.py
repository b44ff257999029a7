"""How far a shard is read for a window, and what a barrier keeps of the barrier before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.sharded_history import ShardedHistory, ShardHistory
from source.sharded.effective_order import Prepares


def at(seconds: int, increment: int = 0) -> ClusterTime:
    return ClusterTime(seconds, increment)


def history(seconds: int = 0, **shards: ShardHistory) -> ShardedHistory:
    return ShardedHistory(resolved_ts=at(110), seconds=seconds, shards=shards)


def test_a_shard_is_read_to_the_windows_end_and_as_far_beyond_as_a_commit_was_ever_logged() -> None:
    known = history(2, sa=ShardHistory(host="sa/a"), sb=ShardHistory(host="sb/b", late_ts=at(113, 4)))
    assert [known.until("sa", at(end)) for end in (100, 109, 110)] == [at(103), at(110), at(110)]
    assert [known.until("sb", at(end)) for end in (100, 109, 110)] == [at(103), at(112), at(113)]


def test_a_shard_that_was_removed_is_not_read_beyond_its_removal() -> None:
    known = history(5, sa=ShardHistory(host="sa/a", until_ts=at(104)))
    assert [known.until("sa", at(end)) for end in (103, 104, 105, 110)] == [at(104)] * 4


def test_what_an_earlier_watch_saw_is_kept_for_windows_that_are_not_read_yet() -> None:
    before = history(7, sa=ShardHistory(host="sa/old"), sb=ShardHistory(host="sb/b", until_ts=at(90)))
    now = history(1, sa=ShardHistory(host="sa/new"), sc=ShardHistory(host="sc/c", since_ts=at(95))).after(before)
    assert now.seconds == 7
    assert {name: each.host for name, each in now.shards.items()} == {"sa": "sa/new", "sb": "sb/b", "sc": "sc/c"}
    assert now.shards["sb"].until_ts == at(90)
    again = history(0, sc=ShardHistory(host="sc/c")).after(now)
    assert again.shards["sc"].since_ts == at(95)
    second = history(0, sc=ShardHistory(host="sc/other", since_ts=at(99))).after(now)
    assert second.shards["sc"].since_ts == at(99), "it was added again"


commits = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 20)).map(
        lambda pair: (at(100 + pair[0], pair[0]), at(100 + sum(pair), 50 + pair[1]))
    ),
    max_size=8,
)


@given(commits, st.integers(100, 140), st.integers(0, 40))
def test_every_commit_that_belongs_into_a_window_is_found(
    logged: list[tuple[ClusterTime, ClusterTime]], resolved: int, earlier: int
) -> None:
    prepares = Prepares()
    for number, (commit_ts, entry_ts) in enumerate(sorted(logged, key=lambda each: each[1])):
        transaction = {"op": "c", "lsid": {"id": number}, "txnNumber": 1}
        prepares.take({**transaction, "ts": commit_ts.to_bson(), "o": {"applyOps": [], "prepare": True}})
        commit = {"commitTransaction": 1, "commitTimestamp": commit_ts.to_bson()}
        prepares.take({**transaction, "ts": entry_ts.to_bson(), "o": commit})
    late_ts = prepares.until(at(resolved))
    known = ShardedHistory(
        resolved_ts=at(resolved),
        seconds=prepares.longest_seconds,
        shards={"sa": ShardHistory(host="sa/a", late_ts=late_ts if late_ts > at(resolved) else None)},
    )
    end_ts = at(max(100, resolved - earlier))
    assert all(entry_ts < known.until("sa", end_ts) for commit_ts, entry_ts in logged if commit_ts < end_ts)


def test_a_shard_that_is_gone_stays_gone_unless_it_is_a_shard_again() -> None:
    removed = ShardHistory(host="sc/c", until_ts=at(90))
    gone = history(sc=removed).without({"sc"})
    assert gone.shards["sc"].gone
    assert history(sc=removed).after(gone).shards["sc"].gone
    again = history(sc=ShardHistory(host="sc/new", since_ts=at(100))).after(gone).shards["sc"]
    assert (again.gone, again.since_ts, again.host) == (False, at(100), "sc/new")
