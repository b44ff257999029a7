"""A row of a quiet table arrives although other tables were written while its changefeed was paused, and no read is left at the source."""

from __future__ import annotations

from functools import partial

import pytest
from pymongo import WriteConcern

from changefeed.capture import Capture
from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId, DesiredState
from tests.component.processor.conftest import ReplicatingCluster

_ENTRIES, _BATCH = 200_000, 20_000


@pytest.mark.parametrize("capture", [pytest.param(Capture.CHANGE_STREAM, marks=pytest.mark.soak), Capture.OPLOG])
def test_a_row_behind_what_others_wrote(standing: ReplicatingCluster, database: str, capture: Capture) -> None:
    rows, others = standing.source[database]["rows"], f"{database}_others"
    standing.source[database].create_collection("rows")
    feed = standing.create(f"quiet-{capture}", database, capture=capture)
    standing.until(lambda: standing.began(feed), "the beginning")
    rows.insert_one({"_id": "before"})
    standing.equal(database)
    _want(standing, feed, DesiredState.PAUSED, capture, State.STOPPED)
    for _ in range(0, _ENTRIES, _BATCH):
        written = standing.source[others].get_collection("rows", write_concern=WriteConcern(1))
        written.insert_many([{"s": "x" * 150} for _ in range(_BATCH)], ordered=False)
    rows.insert_one({"_id": "behind"})
    _want(standing, feed, DesiredState.RUNNING, capture, State.NORMAL)
    _want(standing, feed, DesiredState.PAUSED, capture, State.STOPPED)
    standing.until(lambda: not _readings(standing, database), "an end of what was read", within=15)
    _want(standing, feed, DesiredState.RUNNING, capture, State.NORMAL)
    standing.equal(database)
    standing.until(lambda: not _readings(standing, database), "an end of what was read", within=15)
    assert not standing.differences(database)
    standing.source.drop_database(others)


def _want(
    cluster: ReplicatingCluster, feed: ChangefeedId, desired: DesiredState, capture: Capture, state: State
) -> None:
    cluster.change(feed, desired, capture=capture)
    cluster.until(partial(_is, cluster, feed, state), f"{state}")


def _is(cluster: ReplicatingCluster, feed: ChangefeedId, state: State) -> bool:
    return cluster.obeyed(feed) and cluster.state(feed) is state


def _readings(cluster: ReplicatingCluster, database: str) -> list[str]:
    """The source's active reads of history for this changefeed's rows. Change streams name the database in a stage, oplog reads in their filter."""
    seen = cluster.source.admin.aggregate([{"$currentOp": {"allUsers": True}}, {"$match": {"active": True}}])
    return [text for text in map(str, seen) if database in text and ("$changeStream" in text or "oplog.rs" in text)]
