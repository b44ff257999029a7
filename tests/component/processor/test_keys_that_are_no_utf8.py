"""Servers take keys with a text that is no UTF-8. Their rows are copied and followed like others."""

from __future__ import annotations

from typing import Any

from tests.component.processor.conftest import ReplicatingCluster
from tests.component.source.odd_texts import no_utf8
from tests.independent_compare import documents


def _keys(number: int) -> list[dict[str, Any]]:
    return [{"_id": f"caf? {number}"}, {"_id": {"a": f"?{number}", "n": 1.5}}, {"_id": {f"?{number}": [2]}}]


def test_rows_whose_keys_are_no_utf8_are_copied_and_followed(standing: ReplicatingCluster, database: str) -> None:
    source = standing.source[database]
    for table in ("rows", "unique"):
        for number in range(9):
            source[table].insert_many(
                no_utf8({**key, "x": f"{number} {at}", "y": 1}) for at, key in enumerate(_keys(number))
            )
    source["unique"].create_index("x", unique=True)
    standing.create(f"keys-{database}", database, start="initial")
    standing.until(lambda: not standing.differences(database), "the copies")

    changes: list[Any] = [
        {"$set": {"y": 2}},
        {"$unset": {"y": ""}, "$set": {"z": 1, "b": 2}},
        [{"$set": {"deep": {"a": 1}, "y": 3}}],
        {"x": ["whole"]},
    ]
    for number, change in enumerate(changes):
        updates = [no_utf8({"q": key, "u": change}) for key in _keys(number)]
        source.command({"update": "rows", "updates": updates})
        source.command({"update": "unique", "updates": updates[:1]})
    deletes = [no_utf8({"q": key, "limit": 1}) for number in (7, 8) for key in _keys(number)]
    for table in ("rows", "unique"):
        source.command({"delete": table, "deletes": deletes})
        source[table].insert_many(no_utf8({**key, "x": f"7 {at}"}) for at, key in enumerate(_keys(8)))
    standing.equal(database)
    assert len(documents(standing.target, f"{database}_to", "rows")) == 8 * 3
