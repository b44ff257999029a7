"""Fields that are left out, masked and hashed, in the copy of a table and in every change, over a random history on real servers."""

from __future__ import annotations

import hmac
import os
from random import Random
from typing import Any

import pytest
from pymongo.errors import WriteError

from changefeed.capture import Capture
from tests.component.processor.conftest import ReplicatingCluster

_KEY = "${env:PATH}"
_ROWS = 40
_SECRETS = ("secret-street", "secret-ssn", "secret-mail", "secret-note")
"""Of `items.cost` there is more: an update of `items.0.cost` makes `items` a document with a field `0` where there was no array."""


def _hashed(text: str) -> str:
    raw = text.encode()
    message = b"\x02" + (len(raw) + 1).to_bytes(4, "little") + raw + b"\0"
    return hmac.new(os.environ["PATH"].encode(), message, "sha256").hexdigest()


class Rules:
    """Before 5.0 nested fields are masked and not dropped."""

    def __init__(self, *, nested: bool) -> None:
        inner = ["address.street", "items.cost"]
        self.drop = ["ssn", *inner] if nested else ["ssn"]
        self.mask: dict[str, Any] = {"note": "***", "address.zip": None, **({} if nested else dict.fromkeys(inner, 0))}

    def of(self, database: str) -> list[dict[str, Any]]:
        hashed = {"hash": ["mail", "tags"], "hash_key": _KEY}
        return [{"tables": [f"{database}.users"], "drop": self.drop, "mask": self.mask, **hashed}]

    def shown(self, value: Any, path: str = "") -> Any:
        """What the rules mean, written once more."""
        if isinstance(value, list):
            return [self.shown(each, path) for each in value]
        if path.partition(".")[0] in ("mail", "tags") and isinstance(value, str):
            return _hashed(value)
        if not isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for name, each in value.items():
            below = f"{path}.{name}".removeprefix(".")
            if below not in self.drop:
                found[name] = self.mask[below] if below in self.mask else self.shown(each, below)
        return found


def _row(random: Random, key: object) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "n": random.randrange(9),
        "ssn": {"number": "secret-ssn"},
        "mail": random.choice(["secret-mail", None, ["secret-mail", "x"]]),
        "tags": [random.choice("ab") for _ in range(random.randrange(3))],
        "note": random.choice(["secret-note", {"of": "secret-note"}]),
        "address": random.choice(
            [{"street": "secret-street", "city": "x", "zip": "secret-note"}, "unknown", {"zip": 1}]
        ),
        "items": [{"sku": number, "cost": "secret-cost"} for number in range(random.randrange(4))],
    }
    names = random.sample(sorted(fields), random.randrange(len(fields) + 1))
    return {"_id": key, **{name: fields[name] for name in names}}


def _write(random: Random, rows: Any) -> None:
    key = {"_id": random.randrange(_ROWS)}
    whole = _row(random, key["_id"])
    inner = {
        "address.street": "secret-street",
        "address.zip": "secret-note",
        "address.city": "y",
        "ssn.number": "secret-ssn",
        "note.of": "secret-note",
        "items.0.cost": "secret-cost",
        "items.1": {"cost": "secret-cost", "sku": 7},
        "tags.0": "b",
        "mail": "secret-mail",
        "n": random.randrange(9),
        "new": {"deep": 1},
    }
    set_ = {path: inner[path] for path in random.sample(sorted(inner), 2)}
    try:
        match random.randrange(9):
            case 0:
                rows.delete_one(key)
            case 1:
                rows.replace_one(key, whole, upsert=True)
            case 2:
                rows.update_one(key, {"$unset": dict.fromkeys(set_, "")})
            case 3:
                rows.update_one(
                    key, {"$push": {random.choice(["tags", "items"]): random.choice(["c", {"cost": "secret-cost"}])}}
                )
            case 4:
                rows.update_one(key, {"$pull": {"tags": "a", "items": {"sku": 0}}})
            case 5:
                rows.update_one(key, [{"$set": {"items": {"$slice": ["$items", 1]}, "note": "$mail"}}])
            case 6:
                rows.update_one(key, [{"$set": {"tags": {"$slice": ["$tags", 1]}, "address.street": "secret-street"}}])
            case _:
                rows.update_one(key, {"$set": set_})
    except WriteError:
        return  # it does not fit the row


@pytest.mark.parametrize("capture", [pytest.param(Capture.CHANGE_STREAM, marks=pytest.mark.soak), Capture.OPLOG])
def test_the_target_has_what_the_rules_show_of_each_row(
    standing: ReplicatingCluster, database: str, capture: Capture
) -> None:
    random, rules = Random(7), Rules(nested=standing.source.server_info()["versionArray"] >= [5])
    rows, there = standing.source[database]["users"], standing.target[f"{database}_to"]["users"]
    rows.insert_many([_row(random, number) for number in range(_ROWS)])
    feed = standing.create(f"columns-{capture}", database, capture=capture, start="initial", columns=rules.of(database))
    standing.until(lambda: standing.began(feed), "the beginning")
    for number in range(1_500):
        if number == 300:
            rows.insert_one({"_id": "copied"})
            standing.until(lambda: there.find_one({"_id": "copied"}), "the copy")
        _write(random, rows)
    rows.insert_one({"_id": "last"})
    standing.until(lambda: there.find_one({"_id": "last"}), "the last row")
    standing.passes_now(feed)  # rows of one window come in any order
    expected = {row["_id"]: rules.shown(row) for row in rows.find()}
    found = {row["_id"]: row for row in there.find()}
    assert found == expected
    assert {key: list(row) for key, row in found.items()} == {key: list(row) for key, row in expected.items()}
    said = str(list(standing.target["local"]["oplog.rs"].find({"ns": {"$regex": f"^{database}_to"}})))
    assert not [secret for secret in _SECRETS if secret in said], "also in no passing state"
