"""Replayed updates that did not fit, and the events that explain them."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from hypothesis import given
from hypothesis import strategies as st

from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.mongodb.rows.unexplained import Unexplained
from sink.row import RowChange, TargetTable

_NAME = TableName("shop", "orders")
_TABLE = TargetTable(id=TableId("ab" * 16), source=_NAME, name=_NAME)


def _change(kind: RowType, at: int, key: Any = 1, **described: Any) -> RowChange:
    update = {"updatedFields": {}, "removedFields": [], "truncatedArrays": [], **described}
    return RowChange(
        _TABLE,
        kind,
        bson.encode({"_id": key}),
        bson.encode({"_id": key}) if kind in (RowType.INSERT, RowType.REPLACE) else None,
        bson.encode(update) if kind is RowType.UPDATE else None,
        at,
        b"82",
    )


def _sets(at: int, key: Any = 1, **fields: Any) -> RowChange:
    return _change(RowType.UPDATE, at, key, updatedFields={name.replace("__", "."): v for name, v in fields.items()})


def _left(unexplained: Unexplained) -> list[int]:
    return [bson.decode(row.change.key)["_id"] for row in unexplained.take()]


@pytest.mark.parametrize("kind", [RowType.DELETE, RowType.INSERT, RowType.REPLACE])
def test_a_missing_row_is_explained_by_what_says_the_whole_of_it(kind: RowType) -> None:
    unexplained = Unexplained()
    unexplained.missing(_sets(5, x=1), "missing")
    unexplained.explain([_sets(6, x=2)])
    assert unexplained
    unexplained.explain([_change(kind, 7)])
    assert not unexplained
    assert unexplained.bytes == 0


def test_nothing_is_explained_by_what_was_before_it_or_is_of_another_row() -> None:
    unexplained = Unexplained()
    unexplained.missing(_sets(5, x=1), "missing")
    unexplained.missing(_sets(7, x=2), "missing")
    unexplained.explain([_change(RowType.DELETE, 4), _change(RowType.INSERT, 6), _change(RowType.DELETE, 8, key=2)])
    assert _left(unexplained) == [1]


def test_one_and_one_point_zero_are_one_key() -> None:
    unexplained = Unexplained()
    unexplained.missing(_sets(5, 1, x=1), "missing")
    unexplained.explain([_change(RowType.DELETE, 6, key=1.0)])
    assert not unexplained


@pytest.mark.parametrize(
    ("described", "later", "explained"),
    [
        ({"updatedFields": {"a.b.c": 1}}, {"updatedFields": {"a": 7}}, True),
        ({"updatedFields": {"a.b.c": 1}}, {"updatedFields": {"a.b": 7}}, True),
        ({"updatedFields": {"a.b.c": 1}}, {"removedFields": ["a"]}, True),
        ({"updatedFields": {"a.b.c": 1}}, {"truncatedArrays": [{"field": "a", "newSize": 1}]}, True),
        ({"updatedFields": {"a.b.c": 1}}, {"updatedFields": {"a.b.c": 2}}, False),
        ({"updatedFields": {"a.b.c": 1}}, {"updatedFields": {"a.d": 2, "ab": 1}}, False),
        ({"updatedFields": {"a.b": 1, "x": 1}}, {"updatedFields": {"x": 2}}, False),
        ({"updatedFields": {"a.b": 1, "c.d": 1}}, {"updatedFields": {"a": 2}}, False),
        ({"removedFields": ["a.b"]}, {"updatedFields": {"a": 7}}, True),
        ({"updatedFields": {"a.b": DatetimeMS(-(2**48))}}, {"updatedFields": {"a": DatetimeMS(2**48)}}, True),
        ({"truncatedArrays": [{"field": "a", "newSize": 1}]}, {"updatedFields": {"a": 7}}, True),
        ({"truncatedArrays": [{"field": "a", "newSize": 1}]}, {"updatedFields": {"a.0": 7}}, False),
        (
            {"updatedFields": {"a.b": 1, "x.y": 1}, "disambiguatedPaths": {"x.y": ["x.y"]}},
            {"removedFields": ["a"]},
            True,
        ),
    ],
)
def test_a_row_of_another_shape_is_explained_by_a_change_at_or_above_what_did_not_fit(
    described: dict[str, Any], later: dict[str, Any], explained: bool
) -> None:
    unexplained = Unexplained()
    unexplained.misfit(_change(RowType.UPDATE, 5, **described), "a number")
    unexplained.explain([_change(RowType.UPDATE, 6, **later)])
    assert bool(unexplained) is not explained


def test_what_is_left_of_an_update_says_which_documents_it_fits() -> None:
    unexplained = Unexplained()
    unexplained.misfit(_sets(5, a__b=1, c__d=1), "a number")
    unexplained.explain([_sets(6, a=2)])
    [row] = unexplained.take()
    assert row.decidable
    assert row.fits(bson.encode({"_id": 1, "a": 2, "c": {}}))
    assert not row.fits(bson.encode({"_id": 1, "a": 2, "c": 3}))


def test_a_missing_row_and_an_update_that_needs_nothing_cannot_come_right_by_themselves() -> None:
    unexplained = Unexplained()
    unexplained.missing(_sets(5, 1, a__b=1), "missing")
    unexplained.misfit(_sets(5, 2, a=1), "an immutable field")
    unexplained.explain([_sets(6, 2, a=2)])
    assert not any(row.decidable for row in unexplained.take())


def test_updates_that_do_the_same_again_and_again_take_no_more_room() -> None:
    unexplained = Unexplained()
    unexplained.misfit(_sets(5, a__b=1), "a number")
    size = unexplained.bytes
    for at in range(6, 100):
        unexplained.misfit(_sets(at, a__b=at), "a number")
    assert unexplained.bytes == size > 0


@given(st.lists(st.tuples(st.sampled_from("mfedu"), st.integers(1, 3)), max_size=30))
def test_its_bytes_are_those_of_what_it_holds(steps: list[tuple[str, int]]) -> None:
    unexplained = Unexplained()
    for at, (step, key) in enumerate(steps):
        match step:
            case "m":
                unexplained.missing(_sets(at, key, x=1), "missing")
            case "f":
                unexplained.misfit(_sets(at, key, **{f"a{at % 3}__b": 1}), "a number")
            case "e":
                unexplained.explain([_sets(at, key, **{f"a{at % 3}": 1})])
            case "d":
                unexplained.explain([_change(RowType.DELETE, at, key)])
            case _:
                unexplained.doubted(_sets(at, key, a0__b=1))
    held = unexplained.bytes
    assert held == sum(row.size for row in unexplained.take())


def test_an_update_with_a_text_that_is_not_utf8_is_explained_like_others() -> None:
    unexplained = Unexplained()
    for at, name in ((5, "a__b"), (6, "a")):
        change = _sets(at, **{name: "??"})
        change = change._replace(update=(change.update or b"").replace(b"??", b"\xff\xfe"))
        if at == 5:
            unexplained.misfit(change, "misfit")
        unexplained.explain([change])
        assert bool(unexplained) is (at == 5)
