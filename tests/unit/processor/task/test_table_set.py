"""A packed set of tables and its difference, against a plain set."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from changefeed.table import TableId
from processor.task.table_set import TableSet
from schema_store.packed_texts import NO_TEXTS

_SETS = st.frozensets(st.integers(0, 200).map(lambda number: TableId(f"{number:04x}")), max_size=200)


@given(st.lists(_SETS, min_size=1, max_size=6))
def test_a_set_that_changes_contains_what_a_plain_one_does(stages: list[frozenset[TableId]]) -> None:
    before, packed = frozenset[TableId](), TableSet()
    for now in stages:
        packed = packed.changed(before - now, now - before)
        assert set(packed) == now
        assert sorted(packed) == sorted(now)
        assert len(packed) == len(now)
        assert bool(packed) == bool(now)
        before = now
    sent = pickle.loads(pickle.dumps(packed.over(NO_TEXTS)))
    assert sent.over(packed.base) == packed


def test_few_changes_leave_the_base_and_many_replace_it() -> None:
    base = TableSet.of(TableId(f"{number:04x}") for number in range(10_000))
    few = base.changed({TableId("0001")}, {TableId("new")})
    assert few.base is base.base
    many = few.changed({TableId(f"{number:04x}") for number in range(500)}, set())
    assert many.base is not base.base
    assert not many.without
    assert not many.beside
