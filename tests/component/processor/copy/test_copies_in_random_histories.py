"""Changefeeds begin at random times of random histories, so that every kind of DDL meets every stage of a copy; both sides end equal.

`SLUICE_HISTORIES=50 SLUICE_FIRST_HISTORY=7 python -m pytest -m soak` on this file runs others, and more.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from pymongo.errors import OperationFailure

from devstack.mongodb.server import Client
from tests.component.processor.conftest import ReplicatingCluster

pytestmark = [pytest.mark.soak, pytest.mark.since("6.0")]

_FIRST, _COUNT = int(os.environ.get("SLUICE_FIRST_HISTORY", "0")), int(os.environ.get("SLUICE_HISTORIES", "10"))
_NAMES = ("a", "b", "c", "large", "capped")
_EXPECTED = frozenset({26, 27, 48, 10107, 20, 67, 72, 85, 86, 121, 11000, 11001, 68})
"""No such table or index, there already, a unique value twice, a table that is too large to convert: the history goes on."""


class History:
    """Operations on the tables of one database, and on another database from which and to which tables are renamed."""

    def __init__(self, source: Client, database: str, seed: int) -> None:
        self._source, self._db, self._elsewhere = source, source[database], source[f"{database}_apart"]
        self._random = Random(seed)
        self._count = 0
        self.told: list[str] = []

    def fill(self) -> None:
        for name in ("a", "b", "c"):
            self._db[name].insert_many([{"_id": n, "u": n, "a": n % 7, "text": "x" * 300} for n in range(1_500)])
        self._db["a"].create_index("u", unique=True)
        self._db["b"].create_index("a")
        self._db["large"].insert_many([{"_id": n, "u": n, "bytes": bytes(1_000_000)} for n in range(140)])
        self._db.create_collection("capped", capped=True, size=200_000, max=500)
        self._elsewhere["waiting"].insert_many([{"_id": n, "u": n} for n in range(200)])

    def step(self) -> None:
        operation = self._random.choice((*[History.rows] * 6, *_DDL))
        name = self._random.choice(_NAMES)
        try:
            done = operation(self, name)
        except OperationFailure as error:
            if error.code not in _EXPECTED and "too large" not in str(error):
                raise
            done = f"{operation.__name__} {name}: refused with {error.code}"
        if done:
            self.told.append(done)

    def rows(self, name: str) -> str:
        table, random = self._db[name], self._random
        self._count += 1
        if name == "capped":
            table.insert_many([{"_id": f"{self._count}-{n}", "text": "x" * random.randrange(400)} for n in range(20)])
            return ""
        low = random.randrange(1_500)
        table.update_many({"_id": {"$gte": low, "$lt": low + 30}}, {"$set": {"a": self._count}, "$unset": {"text": ""}})
        table.update_one({"_id": low}, {"$set": {"u": -self._count, "text": "again"}})
        table.delete_many({"_id": {"$gte": low + 40, "$lt": low + 45}})
        table.replace_one({"_id": low + 50}, {"u": 10_000 + self._count, "list": [1, {"x": self._count}]}, upsert=True)
        return ""

    def expire(self, name: str) -> str:
        """Rows that the source's TTL monitor deletes, within a second or two."""
        self._db[name].create_index("ends", name="ends", expireAfterSeconds=1)
        self._count += 1
        now = datetime.now(UTC)
        self._db[name].insert_many(
            [{"_id": f"short {self._count} {n}", "u": f"ends {self._count} {n}", "ends": now} for n in range(20)]
        )
        return f"rows that expire in {name}"

    def measure(self, _: str) -> str:
        """Into a time series, which is created if it is missing, and dropped sometimes."""
        self._count += 1
        if self._random.random() < 0.2:
            self._db["series"].drop()
        if "series" not in self._db.list_collection_names():
            self._db.create_collection("series", timeseries={"timeField": "at", "metaField": "of"})
        begun = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=self._count)
        rows = [{"at": begun + timedelta(seconds=n), "of": n % 3, "v": self._count, f"f{n % 2}": n} for n in range(60)]
        self._db["series"].insert_many(rows)
        if self._random.random() < 0.3:
            self._db["series"].delete_many({"of": 1})
        return ""

    def index_series(self, _: str) -> str:
        self._db["series"].create_index([("of", 1), ("at", self._random.choice((1, -1)))])
        return "createIndexes series"

    def drop(self, name: str) -> str:
        self._db[name].drop()
        return f"drop {name}"

    def recreate(self, name: str) -> str:
        self._db[name].drop()
        self._db[name].insert_many([{"_id": n, "u": n, "again": self._count} for n in range(300)])
        return f"recreate {name}"

    def rename(self, name: str) -> str:
        other = self._random.choice(_NAMES)
        self._db[name].rename(other, dropTarget=self._random.random() < 0.6)
        return f"rename {name} {other}"

    def rename_out(self, name: str) -> str:
        to = f"{self._elsewhere.name}.{name}{self._count}"
        self._source.admin.command("renameCollection", f"{self._db.name}.{name}", to=to)
        return f"rename {name} out of the filter"

    def rename_in(self, name: str) -> str:
        self._elsewhere["waiting"].insert_one({"at": self._count})
        whence, to = f"{self._elsewhere.name}.waiting", f"{self._db.name}.{name}"
        self._source.admin.command("renameCollection", whence, to=to, dropTarget=True)
        return f"rename into the filter as {name}"

    def drop_database(self, _: str) -> str:
        if self._random.random() < 0.7:
            return ""
        self._source.drop_database(self._db.name)
        return "dropDatabase"

    def convert(self, name: str) -> str:
        if name == "large":
            return ""
        self._db.command("convertToCapped", name, size=300_000)
        return f"convertToCapped {name}"

    def modify(self, name: str) -> str:
        self._db.command(
            "collMod", name, validator={"u": {"$exists": self._random.random() < 0.5}}, validationLevel="off"
        )
        return f"collMod {name}"

    def index(self, name: str) -> str:
        unique = self._random.random() < 0.4
        field = "u" if unique else self._random.choice("ab")
        self._db[name].create_index([(field, 1)], unique=unique, name=f"{field}_{unique}", sparse=unique)
        return f"createIndexes {name} {field} {unique}"

    def unindex(self, name: str) -> str:
        self._db[name].drop_indexes()
        return f"dropIndexes {name}"


