"""Histories of tables whose rows depend on each other, as commands: no statement meets a value that another row still has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.event import RowType
from changefeed.table import TableId, TableName
from processor.task.rows.folding import fold
from sink.dependence import Dependence
from sink.mongodb.rows.bulk_command import adds_fields
from sink.mongodb.rows.bulk_plan import Batch, Limits, new_fields_apart, plan
from sink.mongodb.rows.statements.document_edit import edited
from sink.row import RowChange, TargetTable

_NAME = TableName("shop", "people")
_LIMITS = [
    Limits(joined=False),
    Limits(joined=True),
    Limits(joined=True, joined_changes=3),
    Limits(joined=False, changes=2),
]
_VALUES = ["a", "b", "c", None]


def _table(dependence: Dependence) -> TargetTable:
    return TargetTable(id=TableId("ab" * 16), source=_NAME, name=_NAME, ordered=True, dependence=dependence)


_MAIL = [{"key": {"mail": 1}, "sparse": True}]
_UNIQUE = _table(Dependence.of(_MAIL, capped=False))
_CAPPED, _BOTH = _table(Dependence.of([], capped=True)), _table(Dependence.of(_MAIL, capped=True))


@dataclass
class _Rows:
    """A collection. `most`: of a capped one, which removes its oldest row when there are more."""

    most: int | None = None
    unique: bool = True
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    rolled_off: list[int] = field(default_factory=list)

    def apply(self, change: RowChange) -> None:
        key = bson.decode(change.key)["_id"]
        if change.type is RowType.DELETE:
            self.rows.pop(key, None)
            return
        if change.type is RowType.UPDATE:
            after = bson.decode(edited(bson.encode(self.rows[key]), [change.update or b""]))
        else:
            assert change.type is RowType.REPLACE or key not in self.rows
            after = bson.decode(change.document or b"")
        mail = after.get("mail")
        assert not (self.unique and mail) or all(
            row.get("mail") != mail for other, row in self.rows.items() if other != key
        )
        self.rows[key] = after
        if self.most is not None and len(self.rows) > self.most:
            self.rolled_off.append(oldest := next(iter(self.rows)))
            del self.rows[oldest]


class _History:
    """What a source does, and logs."""

    def __init__(self, table: TargetTable, random: Random, source: _Rows) -> None:
        self._table = table
        self._random = random
        self.source = source
        self.logged: list[RowChange] = []

    def act(self) -> None:
        key, choice = self._random.randrange(5), self._random.random()
        mail = self._random.choice(_VALUES)
        owner = next((other for other, row in self.source.rows.items() if row.get("mail") == mail), None)
        if mail is not None and owner not in (None, key):
            mail = None
        whole = {"_id": key, "n": len(self.logged)} | ({"mail": mail} if mail else {})
        if key not in self.source.rows:
            self._log(RowType.INSERT, key, document=whole)
        elif choice < 0.3:
            self._log(RowType.DELETE, key)
        elif choice < 0.4:
            self._log(RowType.REPLACE, key, document=whole)
        elif choice < 0.6:
            self._log(RowType.UPDATE, key, update={"updatedFields": {"n": len(self.logged)}, "removedFields": []})
        elif choice < 0.7:
            new = {f"x{len(self.logged)}": 1}
            self._log(RowType.UPDATE, key, update={"updatedFields": new, "removedFields": list(new)})
        elif mail is None:
            self._log(RowType.UPDATE, key, update={"updatedFields": {}, "removedFields": ["mail"]})
        else:
            added = [] if "mail" in self.source.rows[key] else ["mail"]
            self._log(RowType.UPDATE, key, update={"updatedFields": {"mail": mail}, "removedFields": added})

    def _log(self, kind: RowType, key: int, *, document: Any = None, update: Any = None) -> None:
        said = [bson.encode(each) if each is not None else None for each in (document, update)]
        change = RowChange(self._table, kind, bson.encode({"_id": key}), said[0], said[1], len(self.logged), b"")
        self.logged.append(change)
        self.source.apply(change)
        for gone in self.source.rolled_off:
            self.logged.append(
                RowChange(self._table, RowType.DELETE, bson.encode({"_id": gone}), None, None, len(self.logged), b"")
            )
        self.source.rolled_off.clear()


def _commands(changes: Sequence[RowChange], limits: Limits) -> Iterator[Batch]:
    for batch in plan(fold(changes), limits):
        yield from new_fields_apart(batch, adds_fields)


def _independent(batch: Batch, *, capped: bool) -> bool:
    """Whether a server may apply its changes in any order."""
    kinds = {change.type for change in batch.changes}
    return kinds == {RowType.DELETE} or batch.first or (kinds == {RowType.INSERT} and not capped)


@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 40),
    st.sampled_from(_LIMITS),
    st.sampled_from([(_UNIQUE, None), (_CAPPED, 1), (_CAPPED, 3), (_BOTH, 1), (_BOTH, 3)]),
)
def test_no_row_meets_a_value_that_another_one_still_has(
    seed: int, acts: int, limits: Limits, made: tuple[TargetTable, int | None]
) -> None:
    """`made`: the table, and how many rows a capped one has. A part of the history is there already."""
    table, most = made
    random, unique = Random(seed), table is not _CAPPED
    history = _History(table, random, _Rows(most, unique=unique))
    for _ in range(acts):
        history.act()
    target, done = _Rows(most, unique=unique), random.randrange(len(history.logged) + 1)
    for change in history.logged[:done]:
        target.apply(change)
    target.rolled_off.clear()
    for batch in _commands(history.logged[done:], limits):
        assert batch.ordered or len(batch.changes) == 1 or _independent(batch, capped=most is not None)
        for change in batch.changes:
            target.apply(change)
    assert not target.rolled_off, "the target removed a row that was still to be removed by a change, or kept"
    assert target.rows == history.source.rows
    if most is not None:
        assert list(target.rows) == list(history.source.rows)


def _change(kind: RowType, key: int, *, update: Any = None, table: TargetTable = _UNIQUE) -> RowChange:
    document = bson.encode({"_id": key}) if kind is RowType.INSERT else None
    described = {"updatedFields": dict.fromkeys(update or (), 1), "removedFields": []}
    return RowChange(
        table, kind, bson.encode({"_id": key}), document, bson.encode(described) if update else None, 0, b""
    )


def _shape(batches: Sequence[Batch]) -> list[list[str]]:
    return [[f"{change.type} {bson.decode(change.key)['_id']}" for change in batch.changes] for batch in batches]


def test_alternating_kinds_are_three_commands() -> None:
    kinds = [RowType.INSERT, RowType.UPDATE, RowType.DELETE] * 3
    changes = [_change(kind, key, update=["n"] if kind is RowType.UPDATE else None) for key, kind in enumerate(kinds)]
    assert _shape(plan(fold(changes), _LIMITS[0])) == [
        ["delete 2", "delete 5", "delete 8"],
        ["update 1", "update 4", "update 7"],
        ["insert 0", "insert 3", "insert 6"],
    ]


def test_an_update_of_a_unique_value_comes_after_the_insert_of_its_row_and_before_what_may_take_the_old_one() -> None:
    changes = [
        _change(RowType.INSERT, 1),
        _change(RowType.UPDATE, 1, update=["mail"]),
        _change(RowType.INSERT, 2),
        _change(RowType.UPDATE, 3, update=["n"]),
    ]
    assert _shape(plan(fold(changes), _LIMITS[0])) == [["update 3"], ["insert 1"], ["update 1"], ["insert 2"]]


@pytest.mark.parametrize("table", [_UNIQUE, _table(Dependence(paths=None)), _CAPPED])
def test_a_replay_keeps_the_order_of_the_source(table: TargetTable) -> None:
    changes = [_change(kind, key, table=table) for key, kind in enumerate([RowType.INSERT, RowType.DELETE] * 2)]
    assert fold(changes, replay=True) == changes
    assert _shape(plan(changes, _LIMITS[0], replay=True)) == [["insert 0"], ["delete 1"], ["insert 2"], ["delete 3"]]
