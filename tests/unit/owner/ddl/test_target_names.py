"""The tables that have a name downstream are found without a look at all tables, and are the same as with one."""

from __future__ import annotations

from itertools import product
from typing import cast

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.tables.routes import Routes
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from owner.ddl.scope import TargetNames
from schema_store.versions import SchemaVersions

NAMES = [TableName(db, coll) for db, coll in product(("r1", "r2", "all"), ("a", "b", "orders"))]


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def routes(*rules: tuple[str, str]) -> Routes:
    return Routes.model_validate([{"from": taken, "to": given} for taken, given in rules])


def known(names: list[TableName]) -> SchemaVersions:
    return SchemaVersions.of(
        TableSchema(id=TableId(f"{number:032x}"), name=name, valid_from=at(1)) for number, name in enumerate(names)
    )


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [("r1.*", "r2.*")],
        [("*.orders", "all.orders")],
        [("r?.*", "all.*")],
        [("r1.a", "all.orders"), ("*.orders", "all.orders_"), ("r*.*", "all.x*")],
        [("r2.b", "r1.a"), ("r*.*", "all.all")],
    ],
)
def test_they_are_those_that_a_look_at_all_tables_finds(rules: list[tuple[str, str]]) -> None:
    made = routes(*rules)
    found = TargetNames(made)
    versions = known(NAMES)
    renamed = DdlEvent(
        position=at(5),
        type=DdlType.RENAME,
        db="r1",
        table=TableName("r1", "b"),
        renamed_to=TableName("r3", "orders"),
        id=TableId(f"{1:032x}"),
    )
    for position, tables in (
        (at(3), versions),
        (at(7), versions.apply(renamed)),
        (at(9), versions.apply(renamed).gc(at(9)).merged()),
    ):
        everything = tables.tables_at(position)
        for target in {made.target(schema.name) for schema in everything} | set(NAMES):
            expected = {schema.id for schema in everything if made.target(schema.name) == target}
            having = found.having({target}, position, tables)
            assert {schema.id for schema in having} == expected
            assert len(having) == len(expected)


class CountingRouter:
    """Counts the tables that are looked at for an index."""

    def __init__(self, *rules: tuple[str, str]) -> None:
        made = routes(*rules)
        self.looks = 0
        self.origins, self.few_origins, self.target = made.origins, made.few_origins, made.target
        self._gathers = made.gathers

    def gathers(self, name: TableName) -> bool:
        self.looks += 1
        return self._gathers(name)


def test_all_tables_are_looked_at_once_for_a_base_and_only_for_a_rule_that_gathers() -> None:
    versions = known(NAMES)
    plain, gathering = CountingRouter(("r1.*", "r2.*")), CountingRouter(("*.orders", "all.orders"))
    for router in (plain, gathering):
        found = TargetNames(cast("Routes", router))
        for name in NAMES * 2:
            found.having({name}, at(5), versions)
    assert (plain.looks, gathering.looks) == (0, len(NAMES))
