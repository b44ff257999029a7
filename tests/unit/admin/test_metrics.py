"""What a node counts, and what it forgets."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from admin.metrics import Metrics
from changefeed.cluster_time import ClusterTime
from changefeed.event import RowType
from changefeed.records import ChangefeedId, CopiedChunk
from changefeed.row_tally import RowTally

HERE, GONE = ChangefeedId("here"), ChangefeedId("gone")


def counted(metrics: Metrics) -> dict[str, set[str]]:
    """The changefeeds of each counter."""
    found: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            if "changefeed" in sample.labels:
                found.setdefault(family.name, set()).add(sample.labels["changefeed"])
    return found


def test_the_counters_of_a_removed_changefeed_go_away_and_start_anew_if_it_comes_back() -> None:
    metrics = Metrics()
    chunk = CopiedChunk(after=ClusterTime(1, 1), until=ClusterTime(1, 1), documents=7, bytes=70)
    for changefeed in (HERE, GONE):
        tally = RowTally(applied=Counter({RowType.INSERT: 1, RowType.DELETE: 2}))
        metrics.window_done(changefeed, tally, timedelta(1), failed=True)
        metrics.chunks_copied(changefeed, [chunk])
    assert set(map(frozenset, counted(metrics).values())) == {frozenset({HERE, GONE})}
    metrics.keep({HERE})
    assert set(map(frozenset, counted(metrics).values())) == {frozenset({HERE})}
    metrics.chunks_copied(GONE, [chunk])
    assert metrics.registry.get_sample_value("sluice_copied_documents_total", {"changefeed": GONE}) == 7
