"""What a node counts, and what it forgets."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from admin.metrics import Metrics
from changefeed.cluster_time import ClusterTime
from changefeed.event import RowTally, RowType
from changefeed.records.copy import CopiedChunk
from changefeed.records.requests import ChangefeedId

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
        tally = RowTally(
            applied=Counter({RowType.INSERT: 1, RowType.DELETE: 2}), messages=3, message_bytes=300, confirm_seconds=0.2
        )
        metrics.window_committed(changefeed, timedelta(seconds=0.3))
        metrics.window_done(changefeed, tally, timedelta(1), failed=True)
        metrics.chunks_copied(changefeed, [chunk])
    assert set(map(frozenset, counted(metrics).values())) == {frozenset({HERE, GONE})}
    samples = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    assert not any(name.endswith("_created") for name in samples)
    metrics.keep({HERE})
    assert set(map(frozenset, counted(metrics).values())) == {frozenset({HERE})}
    metrics.chunks_copied(GONE, [chunk])
    assert metrics.registry.get_sample_value("sluice_copied_documents_total", {"changefeed": GONE}) == 7


def test_a_window_into_a_sink_of_messages_counts_them_and_how_long_the_sink_took() -> None:
    metrics, value = Metrics(), {"changefeed": str(HERE)}
    whole = RowTally(messages=3, message_bytes=300, confirm_seconds=0.2)
    whole.add(RowTally(messages=2, message_bytes=50, confirm_seconds=0.7))
    metrics.window_done(HERE, whole, timedelta(1), failed=False)
    metrics.window_done(HERE, RowTally(), timedelta(1), failed=False)
    metrics.window_committed(HERE, timedelta(seconds=0.3))
    found = {
        name: metrics.registry.get_sample_value(f"sluice_sink_{name}", value)
        for name in (
            "messages_total",
            "bytes_total",
            "confirm_seconds_sum",
            "confirm_seconds_count",
            "commit_seconds_sum",
        )
    }
    assert found == {
        "messages_total": 5,
        "bytes_total": 350,
        "confirm_seconds_sum": 0.7,
        "confirm_seconds_count": 1,
        "commit_seconds_sum": 0.3,
    }
