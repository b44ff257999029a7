from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.config.tables.column_rules import ColumnRule
from changefeed.documents.document import Document
from changefeed.table_layout import TableLayout, as_shown


def layout(bounds: int) -> TableLayout:
    found = (Document.of({"customer.id": number}) for number in range(1, bounds + 1))
    return TableLayout(key=Document.of({"customer.id": 1}), bounds=tuple(found))


@given(bounds=st.integers(0, 400), chunks=st.integers(1, 64))
def test_folded_chunks_have_equal_parts_of_the_sources(bounds: int, chunks: int) -> None:
    whole = layout(bounds)
    kept = whole.bounds_of(chunks)
    places = [0, *(whole.bounds.index(bound) + 1 for bound in kept), bounds + 1]
    sizes = [upper - lower for lower, upper in pairwise(places)]
    assert len(sizes) == min(chunks, bounds + 1)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("drop", "sharded"), [("customer", False), ("customer.id", False), ("customer.id.x", False), ("customers", True)]
)
def test_a_key_that_the_target_sees_otherwise_is_none(drop: str, sharded: bool) -> None:
    rule = ColumnRule.model_validate({"tables": ["shop.*"], "drop": [drop]})
    assert (as_shown(layout(3), [rule]) is not None) is sharded
    assert as_shown(None, []) is None
