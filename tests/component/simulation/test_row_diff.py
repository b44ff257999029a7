"""What an update changes inside documents and arrays: the diff in the oplog and the description in a change stream, of the model and of a real server."""

from __future__ import annotations

from typing import Any

import pytest

from devstack.mongodb.server import Client
from tests.simulation.source.row_diff import described, row_diff

_LARGE = {"pad": "x" * 1000}
"""A small document is logged whole."""
_BEFORE = {"x": 1, "y": 2, "l": [{"z": 1}, {"z": 2}, 3], "deep": {"in": {"a": 1, "b": "y" * 100}}}


@pytest.mark.parametrize(
    "changed",
    [
        {"x": 5},
        {"w": 5},
        {"y": None, "w": [1, {"q": 2}]},
        {"l": [{"z": 1}, {"z": 7, "pad": 1}, 3]},
        {"l": [{"z": 1}]},
        {"l": [{"z": 9}, {"z": 2}, 3, 4, {"z": 5}]},
        {"l": []},
        {"l": {"no": "array"}},
        {"deep": {"in": {"a": 2, "b": "y" * 100}, "more": 1}},
    ],
)
@pytest.mark.since("6.0")
def test_an_update_inside_a_document_is_described_as_by_a_server(
    source_client: Client, database: str, changed: dict[str, Any]
) -> None:
    collection = source_client[database]["t"]
    before: dict[str, Any] = {"_id": 1, "n": {**_LARGE, **_BEFORE}, "f": 1}
    after: dict[str, Any] = {"_id": 1, "n": {**_LARGE, **_BEFORE, **changed}, "f": 2}
    after["n"] = {name: value for name, value in after["n"].items() if value is not None}
    collection.insert_one(before)
    with collection.watch() as stream:
        collection.update_one({"_id": 1}, [{"$replaceWith": {"$literal": after}}])
        shown = next(stream)["updateDescription"]
    [entry] = source_client["local"]["oplog.rs"].find({"ns": f"{database}.t", "op": "u"})
    diff = row_diff(before, after)
    assert entry["o"] == {"$v": 2, "diff": diff}
    assert [*entry["o"]["diff"]] == [*diff]
    found = described(diff)
    assert {name: shown[name] for name in found} == found
