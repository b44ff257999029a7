"""An update entry says the same as the change stream's `updateDescription`."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from source.oplog.update import UnknownUpdate, description, is_replacement, upserting


def described(**o: Any) -> dict[str, Any]:
    given = {name.replace("_", "$", 1) if name.startswith("_") else name: value for name, value in o.items()}
    found: dict[str, Any] = bson.decode(description(bson.encode(given)))
    return found


def said(
    updated: dict[str, Any] | None = None, removed: list[str] | None = None, truncated: dict[str, int] | None = None
) -> dict[str, Any]:
    arrays = [{"field": field, "newSize": size} for field, size in (truncated or {}).items()]
    return {"updatedFields": updated or {}, "removedFields": removed or [], "truncatedArrays": arrays}


DIFFS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"u": {"b": 2}}, said({"b": 2})),
    ({"d": {"a": False}}, said(removed=["a"])),
    ({"i": {"c": 3}}, said({"c": 3}, ["c"])),
    ({"d": {"a": False}, "u": {"b": 2}, "i": {"c": 3}}, said({"b": 2, "c": 3}, ["a", "c"])),
    ({"sx": {"u": {"y": 1}}}, said({"x.y": 1})),
    ({"sx": {"sy": {"d": {"z": False}, "i": {"w": 4}}}}, said({"x.y.w": 4}, ["x.y.z", "x.y.w"])),
    ({"sarr": {"a": True, "u1": 9}}, said({"arr.1": 9})),
    ({"sarr": {"a": True, "l": 2}}, said(truncated={"arr": 2})),
    (
        {"sarr": {"a": True, "l": 2, "u1": 9, "s0": {"u": {"x": 1}}}},
        said({"arr.1": 9, "arr.0.x": 1}, truncated={"arr": 2}),
    ),
    ({"sx": {"u": {"a": 1}}}, said({"x.a": 1})),
]


@pytest.mark.parametrize(("diff", "expected"), DIFFS)
def test_a_diff_is_told_by_its_sections(diff: dict[str, Any], expected: dict[str, Any]) -> None:
    """A field under `i` is new, or was moved to the end: it is removed and set, which puts it there."""
    assert described(_v=2, diff=diff) == expected


def test_fields_keep_their_order() -> None:
    found = described(_v=2, diff={"u": {"z": 1, "a": 2}, "i": {"m": 3}})
    assert list(found["updatedFields"]) == ["z", "a", "m"]


@pytest.mark.parametrize(
    ("diff", "paths"),
    [
        ({"u": {"a.b": 1}}, {"a.b": ["a.b"]}),
        ({"d": {"a.b": False}}, {"a.b": ["a.b"]}),
        ({"sx": {"u": {"a.b": 1}}}, {"x.a.b": ["x", "a.b"]}),
        ({"u": {"a.b": 1}, "sa": {"u": {"b": 2}}}, {"a.b'": ["a.b"]}),
    ],
)
def test_a_path_with_a_dot_in_a_name_is_told_apart(diff: dict[str, Any], paths: dict[str, list[str]]) -> None:
    assert described(_v=2, diff=diff)["disambiguatedPaths"] == paths


@pytest.mark.parametrize("version", [{"_v": 1}, {}])
def test_an_update_of_before_5_0_has_paths(version: dict[str, int]) -> None:
    found = described(**version, _set={"a.b": 1, "c": 2}, _unset={"d.e": True})
    assert found == said({"a.b": 1, "c": 2}, ["d.e"])


@pytest.mark.parametrize(
    "o", [{"_v": 2, "diff": {"x": 1}}, {"_v": 3, "diff": {}}, {"_v": 2, "diff": {"sa": {"a": True, "q": 1}}}, {}]
)
def test_an_update_in_an_unknown_form_is_an_error(o: dict[str, Any]) -> None:
    with pytest.raises(UnknownUpdate):
        described(**o)


def test_a_whole_document_is_no_update() -> None:
    assert is_replacement(bson.encode({"_id": 7, "$v": 2, "diff": {}}))
    assert is_replacement(bson.encode({"$v": 1, "_id": 7}))
    assert not is_replacement(bson.encode({"$v": 2, "diff": {"u": {"_id": 1}}}))
    assert not is_replacement(bson.encode({"$set": {"a": 1}}))


def test_an_update_that_inserts_a_missing_document_says_so() -> None:
    raw = description(bson.encode({"$v": 2, "diff": {"u": {"a": 1}}}))
    assert bson.decode(upserting(raw)) == said({"a": 1}) | {"upsert": True}