_DDL: tuple[Callable[[History, str], str], ...] = (
    *(History.expire, History.measure, History.measure, History.index_series),
    *(History.drop, History.recreate, History.rename, History.rename_out, History.rename_in, History.drop_database),
    *(History.convert, History.modify, History.index, History.unindex),
)


@pytest.mark.parametrize("seed", range(_FIRST, _FIRST + _COUNT))
def test_copies_that_begin_in_the_middle_of_a_history_end_in_equality(
    standing: ReplicatingCluster, database: str, seed: int
) -> None:
    random, history = Random(seed), History(standing.source, database, seed)
    standing.source.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
    history.fill()
    stop = threading.Event()
    failures: list[Exception] = []

    def run() -> None:
        while not stop.is_set() and not failures:
            try:
                history.step()
            except Exception as error:  # noqa: BLE001  # told by the test
                failures.append(error)
            time.sleep(random.choice((0, 0.01, 0.1)))

    writer = threading.Thread(target=run)
    writer.start()
    try:
        time.sleep(random.uniform(0, 2))
        feed = standing.create("history", database, start="initial", ddl={"ttl": "copied"})
        standing.until(lambda: standing.began(feed), "the beginning")
        time.sleep(random.uniform(0, 4))
    finally:
        stop.set()
        writer.join()
    assert failures == []
    try:
        standing.equal(database)
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *history.told, str(standing.error(feed))])) from error
    assert not standing.error(feed), history.told
    standing.source.drop_database(f"{database}_apart")
