"""`GoneShards`: what is lost with shards of a source that were removed and cannot be read any more.

    sc was removed at 120. Tables that have not come to 120 need its rows:

    it answers, or is away for minutes only    they wait, and the error says how long still
    it is gone                                 those that it may have had at the place of the least of them are lost: each is stopped
    all of these are stopped                   the barrier says that sc is gone: nobody reads it any more, and the others go on

Another shard that is added under its name waits until its tables are stopped, too: a history has one shard of a name.

So no table passes rows that it lacks. A table whose create is not done yet begins stopped, if it has to be. What the watch itself needs of such a shard, it leaves out (`source/sharded/watch.py`), and then it says
with its history that the shard is gone. Until all its tables are stopped, nothing of what the watch shows from there on is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SluiceError
from changefeed.position import Position
from changefeed.sharded_history import ShardHistory, opened
from changefeed.source_history import SourceHistory
from changefeed.table import COPY_ANEW, TableId
from source.loss import InBackground, Loss, ReadTable
from source.sharded.cluster_clients import Silence
from source.sharded.source import ShardedSource
from source.sharded.tables.rewind import LeftTables

_EVERY_SECONDS = 10.0


class GoneShards:
    """For the owner's thread. Never waits: it asks in the background."""

    def __init__(self, background: InBackground, source: Callable[[], ShardedSource]) -> None:
        self._background = background
        self._source = source
        self._asked_at: dict[str, float] = {}
        self._silences: dict[str, Silence] = {}
        self._left: dict[tuple[str, ClusterTime, ClusterTime], LeftTables] = {}

    def look(
        self,
        shown: SourceHistory | None,
        published: SourceHistory | None,
        least: Position | None,
        read: Callable[[], Mapping[TableId, ReadTable]],
    ) -> Loss:
        loss, now, before = Loss(), opened(shown), opened(published)
        merged = now.after(before) if now is not None else before
        for name, shard in merged.shards.items() if merged is not None else ():
            known = before.shards.get(name) if before is not None else None
            former = shard if shard.until_ts is not None or known is None else known
            until_ts, again = former.until_ts, former is not shard
            if until_ts is None or (least is not None and least.ts >= until_ts):
                continue
            done = known is not None and known.gone and known.until_ts == until_ts
            needing = {
                table: each for table, each in read().items() if each.needs(until_ts) and not (done and each.there)
            }
            try:
                self._judge(name, former, needing, loss, done=done, again=again)
            except SluiceError as error:
                loss.error, loss.hold = error, loss.hold or again or (former.gone and not done)
        return loss

    def _judge(
        self,
        name: str,
        shard: ShardHistory,
        needing: Mapping[TableId, ReadTable],
        loss: Loss,
        *,
        done: bool,
        again: bool,
    ) -> None:
        """`done`: nobody reads it any more. Only what begins now may still need it. `again`: another one was added under its name."""
        assert shard.until_ts is not None, f"expected {name} to have been removed"
        until_ts = shard.until_ts
        if not needing:
            self._silences.pop(name, None)
            return
        if not shard.gone and not again:
            silence = self._silence(name, shard.host)
            if silence is None:
                return
            if not silence.over:
                loss.error = silence.told(
                    f"shard {name} was removed at {until_ts}, but its rows before that are needed"
                )
                return
        left = self._left_tables(name, until_ts, needing)
        if left is None and not done:
            loss.hold = True
            return
        left = left or LeftTables(all=True)
        lost = {table: each for table, each in needing.items() if left.may_have(each.name, each.uuids)}
        why = "another one was added under its name" if again else f"is gone: {shard.host} does not answer any more"
        for table, each in lost.items():
            kept = loss.lost if each.there else loss.begin_lost
            kept[table] = HistoryLost(
                f"it is at {each.at}, and shard {name}, which may have had rows of it, was removed at {until_ts} and {why}; {COPY_ANEW}"
            ).about(table)
        stopped_now = any(each.there for each in lost.values())
        loss.hold = loss.hold or stopped_now or (again and bool(lost))
        if not stopped_now and not done and not again:
            loss.gone.add(name)

    def _silence(self, name: str, host: str) -> Silence | None:
        if time.monotonic() - self._asked_at.get(name, float("-inf")) >= _EVERY_SECONDS:
            answer = self._background.take(("former shard", name), lambda: (self._source().silence(name, host),))
            if answer is not None:
                self._asked_at[name] = time.monotonic()
                [found] = answer
                self._silences.pop(name, None)
                if found is not None:
                    self._silences[name] = found
        return self._silences.get(name)

    def _left_tables(self, name: str, until_ts: ClusterTime, needing: Mapping[TableId, ReadTable]) -> LeftTables | None:
        """None: not yet known. What is known for an earlier time holds for a later one too."""
        places = [each.at for each in needing.values() if each.at is not None]
        if len(places) < len(needing):
            return None
        since_ts = min(places).ts
        known = [left for (*of, from_ts), left in self._left.items() if of == [name, until_ts] and from_ts <= since_ts]
        if known:
            return known[-1]
        found: LeftTables | None = self._background.take(
            ("left by", name, until_ts), lambda: self._source().left_tables(name, since_ts)
        )
        if found is not None:
            self._left[name, until_ts, since_ts] = found
        return found
