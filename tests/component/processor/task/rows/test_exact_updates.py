"""Updates arrive byte for byte as at the source: names with dots, dollars and digits, moved fields, truncated arrays."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import UpdateOne

from changefeed.position import Window
from source.connection import Client
from tests.component.processor.windowing import Windowing

_NAMES = ["a", "b", "c", "0", "1", "a.b", ".", "$x", "$", "", "a.0", "é"]
_OLD_NAMES = ["a", "b", "c", "0", "1", "é"]
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)


@pytest.fixture
def windowing(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client, database: str
) -> Iterator[Callable[[], Windowing]]:
    for client, name in ((source_client, database), (target_client, f"{database}_to")):
        client[name].create_collection("rows")
    yield lambda: Windowing(etcd_endpoint, source_uri, target_uri, source_client, target_client, database)
    target_client.drop_database(f"{database}_to")


def some_value(random_: random.Random, names: list[str], depth: int) -> object:
    kind = random_.randrange(7 if depth < 3 else 4)
    if kind == 4:
        return [some_value(random_, names, depth + 1) for _ in range(random_.randrange(5))]
    if kind >= 5:
        return some_document(random_, names, depth + 1)
    return random_.choice([random_.randrange(5), "text " * random_.randrange(9), 1.5, None])


def some_document(random_: random.Random, names: list[str], depth: int = 0) -> dict[str, object]:
    chosen = random_.sample(names, random_.randrange(min(len(names), 6)))
    return {name: some_value(random_, names, depth) for name in chosen}


def changed(random_: random.Random, names: list[str], value: Any, depth: int = 0) -> Any:
    """Changes a value slightly, so that the server logs a difference instead of the whole."""
    if isinstance(value, dict) and value:
        fields = list(value.items())
        if random_.random() < 0.2:
            random_.shuffle(fields)
        fields = [
            (name, changed(random_, names, inner, depth + 1) if random_.random() < 0.4 else inner)
            for name, inner in fields
            if random_.random() < 0.9
        ]
        return dict(fields) | (some_document(random_, names, 3) if random_.random() < 0.3 else {})
    if isinstance(value, list) and value:
        inner = [changed(random_, names, each, depth + 1) if random_.random() < 0.3 else each for each in value]
        return inner[: random_.randrange(len(inner) + 1)] if random_.random() < 0.3 else [*inner, 7]
    return some_value(random_, names, 2)


@pytest.mark.parametrize("seed", [0, 9])
def test_documents_arrive_as_they_are(windowing: Callable[[], Windowing], seed: int) -> None:
    made, random_ = windowing(), random.Random(seed)
    rows = made.source[made.database]["rows"]
    modern = tuple(made.source.server_info()["versionArray"][:2]) >= (5, 0)
    names = _NAMES if modern else _OLD_NAMES
    filler = {"filler": "x" * 400}
    documents = {number: {"_id": number, **filler, **some_document(random_, names)} for number in range(150)}
    rows.insert_many(list(documents.values()))
    for _ in range(4):
        updates = []
        for number, document in documents.items():
            content = {name: value for name, value in document.items() if name not in ("_id", "filler")}
            after = changed(random_, names, content) if content else some_document(random_, names)
            documents[number] = {"_id": number, **filler, **after}
            updates.append(UpdateOne({"_id": number}, [{"$replaceWith": {"$literal": documents[number]}}]))
        rows.bulk_write(updates)
    outcome = made.run(Window(made.start, made.now()), replay_until=made.start)
    assert outcome.rows.tally.repaired == outcome.rows.tally.rejected == outcome.rows.tally.skipped == 0
    arrived = made.target[f"{made.database}_to"].get_collection("rows", codec_options=_RAW)
    sent = made.source[made.database].get_collection("rows", codec_options=_RAW)
    assert _rows(arrived) == _rows(sent)


def _rows(collection: Any) -> list[bytes]:
    return [row.raw for row in collection.find().sort("_id")]


def test_operations_that_a_user_applies_arrive_as_they_took_effect(windowing: Callable[[], Windowing]) -> None:
    """`applyOps`: an update creates a missing document unless the command says otherwise."""
    made = windowing()
    rows, name = made.source[made.database]["rows"], f"{made.database}.rows"
    modern = tuple(made.source.server_info()["versionArray"][:2]) >= (5, 0)
    change = {"$v": 2, "diff": {"u": {"a": 2}}} if modern else {"$set": {"a": 2}}
    rows.insert_many([{"_id": number, "a": 1} for number in range(4)])
    made.source.admin.command(
        {
            "applyOps": [
                {"op": "i", "ns": name, "o": {"_id": "new", "a": 1}},
                {"op": "u", "ns": name, "o2": {"_id": 0}, "o": change},
                {"op": "u", "ns": name, "o2": {"_id": "missing"}, "o": change},
                {"op": "i", "ns": name, "o": {"_id": 1, "replaced": True}},
                {"op": "d", "ns": name, "o": {"_id": 2}},
                {
                    "op": "c",
                    "ns": f"{made.database}.$cmd",
                    "o": {"applyOps": [{"op": "i", "ns": name, "o": {"_id": "nested"}}]},
                },
            ]
        }
    )
    outcome = made.run(Window(made.start, made.now()), replay_until=made.start)
    assert outcome.rows.tally.repaired == outcome.rows.tally.rejected == 0
    arrived = made.target[f"{made.database}_to"]["rows"]
    assert list(arrived.find().sort("_id")) == list(rows.find().sort("_id"))


@pytest.mark.parametrize("replayed", [False, True])
def test_damage_is_found_by_an_update_that_adds_a_field_beside_it(
    windowing: Callable[[], Windowing], *, replayed: bool
) -> None:
    made = windowing()
    rows, arrived = made.source[made.database]["rows"], made.target[f"{made.database}_to"]["rows"]
    rows.insert_one({"_id": 1, "a": [1, {"b": 2}], "f": {}})
    first = made.now()
    made.run(Window(made.start, first), replay_until=made.start)
    arrived.update_one({"_id": 1}, {"$set": {"a": "damaged"}})
    rows.update_one({"_id": 1}, {"$set": {"touched": 1, "a.0": "touched"}})
    end = made.now()
    outcome = made.attempt_at(Window(first, end), replay_until=end if replayed else first)
    assert (outcome.error, outcome.rows.tally.repaired) == (None, 1)
    assert list(arrived.find()) == list(rows.find())
