"""What `on_occupied` makes of tables that the target has before their initial copy."""

from __future__ import annotations

from functools import partial

import pytest
from pymongo import UpdateOne

from tests.component.processor.conftest import ReplicatingCluster
from tests.component.processor.workload import Beside, write


def _occupy(cluster: ReplicatingCluster, database: str) -> None:
    """Rows as the source has them, older ones, and one that only the target has."""
    rows = [{"_id": n, "v": n, "text": "x" * 50} for n in range(3_000)]
    cluster.source[database]["rows"].insert_many(rows)
    cluster.source[database]["rows"].create_index("v")
    occupied = cluster.target[f"{database}_to"]["rows"]
    occupied.insert_many([*rows[:1_000], {"_id": "of the target alone"}])
    occupied.bulk_write([UpdateOne({"_id": n}, {"$set": {"v": -1}, "$unset": {"text": 1}}) for n in range(0, 1_000, 3)])


@pytest.mark.soak
def test_rows_that_are_kept_become_as_at_the_source_and_others_stay(
    standing: ReplicatingCluster, database: str
) -> None:
    _occupy(standing, database)
    feed = standing.create("keep", database, start="initial", on_occupied="keep")
    standing.until(lambda: standing.began(feed), "the beginning: what the source deletes before it is kept")
    kept = standing.target[f"{database}_to"]["rows"]
    with Beside(partial(write, standing.source, database, ["rows"], 2_000)):
        standing.until(lambda: "v_1" in kept.index_information(), "the end of the copy")
    assert kept.delete_one({"_id": "of the target alone"}).deleted_count == 1
    standing.equal(database)
    assert not standing.error(feed)


@pytest.mark.soak
def test_a_table_that_is_dropped_is_copied_into_a_new_one(standing: ReplicatingCluster, database: str) -> None:
    _occupy(standing, database)
    feed = standing.create("drop", database, start="initial", on_occupied="drop")
    standing.equal(database)
    assert not standing.error(feed)


def test_an_occupied_table_is_refused_with_what_can_be_done(standing: ReplicatingCluster, database: str) -> None:
    _occupy(standing, database)
    feed = standing.create("refuse", database, start="initial")
    [straggler] = standing.until(lambda: standing.stragglers(feed), "the refusal").values()
    assert straggler.error is not None
    assert "on_occupied: drop or keep" in straggler.error.message
