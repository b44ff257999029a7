from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeAlias

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.event import RowType
from changefeed.table import TableId, TableName
from processor.task.rows.folding import fold
from sink.mongodb.rows.statements.document_edit import edited
from sink.row import RowChange, TargetTable

_NAME = TableName("shop", "orders")
_TABLE = TargetTable(id=TableId("ab" * 16), source=_NAME, name=_NAME)
_ORDERED = TargetTable(id=TableId("ab" * 16), source=_NAME, name=_NAME, ordered=True)

Document: TypeAlias = dict[str, Any]
State: TypeAlias = dict[int, Document]


def _change(
    kind: RowType, key: int, time: int, content: Document | None = None, table: TargetTable = _TABLE
) -> RowChange:
    update = bson.encode(content) if content is not None and kind is RowType.UPDATE else None
    document = bson.encode(content) if content is not None and kind is not RowType.UPDATE else None
    return RowChange(table, kind, bson.encode({"_id": key}), document, update, time, b"82")


def _insert(time: int, key: int = 1, **fields: Any) -> RowChange:
    return _change(RowType.INSERT, key, time, {"_id": key, **fields})


def _replace(time: int, key: int = 1, **fields: Any) -> RowChange:
    return _change(RowType.REPLACE, key, time, {"_id": key, **fields})


def _update(time: int, sets: Document, removed: Sequence[str] = (), **more: Any) -> RowChange:
    event = {"updatedFields": sets, "removedFields": list(removed), "truncatedArrays": [], **more}
    return _change(RowType.UPDATE, 1, time, event)


def _delete(time: int, key: int = 1) -> RowChange:
    return _change(RowType.DELETE, key, time)


def _said(changes: Sequence[RowChange]) -> list[tuple[str, int, Document]]:
    return [(c.type.value, c.time, bson.decode(c.document or c.update or b"\5\0\0\0\0")) for c in changes]


def test_a_document_that_comes_and_goes_is_deleted_not_forgotten() -> None:
    assert _said(fold([_insert(1, v=1), _update(2, {"v": 2}), _delete(3)])) == [("delete", 3, {})]


def test_a_delete_and_an_insert_are_a_replace() -> None:
    assert _said(fold([_delete(1), _insert(2, v=1)])) == [("replace", 2, {"_id": 1, "v": 1})]


def test_an_insert_takes_in_what_follows() -> None:
    changes = [_insert(1, a=1, b=2), _update(2, {"c": 3, "a": 4}, ["b"]), _replace(3, z=1), _update(4, {"y": 2})]
    assert _said(fold(changes[:2])) == [("insert", 2, {"_id": 1, "a": 4, "c": 3})]
    assert list(bson.decode(fold(changes)[0].document or b"")) == ["_id", "z", "y"]


def test_changes_with_a_text_that_is_not_utf8_stay_apart_unless_the_last_says_it_all() -> None:
    def odd(change: RowChange) -> RowChange:
        document, update = ((raw or b"").replace(b"??", b"\xff\xfe") for raw in (change.document, change.update))
        return change._replace(document=document or None, update=update or None)

    whole, other, plain = odd(_insert(1, t="??")), odd(_update(2, {"t": "??"}, ["n"])), _update(3, {"n": 1})
    for changes in ([whole, plain], [plain, other], [other, plain], [whole, other]):
        assert list(fold(changes)) == changes
    same = odd(_update(4, {"n": "??"}))
    assert list(fold([plain, same])) == [same]


def test_updates_become_one_with_the_last_value_of_each_field() -> None:
    folded = fold(
        [_update(1, {"a": 1, "b.c": 1}), _update(2, {"a": 2, "b.d": 2}, ["x"]), _update(3, {"n": 3}, ["b.c"])]
    )
    assert _said(folded) == [
        ("update", 3, {"updatedFields": {"a": 2, "b.d": 2, "n": 3}, "removedFields": ["x", "b.c"]})
    ]


def test_an_update_that_sets_the_same_fields_again_stands_for_both_as_it_is() -> None:
    first, then = _update(1, {"n": 1, "at": "x"}), _update(2, {"n": 2, "at": "y"})
    [folded] = fold([first, then])
    assert folded is then


