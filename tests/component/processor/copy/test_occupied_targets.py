"""What `on_occupied` makes of tables that the target has before their initial copy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

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
@pytest.mark.parametrize("how", ["kept", "joined"])
def test_what_a_killed_copy_left_of_a_deleted_document_goes_though_a_ddl_comes_between(
    cluster: ReplicatingCluster, database: str, tmp_path: Path, how: str
) -> None:
    """Nothing can be cleared there: the target's table has rows of others."""
    source, target = cluster.source[database], cluster.target[f"{database}_to"]
    source["rows"].insert_many([{"_id": n, "v": n} for n in range(100)])
    if how == "kept":
        target["rows"].insert_many([{"_id": "kept"}, {"_id": 7, "v": -7}])
        options: dict[str, Any] = {"on_occupied": "keep"}
    else:
        source["more"].insert_one({"_id": "kept"})
        options = {"routes": [{"from": f"{database}.*", "to": f"{database}_to.rows"}]}
    hold = tmp_path / "chunk_loaded" / database
    hold.parent.mkdir()
    hold.touch()
    cluster.start_owner("o1")
    process = cluster.start_processor("p1", failpoints=f"chunk_loaded=hold:{tmp_path}")
    feed = cluster.create(how, database, start="initial", **options)
    cluster.until(hold.with_name(f"{database}.reached").exists, "a chunk that is loaded and not recorded")
    cluster.until(lambda: target["rows"].count_documents({"_id": {"$type": "number"}}) == 100, "the rows of the chunk")
    process.kill()
    process.wait()
    cluster.revoke_lease("p1")
    hold.unlink()
    source["rows"].delete_many({"_id": {"$in": [5, 7, 9]}})
    source["rows"].insert_one({"_id": 9, "again": True})
    source.command("collMod", "rows", validator={"v": {"$gte": 0}}, validationAction="warn")
    source["rows"].update_one({"_id": 8}, {"$set": {"later": True}})
    cluster.until(lambda: cluster.ddls(feed), "the DDL")
    cluster.start_processor("p2")

    def expected() -> bool:
        rows = {row["_id"]: row for row in target["rows"].find()}
        return rows == {row["_id"]: row for row in [{"_id": "kept"}, *source["rows"].find()]}

    cluster.until(lambda: cluster.settled(feed, 1), "the DDL is done")
    cluster.passes_now(feed)
    assert expected(), [*target["rows"].find({"_id": {"$in": [5, 7, 8, 9]}})]
    assert not cluster.error(feed)


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
