"""Tables whose rows depend on each other, written by kinds: unique indexes and capped collections of real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne
from pymongo.errors import BulkWriteError

from changefeed.position import Window
from sink.mongodb.rows.waiting import WaitingRows
from sink.row import RowChange
from source.connection import Client
from tests.component.processor.windowing import Windowing

_INDEXES: list[dict[str, Any]] = [
    {"key": {"mail": 1}, "name": "mail", "unique": True, "sparse": True},
    {"key": {"home.street": 1, "home.number": -1}, "name": "home", "unique": True},
    {"key": {"codes.of": 1}, "name": "codes", "unique": True, "sparse": True},
    {
        "key": {"seat": 1},
        "name": "seat",
        "unique": True,
        "partialFilterExpression": {"state": "sits"},
    },
]

Create = Callable[..., Windowing]


@pytest.fixture
def create(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client, database: str
) -> Iterator[Create]:
    def created(*indexes: dict[str, Any], **options: Any) -> Windowing:
        for client, name in ((source_client, database), (target_client, f"{database}_to")):
            client[name].create_collection("rows", **options)
            if indexes:
                client[name].command({"createIndexes": "rows", "indexes": indexes})
        return Windowing(etcd_endpoint, source_uri, target_uri, source_client, target_client, database)

    yield created
    target_client.drop_database(f"{database}_to")


def _sides(made: Windowing) -> tuple[Any, Any]:
    return made.source[made.database]["rows"], made.target[f"{made.database}_to"]["rows"]


@pytest.mark.since("6.0")  # which lets users delete in a capped collection
def test_a_capped_collection_keeps_what_the_source_keeps_in_its_order(create: Create) -> None:
    made = create(capped=True, size=4096, max=3)
    rows, arrived = _sides(made)
    rows.insert_many([{"_id": key} for key in (1, 2, 3)])
    first = made.now()
    made.run(Window(made.start, first), replay_until=made.start)
    rows.delete_one({"_id": 2})
    rows.insert_one({"_id": 4})
    second = made.now()
    outcome = made.run(Window(first, second), replay_until=first)
    assert [row["_id"] for row in rows.find()] == [1, 3, 4]
    assert (list(arrived.find()), outcome.rows.tally.repaired) == (list(rows.find()), 0)
    rows.delete_one({"_id": 3})
    rows.insert_many([{"_id": key} for key in range(5, 20)])
    rows.update_one({"_id": 18}, {"$set": {"n": 1}})
    made.run(Window(second, made.now()), replay_until=second)
    assert [row["_id"] for row in rows.find()] == [17, 18, 19]
    assert list(arrived.find()) == list(rows.find())


@pytest.mark.parametrize("seed", range(3))
def test_values_of_unique_indexes_change_hands(create: Create, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """No statement meets a value that another row still has."""
    made, random = create(*_INDEXES), Random(seed)
    rows, arrived = _sides(made)
    refused: list[RowChange] = []
    monkeypatch.setattr(WaitingRows, "begin", lambda self, change, refusal, *, replay: refused.append(change))
    began = made.start
    for _ in range(3):
        for _ in range(300):
            with suppress(BulkWriteError):
                rows.bulk_write([_operation(random)])
        end = made.now()
        outcome = made.run(Window(began, end), replay_until=made.start)
        began = end
        assert (refused, outcome.rows.tally.repaired, outcome.rows.tally.rejected) == ([], 0, 0)
        assert list(arrived.find().sort("_id")) == list(rows.find().sort("_id"))
    assert rows.count_documents({}) > 5


def _operation(random: Random) -> InsertOne[Any] | UpdateOne | ReplaceOne[Any] | DeleteOne:
    """The source refuses about half of those that take a value."""
    key, value = random.randrange(20), random.randrange(25)
    whole = {"_id": key, "n": random.random(), "home": {"street": value % 5, "number": value}, "mail": value}
    whole |= {"codes": [{"of": value}, {"of": -value}], "seat": value % 7, "state": random.choice(["sits", "stands"])}
    changes: list[Any] = [
        {"$set": {"n": random.random()}},
        {"$set": {"mail": value}},
        {"$unset": {"mail": ""}},
        {"$set": {"home.number": value}},
        {"$set": {"codes.0.of": value}},
        {"$push": {"codes": {"of": value + 100}}},
        {"$pop": {"codes": 1}},
        {"$set": {"state": random.choice(["sits", "stands"])}},
        {"$set": {"seat": value % 7, f"new{value}": 1}},
        [{"$set": {"seat": value % 7, "codes": {"$slice": ["$codes", 1]}}}],
    ]
    kinds: list[InsertOne[Any] | UpdateOne | ReplaceOne[Any] | DeleteOne] = [
        InsertOne(whole),
        DeleteOne({"_id": key}),
        ReplaceOne({"_id": key}, whole),
        *[UpdateOne({"_id": key}, random.choice(changes))] * 4,
    ]
    return random.choice(kinds)
