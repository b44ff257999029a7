"""A document is deleted at the target by hand and updated at the source, and `kill -9` ends the processor between the window and its checkpoint.

The next processor reads the update again, as a replay. It repairs the row, or the changefeed fails and names the key until a user repairs it.
"""

from __future__ import annotations

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId
from source.oplog.window import newest_time
from tests.component.processor.conftest import ReplicatingCluster
from tests.until import PATIENCE_SECONDS

_DEATHS = {"repair": "update", "fail": "divergence"}
"""The failpoint's value: how the window that contains the update ends."""


class Damaged:
    """One row of the target is deleted, and a processor that read its update was killed."""

    def __init__(self, cluster: ReplicatingCluster, database: str, policy: str) -> None:
        self.cluster, self.database, self._policy = cluster, database, policy
        self.source, self.target = cluster.source[database]["a"], cluster.target[f"{database}_to"]["a"]
        self.feed = ChangefeedId("damaged")

    def happen(self, *, before_the_window: bool) -> None:
        cluster = self.cluster
        death = _DEATHS[self._policy] if before_the_window else "update"
        cluster.start_owner("o1")
        dying = cluster.start_processor("p1", ttl=5, failpoints=f"window_ended/{death}=kill")
        cluster.create("damaged", self.database, on_divergence=self._policy)
        cluster.until(lambda: cluster.began(self.feed), "the beginning")
        self.source.insert_many([{"_id": key, "n": 0} for key in ("victim", "other")])
        inserted_ts = newest_time(cluster.source)
        cluster.until(lambda: self._passed(inserted_ts), "a checkpoint behind the inserts, which a replay would repeat")
        if before_the_window:
            self.target.delete_one({"_id": "victim"})
        self.source.update_one({"_id": "victim"}, {"$set": {"n": 1}})
        dying.wait(PATIENCE_SECONDS)
        self.target.delete_one({"_id": "victim"})
        cluster.start_processor("p2", ttl=5)

    def _passed(self, time: ClusterTime) -> bool:
        status = self.cluster.status(self.feed)
        return status is not None and status.checkpoint is not None and status.checkpoint.ts > time

    def fails(self) -> None:
        """Checks that the changefeed fails and does not change the row."""
        self.cluster.until(lambda: self.cluster.state(self.feed) is State.FAILED, "the failure")
        assert self.cluster.error(self.feed).startswith("divergence")
        assert "'_id': 'victim'" in self.cluster.error(self.feed)
        assert self.target.find_one({"_id": "victim"}) is None

    def resume(self) -> None:
        self.cluster.change(self.feed)
        self.cluster.until(lambda: self.cluster.obeyed(self.feed), "the resumption")

    def equal(self) -> None:
        self.cluster.equal(self.database)
        self.cluster.until(lambda: self.cluster.state(self.feed) is State.NORMAL, "a changefeed that is well")


_EITHER = pytest.mark.parametrize(
    "before_the_window",
    [
        pytest.param(True, id="deleted before the window"),
        pytest.param(False, id="deleted after it"),
    ],
)


@pytest.mark.soak
@_EITHER
def test_it_is_repaired(cluster: ReplicatingCluster, database: str, before_the_window: bool) -> None:
    damaged = Damaged(cluster, database, "repair")
    damaged.happen(before_the_window=before_the_window)
    damaged.equal()
    assert damaged.target.find_one({"_id": "victim"}) == {"_id": "victim", "n": 1}


@pytest.mark.soak
@_EITHER
def test_it_fails_again_and_again_until_it_is_mended(
    cluster: ReplicatingCluster, database: str, before_the_window: bool
) -> None:
    damaged = Damaged(cluster, database, "fail")
    damaged.happen(before_the_window=before_the_window)
    damaged.fails()
    damaged.resume()
    damaged.fails()
    damaged.target.insert_one({"_id": "victim", "n": 1})
    damaged.resume()
    damaged.equal()
