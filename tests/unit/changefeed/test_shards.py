from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.shards import Shards, differing
from changefeed.table import TableId

tables = st.integers(0, 20).map(lambda number: TableId(f"t{number}"))
maps = st.dictionaries(tables, st.integers(0, 3))


@settings(max_examples=200)
@given(maps, maps, st.sets(tables))
def test_shards_are_a_map_and_changes_make_another(
    first: dict[TableId, int], changed: dict[TableId, int], removed: set[TableId]
) -> None:
    removed -= changed.keys()
    before = Shards(first)
    after = before.but(changed, removed)
    expected = {table: value for table, value in (first | changed).items() if table not in removed}
    assert (dict(before), dict(after)) == (first, expected)
    assert (len(before), len(after)) == (len(first), len(expected))
    for table in first.keys() | expected.keys() | {TableId("other")}:
        assert after.get(table) == expected.get(table)
        assert (table in after) == (table in expected)
    apart = {table for table in first.keys() | expected.keys() if first.get(table) != expected.get(table)}
    assert differing(before, after) == differing(first, expected) == differing(before, expected) == apart
