from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp
from hypothesis import given, settings

from changefeed.bson_bytes import DOCUMENT, document_of, element, fields_of
from sink.mongodb.rows.statements.update_translation import Inexpressible, pipeline, translate
from tests.unit.sink.mongodb.rows.update_cases import Case, cases
from tests.unit.sink.mongodb.rows.update_model import Refused, apply, fits, there


def _event(
    sets: Mapping[str, Any] | None = None,
    removed: list[str] | None = None,
    truncated: Mapping[str, int] | None = None,
    paths: Mapping[str, list[str | int]] | None = None,
) -> bytes:
    arrays = [{"field": name, "newSize": size} for name, size in (truncated or {}).items()]
    fields = {"updatedFields": sets or {}, "removedFields": removed or [], "truncatedArrays": arrays}
    return bson.encode({**fields, "disambiguatedPaths": paths or {}})


def _after(before: dict[str, Any], event: bytes) -> dict[str, Any]:
    update = translate(event)
    assert update is not None
    assert fits(before, update.fits)
    return apply(before, update.operation)


@settings(max_examples=100)
@given(cases())
def test_the_target_becomes_what_the_source_was_field_order_included(case: Case) -> None:
    assert bson.encode(_after(case.before, case.description)) == bson.encode(case.after)


@settings(max_examples=100)
@given(cases())
def test_the_pipeline_does_the_same_where_all_of_it_fits(case: Case) -> None:
    update = pipeline(case.description)
    assert bson.encode(apply(case.before, update.operation)) == bson.encode(case.after)


@settings(max_examples=100)
@given(cases(), cases())
def test_the_pipeline_is_never_refused_whatever_the_document(case: Case, other: Case) -> None:
    update = pipeline(case.description)
    apply(other.before, update.operation)


def test_plain_fields_become_a_classic_update_that_keeps_the_raw_values() -> None:
    update = translate(_event({"amount": 5, "status": "$paid", "lines.3.sku": "x"}, ["note"]))
    assert update is not None
    assert isinstance(update.operation, dict)
    assert dict(update.operation["$set"]) == {"amount": 5, "status": "$paid", "lines.3.sku": "x"}
    assert update.operation["$unset"] == {"note": ""}


def test_fields_that_set_would_append_in_another_order_become_a_pipeline() -> None:
    update = translate(_event({"z": "$1", "a": {"b": 1}}))
    assert update is not None
    assert bson.encode({"u": update.operation}) == bson.encode(
        {"u": [{"$replaceWith": {"$mergeObjects": ["$$ROOT", {"$literal": {"z": "$1", "a": {"b": 1}}}]}}]}
    )
    assert list(_after({"_id": 1}, _event({"z": 1, "a": 2}))) == ["_id", "z", "a"]


_SYMBOL_S, _UNDEFINED_U, _REGEX_G = b"\x0es\0\3\0\0\0ab\0", b"\x06u\0", b"\x0bg\0a\0g\0"
_TEXT_T = b"\x02t\0\4\0\0\0a\xff\xfe\0"


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("removed", "truncated"), [([], {}), (["gone"], {}), (["z"], {}), ([], {"t": 1}), (["u", "g", "s", "t"], {"a": 0})]
)
def test_values_that_a_driver_cannot_decode_or_would_change_are_sent_as_they_are(
    removed: list[str], truncated: dict[str, int], *, first: bool
) -> None:
    values = [_UNDEFINED_U, _REGEX_G, _SYMBOL_S, _TEXT_T]
    event = [*fields_of(_event({}, removed, truncated)).values()]
    event[0] = element(DOCUMENT, b"updatedFields", document_of(values))
    update = translate(document_of(event), first=first)
    assert update is not None
    sent = bson.encode({"u": update.operation})
    assert all(value in sent for value in values)


def test_an_element_of_an_array_is_sent_as_it_is() -> None:
    description = bson.encode({"updatedFields": {"a.0": "a??b"}, "truncatedArrays": [{"field": "a", "newSize": 1}]})
    update = translate(description.replace(b"??", b"\xff\xfe"))
    assert update is not None
    assert b"\x02$literal\0\5\0\0\0a\xff\xfeb\0" in bson.encode({"u": update.operation})


