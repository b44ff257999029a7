"""Which tables are lost with a shard that is gone, and that no other passes before these are stopped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from changefeed.position import Position
from changefeed.sharded_history import ShardedHistory, ShardHistory
from changefeed.table import TableId, TableName
from source.loss import Loss, ReadTable
from source.sharded.cluster_clients import Silence
from source.sharded.gone_shards import GoneShards
from source.sharded.source import ShardedSource
from source.sharded.tables.rewind import LeftTables
from tests.unit.owner.at_once import AtOnce

THERE, NEVER, AHEAD = TableId("a" * 32), TableId("b" * 32), TableId("c" * 32)
REMOVED = ClusterTime(120, 5)


def silent(minutes: float) -> Silence:
    return Silence(error=SourceUnavailable("refused"), left=timedelta(minutes=minutes))


@dataclass
class Former:
    """A source whose shard sc was removed, and had one table."""

    heard: Silence | None = None
    asked_ts: ClusterTime | None = None

    def silence(self, shard: str, host: str) -> Silence | None:
        assert (shard, host) == ("sc", "sc/host")
        return self.heard

    def left_tables(self, _shard: str, since_ts: ClusterTime) -> LeftTables:
        self.asked_ts = since_ts
        return LeftTables(uuids=frozenset({THERE}))


def history(*, gone: bool = False) -> ShardedHistory:
    sc = ShardHistory(host="sc/host", until_ts=REMOVED, gone=gone)
    return ShardedHistory(resolved_ts=ClusterTime(130, 0), shards={"sa": ShardHistory(host="sa/host"), "sc": sc})


def table(coll: str, id: TableId, second: int | None, *, there: bool = True) -> ReadTable:
    at = None if second is None else Position(ClusterTime(second, 0))
    return ReadTable(name=TableName("shop", coll), at=at, uuids=[id], there=there)


ALL = {THERE: table("there", THERE, 100), NEVER: table("never", NEVER, 90), AHEAD: table("ahead", AHEAD, 125)}


def look(
    source: Former,
    tables: dict[TableId, ReadTable],
    shown: ShardedHistory | None = None,
    published: ShardedHistory | None = None,
) -> Loss:
    gone = GoneShards(AtOnce(), lambda: cast("ShardedSource", source))
    return gone.look(shown or history(), published or history(), Position(ClusterTime(80, 0)), lambda: tables)


def test_a_former_shard_that_answers_is_read() -> None:
    assert look(Former(), ALL) == Loss()


def test_one_that_is_silent_is_told_and_waited_for() -> None:
    loss = look(Former(silent(7)), ALL)
    assert "In 7 min it counts as gone for good" in str(loss.error)
    assert (loss.lost, loss.hold, loss.gone) == ({}, False, set())


def test_its_tables_are_lost_and_only_then_is_it_gone_for_the_others() -> None:
    source = Former(silent(0))
    loss = look(source, ALL)
    assert source.asked_ts == ClusterTime(90, 0)
    assert loss.lost.keys() == {THERE}
    assert "shard sc, which may have had rows of it, was removed at 120.5" in str(loss.lost[THERE])
    assert (loss.hold, loss.gone) == (True, set())
    rest = {NEVER: ALL[NEVER], AHEAD: ALL[AHEAD]}
    assert look(source, rest) == Loss(gone={"sc"})


def test_nothing_is_decided_while_the_place_of_a_table_is_not_known() -> None:
    assert look(Former(silent(0)), ALL | {NEVER: table("never", NEVER, None)}) == Loss(hold=True)


def test_a_table_whose_create_is_not_done_begins_stopped() -> None:
    """Also after everybody has left the shard out."""
    begins = {THERE: table("there", THERE, 110, there=False), NEVER: ALL[NEVER]}
    loss = look(Former(silent(0)), begins)
    assert loss == Loss(begin_lost=loss.begin_lost, gone={"sc"})
    assert loss.begin_lost.keys() == {THERE}
    later = look(Former(silent(0)), begins, published=history(gone=True))
    assert later == Loss(begin_lost=later.begin_lost)
    assert later.begin_lost.keys() == {THERE}


def test_what_the_watch_leaves_out_is_not_taken_before_its_tables_are_stopped() -> None:
    source = Former()
    assert look(source, ALL, shown=history(gone=True)).hold
    assert not look(source, {NEVER: ALL[NEVER]}, shown=history(gone=True)).hold


def test_a_shard_that_is_known_to_be_gone_is_not_looked_at_again() -> None:
    assert look(Former(silent(0)), ALL, published=history(gone=True)) == Loss()


def test_tables_that_need_a_shard_are_lost_before_another_one_takes_its_name() -> None:
    """A history has one shard of a name: with that of the second life they would pass over the rows of the first."""
    again = history()
    sc = ShardHistory(host="sc/other", since_ts=ClusterTime(125, 0))
    again = ShardedHistory(resolved_ts=again.resolved_ts, shards={**again.shards, "sc": sc})
    source = Former()
    loss = look(source, ALL, shown=again)
    assert source.asked_ts == ClusterTime(90, 0)
    assert loss.lost.keys() == {THERE}
    assert "was removed at 120.5 and another one was added under its name" in str(loss.lost[THERE])
    assert (loss.hold, loss.gone) == (True, set())
    assert look(source, {NEVER: ALL[NEVER], AHEAD: ALL[AHEAD]}, shown=again) == Loss()
    begins = look(source, {THERE: table("there", THERE, 110, there=False)}, shown=again, published=history(gone=True))
    assert begins.begin_lost.keys() == {THERE}
    assert begins.hold, "with the second life it would begin as if nothing were lost"
