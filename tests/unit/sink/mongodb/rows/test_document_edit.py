"""What is edited here is what the pipeline makes of it at the target."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sink.mongodb.rows.statements.document_edit import changed, edited, fits
from sink.mongodb.rows.statements.update_translation import Inexpressible, pipeline, translate
from tests.unit.sink.mongodb.rows import update_model
from tests.unit.sink.mongodb.rows.update_cases import Case, cases, describe

_DEEP = 180


@settings(max_examples=200)
@given(cases())
def test_the_document_becomes_what_the_source_was_field_order_included(case: Case) -> None:
    before = bson.encode(case.before)
    assert fits(before, case.description)
    assert edited(before, [case.description]) == bson.encode(case.after)


@settings(max_examples=200)
@given(cases(), st.lists(cases(), min_size=1, max_size=3))
def test_a_document_of_another_shape_becomes_what_the_pipeline_makes_of_it(case: Case, others: list[Case]) -> None:
    before, updates = bson.encode(case.before), [other.description for other in others]
    by_the_target = case.before
    for update in updates:
        by_the_target = update_model.apply(by_the_target, pipeline(update).operation)
    assert edited(before, updates) == bson.encode(by_the_target)
    assert fits(before, updates[0]) is update_model.fits(case.before, pipeline(updates[0]).fits)


def test_a_whole_document_makes_an_end_of_what_came_before_it() -> None:
    whole = bson.encode({"_id": 1, "b": 1})
    changes = [
        (None, bson.encode({"updatedFields": {"a": 1}})),
        (whole, None),
        (None, bson.encode({"removedFields": ["b"]})),
    ]
    assert changed(bson.encode({"_id": 1, "c": 1}), changes) == bson.encode({"_id": 1})
    assert changed(None, changes[:1]) is None


def test_fields_that_are_set_thousands_of_times_are_edited_once() -> None:
    fields = [{"n": n, "deep.n": n, "list.3": n, "list.1.n": n} for n in range(3000)]
    document = bson.encode({"deep": {"n": 0, "m": 0}, "list": [0, {"n": 0}]})
    after = edited(document, [bson.encode({"updatedFields": each}) for each in fields])
    assert bson.decode(after) == {"deep": {"n": 2999, "m": 0}, "list": [0, {"n": 2999}, None, 2999], "n": 2999}


def _path(depth: int, *, arrays: bool) -> tuple[str | int, ...]:
    return tuple(0 if arrays and level % 2 else "c" for level in range(depth))


def _nested(depth: int, innermost: bytes, *, arrays: bool) -> bytes:
    """Made from the inside, as nothing that calls itself could."""
    value, kind = innermost, 3
    for level in reversed(range(depth)):
        array = arrays and level % 2
        name = b"0" if array else b"c"
        rest = b"" if array else b"\x10z\0\x01\0\0\0"
        body = bytes([kind]) + name + b"\0" + value + rest + b"\0"
        value, kind = (len(body) + 4).to_bytes(4, "little") + body, 4 if array else 3
    return value


@pytest.mark.parametrize("arrays", [False, True])
def test_the_depth_of_an_update_does_not_matter(*, arrays: bool) -> None:
    path = _path(_DEEP, arrays=arrays)
    description = describe({(*path, "new"): 1, (*path, "b"): 2}, [(*path, "a"), (*path, "new")], {(*path, "l"): 1})
    inside: dict[str, Any] = {"a": 0, "b": 1, "l": [1, 2]}
    before = _nested(_DEEP, bson.encode(inside), arrays=arrays)
    after = _nested(_DEEP, bson.encode({"b": 2, "l": [1], "new": 1}), arrays=arrays)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(150)
    try:
        assert fits(before, description)
        assert edited(before, [description]) == after
        with pytest.raises(Inexpressible):
            translate(description)
    finally:
        sys.setrecursionlimit(limit)


_WRAPS = st.lists(st.sampled_from(["c", "x.y", 0, 2]), max_size=40)


@settings(max_examples=100)
@given(cases(("a", "b", "z", "a.b")), _WRAPS)
def test_an_update_is_exact_at_any_depth_however_it_is_applied(case: Case, wraps: list[str | int]) -> None:
    before, after = _wrapped(case.before, wraps), _wrapped(case.after, wraps)
    raw = bson.decode(case.description)
    sets = {_parts(raw, wraps, name): value for name, value in raw["updatedFields"].items()}
    removed = [_parts(raw, wraps, name) for name in raw["removedFields"]]
    truncated = {_parts(raw, wraps, each["field"]): each["newSize"] for each in raw["truncatedArrays"]}
    description = describe(sets, removed, truncated)
    assert fits(bson.encode(before), description)
    assert edited(bson.encode(before), [description]) == bson.encode(after)
    with suppress(Inexpressible):
        update = translate(description)
        assert update is not None
        assert update_model.fits(before, update.fits)
        assert bson.encode(update_model.apply(before, update.operation)) == bson.encode(after)


def _parts(raw: dict[str, Any], wraps: list[str | int], name: str) -> tuple[str | int, ...]:
    parts = raw["disambiguatedPaths"].get(name) or [int(part) if part.isdigit() else part for part in name.split(".")]
    return ("w", *wraps, *parts)


def _wrapped(document: dict[str, Any], wraps: list[str | int]) -> dict[str, Any]:
    value: Any = document
    for part in reversed(wraps):
        value = [*[0] * part, value, 1] if isinstance(part, int) else {"n": 0, part: value, "z": 1}
    return {"_id": 1, "w": value, "end": 1}


def test_what_is_not_changed_keeps_its_bytes() -> None:
    """Also what drivers cannot write any more, and a name that stands twice."""
    undefined, twice = b"\x06u\0", b"\x10x\0\x01\0\0\0\x10x\0\x02\0\0\0"
    before = _document(undefined + twice + b"\x10n\0\x05\0\0\0")
    update = bson.encode({"updatedFields": {"n": 6, "m": 7}})
    assert edited(before, [update]) == _document(undefined + twice + b"\x10n\0\x06\0\0\0\x10m\0\x07\0\0\0")


def _document(body: bytes) -> bytes:
    return (len(body) + 5).to_bytes(4, "little") + body + b"\0"
