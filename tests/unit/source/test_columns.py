"""Documents and updates without the fields that do not go to the target."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.documents.row_key import canonical
from source.columns import Columns

KEY = b"a key"
NAMES = ("a", "b", "c")
PATHS = list(NAMES) + [f"{one}.{other}" for one in NAMES for other in NAMES] + ["a.b.c", "b.a.a"]


def made(drop: tuple[str, ...] = (), mask: Mapping[str, object] | None = None, hash: tuple[str, ...] = ()) -> Columns:
    columns = Columns()
    for path in drop:
        columns.drop(path)
    for path, constant in (mask or {}).items():
        columns.mask(path, constant)
    for path in hash:
        columns.hash(path, KEY)
    return columns


def hashed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: hashed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [hashed(each) for each in value]
    if value is None:
        return None
    if isinstance(value, str):
        text = value.encode()
        message = b"\x02" + (len(text) + 1).to_bytes(4, "little") + text + b"\0"
    else:
        message = b"\x08\x01" if value is True else canonical(value)
    return hmac.new(KEY, message, "sha256").hexdigest()


def shown(document: Any, rules: Mapping[str, tuple[str, Any]], path: str = "") -> Any:
    """What the rules mean, on a decoded document. `rules`: by path."""
    if isinstance(document, list):
        return [shown(each, rules, path) for each in document]
    if not isinstance(document, dict):
        return document
    result = {}
    for name, value in document.items():
        below = f"{path}.{name}" if path else name
        match rules.get(below):
            case ("drop", _):
                continue
            case ("mask", constant):
                result[name] = constant
            case ("hash", _):
                result[name] = hashed(value)
            case _:
                result[name] = shown(value, rules, below)
    return result


def of(rules: Mapping[str, tuple[str, Any]]) -> Columns:
    columns = Columns()
    for path, (kind, constant) in rules.items():
        if kind == "mask":
            columns.mask(path, constant)
        elif kind == "hash":
            columns.hash(path, KEY)
        else:
            columns.drop(path)
    return columns


scalars = st.sampled_from([0, 1, 2.5, "x", "yy", None, True])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from(NAMES), values, max_size=3).map(lambda fields: {"_id": 1, **fields})


@st.composite
def ruled(draw: st.DrawFn) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    for path in draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=3, unique=True)):
        if not any(path.startswith(f"{other}.") or other.startswith(f"{path}.") for other in found):
            found[path] = draw(st.tuples(st.sampled_from(["drop", "mask", "hash"]), st.sampled_from(["***", None, 0])))
    return found


def places(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """All places of a document at which an update may set or remove something."""
    found: list[tuple[tuple[str, ...], Any]] = []
    if isinstance(value, dict):
        found += [((*path, name), value) for name in NAMES]
        for name in NAMES:
            found += places(value.get(name), (*path, name))
    elif isinstance(value, list):
        found += [((*path, str(index)), value) for index in range(len(value) + 1)]
        for index, each in enumerate(value):
            found += places(each, (*path, str(index)))
    return found


def applied(document: Any, description: Mapping[str, Any]) -> Any:
    """As a server applies an update. Each path is viable, or of a field that is not there."""
    document = bson.decode(bson.encode(document))

    def parent(path: str) -> tuple[Any, str]:
        *steps, last = path.split(".")
        at: Any = document
        for step in steps:
            at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
        return at, last

    for path in description["removedFields"]:
        at, last = parent(path)
        if isinstance(at, dict):
            at.pop(last, None)
    for cut in description["truncatedArrays"]:
        at, last = parent(cut["field"])
        array = at[int(last)] if isinstance(at, list) else at[last]
        del array[cut["newSize"] :]
    for path, value in description["updatedFields"].items():
        at, last = parent(path)
        if not isinstance(at, list):
            at[last] = value
        elif int(last) < len(at):
            at[int(last)] = value
        else:
            at.append(value)
    return document


@st.composite
def histories(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A document and an update of it, whose paths do not lead through each other, as in a diff of the server."""
    document = draw(documents)
    description: dict[str, Any] = {"updatedFields": {}, "removedFields": [], "truncatedArrays": []}
    taken: list[str] = []
    for steps, at in draw(st.lists(st.sampled_from(places(document)), max_size=3)):
        path = ".".join(steps)
        if any(f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.") for other in taken):
            continue
        taken.append(path)
        there = at.get(steps[-1]) if isinstance(at, dict) else None
        if isinstance(there, list) and there and draw(st.booleans()):
            description["truncatedArrays"].append({"field": path, "newSize": draw(st.integers(0, len(there) - 1))})
        elif isinstance(at, dict) and steps[-1] in at and draw(st.booleans()):
            description["removedFields"].append(path)
        else:
            description["updatedFields"][path] = draw(values)
    return document, description


@given(documents, ruled())
@settings(max_examples=250)
def test_documents_are_shown_as_the_rules_say(document: dict[str, Any], rules: dict[str, tuple[str, Any]]) -> None:
    raw = of(rules).document(bson.encode(document))
    assert raw == bson.encode(shown(document, rules))


@given(histories(), ruled())
@settings(max_examples=500)
def test_a_transformed_update_of_a_transformed_document_is_the_transformed_result(
    history: tuple[dict[str, Any], dict[str, Any]], rules: dict[str, tuple[str, Any]]
) -> None:
    document, description = history
    update = bson.decode(of(rules).update(bson.encode(description)))
    assert applied(shown(document, rules), update) == shown(applied(document, description), rules)
    assert list(update) == list(description)


SECRET = {"updatedFields": {"a.b.c": 5, "n": 1}, "removedFields": ["a.b.d"], "truncatedArrays": []}


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (made(drop=("a.b",)), ({"n": 1}, [])),
        (made(mask={"a.b": 0}), ({"a.b": 0, "n": 1}, [])),
        (made(hash=("a.b",)), ({"a.b.c": hashed(5), "n": 1}, ["a.b.d"])),
        (made(drop=("a",)), ({"n": 1}, [])),
        (made(drop=("a.b.c.e",)), ({"a.b.c": 5, "n": 1}, ["a.b.d"])),
    ],
)
def test_changes_below_a_field(columns: Columns, expected: tuple[Any, Any]) -> None:
    update = bson.decode(columns.update(bson.encode(SECRET)))
    assert (update["updatedFields"], update["removedFields"]) == expected


