"""Operations of all kinds on the tables of a database, the same for the same seed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any, Self

from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne

from changefeed.lifecycle import ErrorReport
from devstack.mongodb.server import Client
from tests.component.processor.conftest import ReplicatingCluster

Operation = InsertOne[Any] | UpdateOne | ReplaceOne[Any] | DeleteOne
_KEYS = 400
_BATCH = 250
_SLOWEST = 100
"""Operations a second on a busy machine."""

_ALIKE = 50
"""The driver sends successive operations of one kind as one command."""


class MixedOperations:
    """Uses few keys, so that operations on one document follow each other closely."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._count = 0

    def batch(self) -> list[Operation]:
        kinds = [self._random.randrange(10) for _ in range(_BATCH // _ALIKE)]
        return [self._operation(kind) for kind in kinds for _ in range(_ALIKE)]

    def _operation(self, kind: int) -> Operation:
        random = self._random
        self._count += 1
        key = {"_id": random.randrange(_KEYS)}
        change: dict[str, Any]
        match kind:
            case 0 | 1:
                return DeleteOne(key)
            case 2 | 3:
                return ReplaceOne(key, {"replaced": self._count, "list": [1, 2, 3], "nested": {"0": 1}}, upsert=True)
            case 4:
                return InsertOne({"_id": f"{self._seed}-{self._count}", "text": "x" * random.randrange(300)})
            case 5:
                change = {"$unset": {"a": "", "replaced": ""}, "$inc": {"c": 1}}
            case 6:
                change = {"$push": {"pushed": {"$each": [self._count], "$slice": -3}}}
            case 7:
                change = {"$set": {"nested.0": self._count, "nested.deep.er": [self._count]}}
            case _:
                change = {"$set": {"a": self._count, "b": {"n": random.random()}}}
        return UpdateOne(key, change, upsert=kind != 5)


def write(client: Client, database: str, tables: list[str], operations: int, seed: int = 1) -> None:
    """Writes batch by batch to the tables in turn."""
    mixed = MixedOperations(seed)
    for number in range(operations // _BATCH):
        client[database][tables[number % len(tables)]].bulk_write(mixed.batch(), ordered=True)


def many_operations(cluster: ReplicatingCluster, database: str, *, tables: int, operations: int) -> ErrorReport | None:
    """Writes in three parts with DDL of all kinds between them, and waits until both sides are equal. Returns the changefeed's error, if any."""
    source = cluster.source[database]
    names = [f"t{number}" for number in range(tables)]
    feed = cluster.create(f"mixed-{operations}", database)
    cluster.until(lambda: cluster.began(feed), "the beginning")
    for name in names:
        source.create_collection(name)
    source["t7"].create_index("u", unique=True, sparse=True)
    write(cluster.source, database, names, operations * 3 // 10, seed=1)
    source["t1"].create_index("a")
    source["t2"].rename("t2new")
    names[2] = "t2new"
    write(cluster.source, database, names, operations * 3 // 10, seed=2)
    source["t3"].drop()
    source["t4"].rename("t5", dropTarget=True)
    names.remove("t4")
    source.create_collection("t3")
    write(cluster.source, database, names, operations * 4 // 10, seed=3)
    cluster.equal(database, within=150 + operations / _SLOWEST)
    status = cluster.status(feed)
    assert status is not None
    return status.lifecycle.error


class Beside:
    """Runs a function in a thread during the block, and raises its error at the end."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error