@pytest.mark.parametrize(
    "pair",
    [
        (_update(1, {"a": {"b": 1}}), _update(2, {"a.b": 2})),
        (_update(1, {}, ["a"]), _update(2, {"a": 1})),
        (_update(1, {"a.0": 1}), _update(2, {"b": 1})),
        (_update(1, {"b": 1}), _update(2, {}, truncatedArrays=[{"field": "a", "newSize": 1}])),
        (_update(1, {"b": 1}), _update(2, {"a.b": 1}, disambiguatedPaths={"a.b": ["a.b"]})),
        (_insert(1, a={"b": 1}), _update(2, {"a.b": 2})),
        (_delete(1), _update(2, {"a": 1})),
    ],
)
def test_what_is_not_provably_the_same_stays_two_changes(pair: tuple[RowChange, RowChange]) -> None:
    assert fold(list(pair)) == list(pair)


def test_tables_whose_rows_depend_on_each_other_are_left_as_they_are() -> None:
    changes = [
        _insert(1)._replace(table=_ORDERED),
        _insert(2, 2)._replace(table=_ORDERED),
        _delete(3)._replace(table=_ORDERED),
    ]
    assert fold(changes) == changes


def test_equal_keys_of_different_bytes_keep_their_order_unfolded() -> None:
    other = RowChange(_TABLE, RowType.DELETE, bson.encode({"_id": 1.0}), None, None, 2, b"82")
    assert fold([_insert(1), other]) == [_insert(1), other]


_FIELDS = st.sampled_from(["a", "b", "c", "d.x", "d.y", "e"])
_VALUES = st.one_of(st.integers(0, 3), st.fixed_dictionaries({"x": st.integers(0, 3)}))


@st.composite
def _histories(draw: st.DrawFn) -> tuple[list[RowChange], list[State]]:
    """A source's events, and its state before each change and after the last."""
    state: State = {1: {"_id": 1, "a": 0, "d": {"x": 0}}}
    states, changes = [copy.deepcopy(state)], []
    for time in range(draw(st.integers(1, 10))):
        key = draw(st.sampled_from([1, 2]))
        change = _next(draw, key, time, state.get(key))
        state = _applied(state, [change])
        states.append(copy.deepcopy(state))
        changes.append(change)
    return changes, states


def _next(draw: st.DrawFn, key: int, time: int, document: Document | None) -> RowChange:
    fields = draw(st.dictionaries(st.sampled_from("abe"), _VALUES, max_size=3)) | {
        "d": draw(st.sampled_from([{"x": 0}, 5]))
    }
    if document is None:
        return _change(RowType.INSERT, key, time, {"_id": key, **fields})
    match draw(st.sampled_from([RowType.UPDATE, RowType.UPDATE, RowType.UPDATE, RowType.REPLACE, RowType.DELETE])):
        case RowType.REPLACE:
            return _change(RowType.REPLACE, key, time, {"_id": key, **fields})
        case RowType.DELETE:
            return _change(RowType.DELETE, key, time)
    named = draw(st.dictionaries(_FIELDS, _VALUES, min_size=1, max_size=3))
    if isinstance(document.get("d"), dict):
        sets = named
    else:
        sets = {name: value for name, value in named.items() if "." not in name} or {"d": {"y": 1}}
    removed = [name for name in draw(st.lists(st.sampled_from("abe"), max_size=2, unique=True)) if name in document]
    event = {
        "updatedFields": sets,
        "removedFields": [name for name in removed if name not in sets],
        "truncatedArrays": [],
    }
    return _change(RowType.UPDATE, key, time, event)


def _applied(state: State, changes: Sequence[RowChange]) -> State:
    """Applies the changes as a sink does in a replay."""
    state = copy.deepcopy(state)
    for change in changes:
        key = bson.decode(change.key)["_id"]
        if change.type is RowType.DELETE:
            state.pop(key, None)
        elif change.type is not RowType.UPDATE:
            state[key] = bson.decode(change.document or b"")
        elif key in state:
            state[key] = bson.decode(edited(bson.encode(state[key]), [change.update or b""]))
    return state


@settings(max_examples=200)
@given(_histories(), st.data())
def test_a_fold_ends_as_its_parts_do_from_every_state_that_redelivery_begins_with(
    history: tuple[list[RowChange], list[State]], data: st.DataObject
) -> None:
    changes, states = history
    begin = data.draw(st.integers(0, len(changes) - 1))
    ahead = data.draw(st.integers(begin, len(changes)))
    assert _ordered(_applied(states[ahead], fold(changes[begin:]))) == _ordered(
        _applied(states[ahead], changes[begin:])
    )
    assert _ordered(_applied(states[begin], fold(changes[begin:]))) == _ordered(states[-1])


def _ordered(state: State) -> list[bytes]:
    return sorted(map(bson.encode, state.values()))
