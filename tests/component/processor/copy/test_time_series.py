"""A time series is copied and followed by its buckets: both sides have the same documents in them, byte by byte."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import pytest
from pymongo.database import Database

from devstack.mongodb.server import Client
from tests.component.processor.conftest import ReplicatingCluster
from tests.component.processor.workload import Beside
from tests.independent_compare import documents

pytestmark = pytest.mark.since("5.0")

_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_DELETES_SINCE = (6, 0)


class Station:
    """Measures into the time series of one database. Old measurements, other types and many of them end buckets, which compresses them."""

    def __init__(self, source: Client, database: str, seed: int) -> None:
        self.db: Database[dict[str, Any]] = source[database]
        self._random = Random(seed)
        self._seconds = 0
        self.deletes = tuple(source.server_info()["versionArray"][:2]) >= _DELETES_SINCE

    def create(self, name: str, **options: Any) -> None:
        self.db.create_collection(name, timeseries={"timeField": "at", "metaField": "sensor"} | options)

    def measure(self, name: str, rounds: int) -> None:
        for _ in range(rounds):
            self._seconds += self._random.choice((1, 60, 3_000))
            at = self._seconds if self._random.random() < 0.8 else self._random.randrange(self._seconds)
            sensor = {"id": self._random.randrange(4)}
            many = self._random.choice((1, 1, 1, 40, 1_200))
            value = self._random.choice((1, 2.5, "three", None, {"x": 4, "0": [5]}))
            rows = [
                {"at": _DAY + timedelta(seconds=at + n), "sensor": sensor, "v": value, f"f{n % 3}": n}
                for n in range(many)
            ]
            self.db[name].insert_many(rows)

    def change_sensors(self, name: str) -> None:
        """Deletes and updates by the meta field, which are those of whole buckets."""
        if self.deletes:
            self.db[name].update_many({"sensor.id": 1}, {"$set": {"sensor.place": "roof"}})
            self.db[name].delete_many({"sensor.id": 2})

    def change_definition(self, name: str) -> None:
        table = self.db[name]
        table.create_index([("sensor.id", 1), ("at", -1)])
        table.create_index([("at", 1)], name="by time")
        table.create_index([("sensor", 1)])
        if self.deletes:
            table.create_index([("v", -1)])
            table.create_index([("v", 1)], name="some", partialFilterExpression={"sensor.id": 3})
        table.drop_index("by time")
        self.db.command("collMod", name, index={"name": "sensor_1", "hidden": True})
        self.db.command("collMod", name, timeseries={"granularity": "minutes"})
        self.db.command("collMod", name, expireAfterSeconds=10**9)
        self.db.command("collMod", name, expireAfterSeconds="off")


def _history(station: Station) -> None:
    """Of `kept` since before, of `again`, which is dropped and created anew, and of `new`."""
    station.measure("kept", 12)
    station.change_definition("kept")
    station.change_sensors("kept")
    station.measure("kept", 12)
    station.db["again"].drop()
    station.create("again", granularity="hours")
    station.measure("again", 10)
    station.create("new")
    station.change_definition("new")
    station.measure("new", 20)
    station.change_sensors("new")
    station.db["gone"].drop()


def test_a_time_series_is_equal_after_its_copy_and_all_that_happens_meanwhile(
    standing: ReplicatingCluster, database: str
) -> None:
    station = Station(standing.source, database, seed=1)
    for name in ("kept", "again", "gone"):
        station.create(name)
        station.measure(name, 15)
    station.db["kept"].create_index([("sensor.id", 1)])
    with Beside(partial(_history, station)):
        feed = standing.create("series", database, start="initial")
        standing.until(lambda: standing.began(feed), "the beginning")
    standing.equal(database)
    station.measure("kept", 10)
    station.measure("new", 10)
    standing.equal(database)
    assert not standing.error(feed)
    assert documents(standing.target, f"{database}_to", "kept")
    measured = [client[name]["kept"].count_documents({}) for client, name in _both(standing, database)]
    assert measured[0] == measured[1] > 1_000
    standing.source.drop_database(database)
    standing.until(
        lambda: standing.target[f"{database}_to"].list_collection_names() in ([], ["system.views"]), "the drop"
    )


def _both(cluster: ReplicatingCluster, database: str) -> list[tuple[Client, str]]:
    return [(cluster.source, database), (cluster.target, f"{database}_to")]


def test_a_window_of_measurements_that_is_replayed_ends_in_equality(cluster: ReplicatingCluster, database: str) -> None:
    """Updates of buckets meet what later ones have made of them: compressed and deleted buckets."""
    cluster.start_owner("o1")
    station = Station(cluster.source, database, seed=2)
    feed = cluster.create("replayed", database)
    ended_by = "delete" if station.deletes else "update"
    dying = cluster.start_processor("p1", ttl=5, failpoints=f"window_ended/{ended_by}=kill")
    cluster.until(lambda: cluster.began(feed), "the beginning")
    station.create("w")
    station.measure("w", 60)
    station.change_sensors("w")
    station.measure("w", 30)
    cluster.until(lambda: dying.poll() is not None, "the end of the processor")
    station.measure("w", 30)
    cluster.start_processor("p2", ttl=5)
    cluster.equal(database)
    assert not cluster.error(feed)


def test_a_bucket_that_somebody_deleted_at_the_target_is_repaired_from_the_source(
    standing: ReplicatingCluster, database: str
) -> None:
    station = Station(standing.source, database, seed=3)
    feed = standing.create("repaired-series", database, on_divergence="repair")
    standing.until(lambda: standing.began(feed), "the beginning")
    station.create("w")
    station.db["w"].insert_one({"at": _DAY, "sensor": 1, "v": 1})
    standing.equal(database)
    standing.target[f"{database}_to"]["system.buckets.w"].delete_many({})
    station.db["w"].insert_one({"at": _DAY + timedelta(seconds=1), "sensor": 1, "v": 2})
    standing.equal(database)


def test_a_time_series_that_cannot_be_followed_stops_alone_with_the_reason(
    standing: ReplicatingCluster, database: str, fresh_database: Callable[[], str]
) -> None:
    masked = fresh_database()
    columns = [{"tables": [f"{masked}.*"], "drop": ["secret"]}]
    feed = standing.create("masked", masked, columns=columns)
    standing.until(lambda: standing.began(feed), "the beginning")
    standing.source[masked].create_collection("w", timeseries={"timeField": "at"})
    standing.source[masked]["w"].insert_one({"at": _DAY, "secret": 1})
    standing.source[masked]["beside"].insert_one({"_id": 1, "secret": 1})
    standing.until(
        lambda: standing.target[f"{masked}_to"]["beside"].find_one({"_id": 1}) == {"_id": 1}, "the other table"
    )
    assert "take it out of `columns`" in standing.until(lambda: standing.refusal(feed), "the refusal")
    assert "w" not in standing.target[f"{masked}_to"].list_collection_names()