def test_an_event_that_changes_nothing_becomes_no_update() -> None:
    assert translate(_event()) is None
    assert translate(bson.encode({"updatedFields": {}, "removedFields": []})) is None


@pytest.mark.parametrize("description", [{"updatedFields": {"a": 1}}, {"updatedFields": {"a": 1}, "removedFields": []}])
def test_events_of_servers_that_know_no_truncation_are_understood(description: dict[str, Any]) -> None:
    assert _after({"_id": 1}, bson.encode(description)) == {"_id": 1, "a": 1}


def test_an_update_with_only_truncated_arrays() -> None:
    assert _after({"a": [1, 2, 3], "b": 1}, _event(truncated={"a": 1})) == {"a": [1], "b": 1}
    assert _after({"a": [1, 2, 3]}, _event(truncated={"a": 0})) == {"a": []}
    assert _after({"o": {"a": [1, 2, 3]}}, _event(truncated={"o.a": 2})) == {"o": {"a": [1, 2]}}


def test_truncation_and_a_set_inside_the_same_array() -> None:
    before = {"arr": [{"b": 0}, {"b": 1}, {"b": 2}], "x": 0}
    event = _event({"x": 1, "arr.1.b": 9}, truncated={"arr": 2})
    assert _after(before, event) == {"arr": [{"b": 0}, {"b": 9}], "x": 1}


def test_a_number_in_a_path_is_a_field_where_the_source_says_so() -> None:
    event = _event({"a.0.b": 1}, paths={"a.0.b": ["a", "0", "b"]})
    assert _after({"a": {"0": {"b": 0}}}, event) == {"a": {"0": {"b": 1}}}


def test_a_number_that_nobody_explains_is_what_the_document_hasthere() -> None:
    event = _event({"a.0": 7, "t.1": 7}, truncated={"other": 0})
    assert _after({"a": {"0": 1}, "t": [1], "other": [1]}, event) == {"a": {"0": 7}, "t": [1, 7], "other": []}


def test_names_with_dots_and_dollars() -> None:
    event = _event({"a.b": 1, "$c": "$d"}, ["x.y"], paths={"a.b": ["a.b"], "x.y": ["x.y"]})
    assert _after({"a": {"b": 0}, "x": {"y": 0}, "x.y": 3}, event) == {
        "a": {"b": 0},
        "x": {"y": 0},
        "a.b": 1,
        "$c": "$d",
    }


def test_one_path_leading_through_another_is_applied_in_turn() -> None:
    assert _after({"_id": 1}, _event({"a": {"b": 1}, "a.c": 2})) == {"_id": 1, "a": {"b": 1, "c": 2}}


@settings(max_examples=200)
@given(cases(("a", "b", "z", "10", "9")))
def test_the_first_time_new_fields_are_set_where_they_are_not_there(case: Case) -> None:
    """As an oplog tells of new fields: they are removed first. Fields that are there are in the way: then the pipeline does it."""
    raw = bson.decode(case.description)
    removed = {
        **dict.fromkeys(raw["removedFields"]),
        **dict.fromkeys(name for name in raw["updatedFields"] if not there(case.before, name)),
    }
    event = bson.encode({**raw, "removedFields": list(removed), "disambiguatedPaths": {}, "truncatedArrays": []})
    update = translate(event, first=True)
    if update is not None and update.absent:
        assert not any(there(case.before, name) for name in update.absent)
        by_the_pipeline = apply(case.before, pipeline(event).operation)
        assert bson.encode(apply(case.before, update.operation)) == bson.encode(by_the_pipeline)


