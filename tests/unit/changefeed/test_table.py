"""Table names may be any that MongoDB allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema, identified, view_id

_CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
NAMES = st.builds(
    TableName,
    st.text(_CHARACTERS, min_size=1, max_size=8).filter(lambda db: "." not in db),
    st.text(_CHARACTERS, min_size=1, max_size=12),
)


@given(NAMES)
def test_the_first_dot_separates_database_and_collection(name: TableName) -> None:
    adapter = TypeAdapter(TableName)

    assert TableName.parse(str(name)) == name
    assert adapter.validate_json(adapter.dump_json(name)) == name


@pytest.mark.parametrize("text", ["shop.a.b.c", "shop.$cmd", "shop.商品", "shop. ", "shop..a"])
def test_collections_may_hold_dots_dollars_and_unicode(text: str) -> None:
    assert TableName.parse(text).db == "shop"
    assert str(TableName.parse(text)) == text


@pytest.mark.parametrize("text", ["", "shop", "shop.", ".orders", "shop.a\0b"])
def test_half_a_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a table name; write database"):
        TableName.parse(text)


def test_a_database_name_holds_no_dot() -> None:
    with pytest.raises(ValueError, match="is not a table name"):
        TableName("a.b", "c")


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ("admin.users", True),
        ("config.chunks", True),
        ("local.oplog.rs", True),
        ("shop.system.views", True),
        ("shop.system.buckets.weather", True),
        ("shop.systematic", False),
        ("shop.my.system.views", False),
        ("administration.users", False),
    ],
)
def test_internal_tables_of_the_server_are_system(text: str, system: bool) -> None:
    assert TableName.parse(text).system is system


def test_a_view_is_known_by_its_name() -> None:
    assert view_id(TableName("shop", "recent.orders")) == "view:shop.recent.orders"


def test_a_table_of_the_catalog_is_known_by_each_uuid_that_it_has_had() -> None:
    first, moved, other = (TableId(digit * 32) for digit in "abc")
    at = Position(ClusterTime(100, 1))
    known = TableSchema(id=first, name=TableName("shop", "a"), uuids=(moved,), valid_from=at)
    listed = [TableSchema(id=id, name=TableName("shop", id[0]), valid_from=at) for id in (moved, other)]
    assert [(table.id, table.uuids) for table in identified(listed, [known])] == [(first, (moved,)), (other, ())]
    assert identified([known], [known]) == (known,)
