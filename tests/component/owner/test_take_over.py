"""Owners that die, freeze, resign: what the next one finds, and what the last one may still do."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from changefeed.records.ddl import DdlState
from tests.component.owner.conftest import Cluster


def _hold(place: Path) -> Path:
    place.parent.mkdir()
    place.touch()
    return place


def test_a_killed_owner_is_followed_when_its_lease_is_over(cluster: Cluster, database: str) -> None:
    ttl = 3.0
    cluster.start_owner("o1", ttl=ttl)
    cluster.stand()
    cluster.start_owner("o2", ttl=ttl)
    cluster.stand()
    feed = cluster.create("f", database)
    with cluster.processor():
        cluster.until(lambda: cluster.began(feed))
        cluster.owners["o1"].kill()
        killed_at = time.monotonic()
        cluster.source[database].create_collection("orders")
        cluster.until(lambda: cluster.owner() == "o2")
        print(f"take-over after {time.monotonic() - killed_at:.2f} s with a lease of {ttl:g} s")  # noqa: T201  # a measurement
        cluster.until(lambda: cluster.settled(feed, 1))
    assert cluster.target[f"{database}_to"].list_collection_names() == ["orders"]


def test_an_owner_asked_to_end_makes_way_at_once(cluster: Cluster, database: str) -> None:
    """Leases last a minute, so only a resignation can be this quick."""
    cluster.start_owner("o1", ttl=60.0)
    cluster.stand()
    cluster.start_owner("o2", ttl=60.0)
    cluster.stand()
    feed = cluster.create("f", database)
    with cluster.processor():
        cluster.until(lambda: cluster.began(feed))
        cluster.owners["o1"].send_signal(signal.SIGTERM)
        cluster.source[database].create_collection("orders")
        cluster.until(lambda: cluster.owner() == "o2")
        cluster.until(lambda: cluster.settled(feed, 1))
    assert cluster.died("o1") == 0


def test_an_owner_asked_through_etcd_resigns_and_ends_its_term(cluster: Cluster) -> None:
    cluster.start_owner("o1", ttl=60.0)
    cluster.stand()
    cluster.start_owner("o2", ttl=60.0)
    cluster.stand()
    cluster.ask_to_resign()
    cluster.until(lambda: cluster.owner() == "o2")
    assert cluster.owners["o1"].poll() is None


def test_an_owner_ends_though_a_ddl_of_its_own_is_still_under_way(
    cluster: Cluster, database: str, tmp_path: Path
) -> None:
    hold = _hold(tmp_path / "ddl_applied" / "create")
    cluster.start_owner("o1", ttl=60.0, failpoints=f"ddl_applied=hold:{tmp_path}")
    cluster.stand()
    feed = cluster.create("f", database)
    with cluster.processor():
        cluster.until(lambda: cluster.began(feed))
        cluster.source[database].create_collection("orders")
        cluster.until(Path(f"{hold}.reached").exists)
        cluster.owners["o1"].send_signal(signal.SIGTERM)
        assert cluster.died("o1") == 0
        cluster.start_owner("o2")
        cluster.until(lambda: cluster.settled(feed, 1))
    assert cluster.ddls(feed)[0].note == "it was done already"


def test_a_frozen_owner_that_wakes_up_writes_nothing_and_sends_nothing(
    cluster: Cluster, database: str, tmp_path: Path
) -> None:
    """It is frozen between the record of a DDL as executing and its command. It resumes after the other owner has done that DDL and the next."""
    hold = _hold(tmp_path / "ddl_executing_recorded" / "drop")
    source, target = cluster.source[database], cluster.target[f"{database}_to"]
    cluster.start_owner("o1", ttl=2.0, failpoints=f"ddl_executing_recorded=hold:{tmp_path}")
    cluster.stand()
    cluster.start_owner("o2")
    cluster.stand()
    feed = cluster.create("f", database)
    with cluster.processor():
        cluster.until(lambda: cluster.began(feed))
        source.create_collection("orders")
        cluster.until(lambda: cluster.settled(feed, 1))
        epoch = cluster.epoch()
        source["orders"].drop()
        cluster.until(Path(f"{hold}.reached").exists)
        cluster.until(lambda: cluster.ddls(feed)[-1].state is DdlState.EXECUTING)
        cluster.owners["o1"].send_signal(signal.SIGSTOP)
        cluster.until(lambda: cluster.owner() == "o2")
        cluster.until(lambda: cluster.settled(feed, 2))
        source.create_collection("orders")
        cluster.until(lambda: cluster.settled(feed, 3))
        hold.unlink()
        cluster.owners["o1"].send_signal(signal.SIGCONT)
        assert cluster.died("o1") == 0
    assert target.list_collection_names() == ["orders"]
    drops = {"op": "c", "o.drop": "orders", "ns": f"{database}_to.$cmd"}
    assert cluster.target["local"]["oplog.rs"].count_documents(drops) == 1
    barrier = cluster.barrier(feed)
    assert barrier is not None
    assert barrier.epoch > epoch


def test_a_slow_ddl_holds_its_table_and_nothing_else(cluster: Cluster, database: str, tmp_path: Path) -> None:
    hold = _hold(tmp_path / "ddl_applied" / "createIndexes")
    source, target = cluster.source[database], cluster.target[f"{database}_to"]
    cluster.start_owner("o1", failpoints=f"ddl_applied=hold:{tmp_path}")
    feed = cluster.create("f", database)
    with cluster.processor() as processor:
        cluster.until(lambda: cluster.began(feed))
        source.create_collection("slow")
        source.create_collection("fast")
        cluster.until(lambda: cluster.settled(feed, 2) and len(cluster.assigned(feed)) == 2)
        source["slow"].create_index("code", unique=True)
        cluster.until(Path(f"{hold}.reached").exists)
        [held] = cluster.until(lambda: cluster.held(feed))
        place = cluster.held(feed)[held]
        others = [cluster.next_barrier(feed).position for _ in range(3)]
        assert place < others[0] < others[1] < others[2]
        source.create_collection("new")
        source["fast"].rename("faster")
        cluster.until(lambda: sorted(target.list_collection_names()) == ["faster", "new", "slow"])
        cluster.until(lambda: cluster.held(feed) == {held: place}, "only the slow DDL is left")
        cluster.until(lambda: len(processor.places(feed)) == 3, "the new table")
        places = processor.places(feed)
        assert places.pop(held) == place
        assert all(other > place for other in places.values())
        hold.unlink()
        cluster.until(lambda: cluster.settled(feed, 5) and not cluster.held(feed))