@pytest.mark.parametrize(
    ("sets", "removed", "absent"),
    [
        ({"n": 1}, ["n"], ("n",)),
        ({"z": 1, "n": 1}, ["n", "gone"], ("n",)),
        ({"b": 1, "a": 1}, ["a", "b"], ()),
        ({"n": 1, "n.x": 1}, ["n"], ()),
        ({"$n": 1}, ["$n"], ()),
        ({"control.min.b": 1, "control.min.a": 1, "n": 1}, ["n"], ()),  # new ones of a bucket, as 5.0 logs them
        ({"control.min.a": 1, "control.min.b": 1, "n": 1}, ["n"], ("n",)),
    ],
)
def test_new_fields_are_stated_as_absent_where_set_appends_them_as_the_source_did(
    sets: dict[str, int], removed: list[str], absent: tuple[str, ...]
) -> None:
    update, again = translate(_event(sets, removed), first=True), translate(_event(sets, removed))
    assert update is not None
    assert again is not None
    assert update.absent == absent
    assert isinstance(update.operation, dict) is bool(absent)
    assert isinstance(again.operation, list)


def test_a_field_removed_and_set_again_goes_to_the_end() -> None:
    assert list(_after({"a": 1, "b": 2}, _event({"a": 3}, ["a"]))) == ["b", "a"]


def test_paths_into_one_array_meet_though_only_one_of_them_is_explained() -> None:
    event = _event({"a.1.a": 0, "a.1.0": 0}, paths={"a.1.0": ["a", 1, "0"]})
    assert _after({"a": [[], {}]}, event) == {"a": [[], {"a": 0, "0": 0}]}


def test_a_path_through_what_is_not_there_makes_it_as_servers_before_5_say_it() -> None:
    event = _event({"z.b": 1, "a.c.d": 2, "a.b": 3}, ["q.r"])
    after = {"_id": 1, "z": {"b": 1}, "a": {"c": {"d": 2}, "b": 3}}
    assert _after({"_id": 1}, event) == after
    viable = pipeline(event)
    assert apply({"_id": 1}, viable.operation) == after


def test_a_document_of_another_shape_does_not_fit() -> None:
    update = translate(_event({"arr.1.b": 9}, truncated={"arr": 2}))
    assert update is not None
    for other in ({"arr": 5}, {"arr": [1, 2]}, {"arr": {"1": {"b": 1}}}, {}):
        assert not fits(other, update.fits)
        assert apply(other, update.operation).keys() == other.keys()


def test_what_still_fits_of_an_update_is_applied_by_the_pipeline() -> None:
    event = _event({"a.b": 1, "x": 2})
    classic, viable = translate(event), pipeline(event)
    assert classic is not None
    with pytest.raises(Refused):
        apply({"a": 5, "x": 1}, classic.operation)
    assert apply({"a": 5, "x": 1}, viable.operation) == {"a": 5, "x": 2}


def test_a_pipeline_neither_changes_a_document_with_a_zero_timestamp_nor_makes_one() -> None:
    zero = Timestamp(0, 0)
    update = pipeline(_event({"z": 1, "n.t": zero, "later": Timestamp(0, 1)}))
    assert fits({"_id": 1, "n": {"t": zero}, "t": Timestamp(1, 0)}, update.fits)
    assert not fits({"_id": 1, "n": {}, "t": zero}, update.fits)
    with pytest.raises(Inexpressible):
        pipeline(_event({"z": 1, "t": zero}))


def test_hundreds_of_changed_fields_do_not_nest_too_deep() -> None:
    sets = {f"d.f{number:04}": number for number in range(900)}
    event = _event(sets, truncated={"t": 0})
    after = _after({"d": {}, "t": [1]}, event)
    assert list(after["d"].values()) == list(range(900))
    update = translate(event)
    assert update is not None
    assert _depth(update.operation) < 60


def test_a_path_through_many_documents_grows_with_their_number_only() -> None:
    path = ".".join(f"n{level}" for level in range(20))
    update = pipeline(_event({path: 1}))
    assert _depth(update.operation) < 200
    assert len(bson.encode({"u": update.operation, "fits": update.fits})) < 20_000


def test_a_path_through_many_arrays_grows_with_their_number_only() -> None:
    """An update of a change stream or an oplog does not tell an array's index from a name: each may be either."""

    def size(levels: int) -> int:
        path = ".".join(["c.0"] * levels) + ".new"
        update = translate(_event({path: 1}, [path]))
        assert update is not None
        assert _depth(update.operation) < 170
        return len(bson.encode({"u": update.operation, "fits": update.fits}))

    assert size(9) - size(8) == size(2) - size(1) < 2_000


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)