def test_a_name_with_a_dot_is_no_path_where_the_event_says_so() -> None:
    described = {
        "updatedFields": {"a.b": 1, "a.0.b": 2, "a.b.c": 3},
        "removedFields": [],
        "truncatedArrays": [],
        "disambiguatedPaths": {"a.b": ["a.b"], "a.0.b": ["a", "0", "b"], "a.b.c": ["a", "b", "c"]},
    }
    update = bson.decode(made(mask={"a.b": "*"}).update(bson.encode(described)))
    assert update["updatedFields"] == {"a.b": 1, "a.0.b": 2, "a.b'": "*"}
    assert update["disambiguatedPaths"] == {"a.b": ["a.b"], "a.0.b": ["a", "0", "b"], "a.b'": ["a", "b"]}


def test_an_upsert_of_dropped_fields_alone_still_inserts() -> None:
    described = {"updatedFields": {"ssn": 1}, "removedFields": [], "truncatedArrays": [], "upsert": True}
    update = bson.decode(made(drop=("ssn",)).update(bson.encode(described)))
    assert (update["updatedFields"], update["removedFields"], update["upsert"]) == ({}, ["ssn"], True)


def test_equal_numbers_have_equal_hashes() -> None:
    columns = made(hash=("a",))
    ones = [1, 1.0, bson.Int64(1), bson.Decimal128("1.00")]
    assert len({columns.document(bson.encode({"a": one})) for one in ones}) == 1
    assert columns.document(bson.encode({"a": "1"})) != columns.document(bson.encode({"a": 1}))


def test_of_two_rules_the_one_that_shows_less_applies() -> None:
    columns = made(hash=("a",), drop=("a.b", "c"), mask={"c": "*"})
    assert bson.decode(columns.document(bson.encode({"a": {"b": 1, "d": "x"}, "c": 2}))) == {"a": {"d": hashed("x")}}
