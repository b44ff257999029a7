"""The rows of a cluster are the same however its history is cut into windows, and whoever reads them."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from changefeed.capture import Capture, names_place
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from changefeed.sharded_history import ShardedHistory, opened
from devstack.sharded.cluster import ShardedCluster
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.rows.sharded_rows import sharded_rows
from source.sharded.sharded_ddl_watch import ShardedDdlWatch
from source.stream.window_reader import ReadOptions
from tests.component.source.sharded.history import History, end_of

pytestmark = pytest.mark.since("5.0")


def rows(clients: ClusterClients, history: ShardedHistory, window: Window) -> list[tuple[int, bytes]]:
    """Each has its own place, as whoever has only its bytes finds it, too."""
    capture = sharded_rows(clients, {}, ReadOptions(about=True, patience=timedelta(seconds=5)))
    found = [each for batch in capture.reader(history).read(window) for each in batch.scanned(capture.scan)]
    places = [header.position for _, header in found]
    assert places == sorted(set(places))
    assert capture.carried is not None
    assert [capture.scan(capture.carried(*each)) for each in found] == [header for _, header in found]
    assert all(names_place(Capture.SHARD_OPLOGS, place.token) for place in places)
    return [(header.time, event) for event, header in found]


def test_windows_together_have_each_row_once_and_in_order(cluster: ShardedCluster) -> None:
    chance = random.Random(7)
    with closing(ClusterClients(cluster.config.uri)) as clients:
        history = History(cluster, 7, 6)
        start = Position(reach_newest(clients).next())
        history.prepare()
        running = threading.Thread(target=history.run)
        running.start()
        running.join()
        history.last_write()
        end_ts = end_of(cluster)
        with closing(ShardedDdlWatch(clients, start)) as watch:
            batch = watch.poll()
            while batch.resolved.ts <= end_ts:
                batch = watch.poll()
        known = opened(batch.history)
        assert known is not None
        end = batch.resolved
        whole = rows(clients, known, Window(start, end))
        quiet = {name: shard.quiet_ts for name, shard in known.shards.items()}
        assert any(ts is not None and start.ts < ts < end.ts for ts in quiet.values())
        unknown = {name: replace(shard, quiet_ts=None) for name, shard in known.shards.items()}
        looking = replace(known, shards=unknown)
        assert rows(clients, looking, Window(start, end)) == whole
        for ts in quiet.values():
            assert ts is not None
            window = Window(Position(ts), end)
            assert rows(clients, known, window) == rows(clients, looking, window)
        times = [ts for ts, _ in whole]
        assert times == sorted(times)
        assert len(whole) > 100
        commits = sorted(set(times))
        for _ in range(8):
            cuts = sorted({Position(ClusterTime.from_int(ts)) for ts in chance.sample(commits, 40)})
            places = [start, *(cut for cut in cuts if start < cut < end), end]
            parts = [rows(clients, known, Window(*pair)) for pair in pairwise(places)]
            assert [row for part in parts for row in part] == whole
