"""Which tables of source and target belong together."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.documents.document import EMPTY
from changefeed.position import Position
from changefeed.records.ddl import ObservedTable
from changefeed.table import TableId, TableName, TableSchema
from verify.definitions import origin, pairs

OBSERVED = ObservedTable(uuid=None, options=EMPTY, indexes=())


def configuration(**fields: Any) -> Configuration:
    return Configuration.parse({"id": "f", "source": "mongodb://a", "sink": "mongodb://b", **fields})


def schema(name: str) -> TableSchema:
    return TableSchema(id=TableId(name), name=TableName.parse(name), valid_from=Position(ClusterTime(1, 1)))


def paired(feed: Configuration, source: list[str], target: list[str]) -> dict[str, tuple[list[str], bool]]:
    found = pairs(
        feed,
        [schema(name) for name in source],
        {TableName.parse(name): OBSERVED for name in target},
        lambda name: not name.coll.startswith("unchosen"),
    )
    return {str(pair.name): ([str(s.name) for s in pair.sources], pair.target is not None) for pair in found}


def test_tables_meet_under_the_name_they_are_routed_to() -> None:
    feed = configuration(
        filter={"tables": ["shop.*", "eu.*", "!shop.tmp_*"]},
        routes=[{"from": "shop.*", "to": "dr.*"}, {"from": "eu.*", "to": "dr.eu"}],
    )
    source = ["shop.orders", "shop.items", "shop.tmp_1", "shop.unchosen", "eu.a", "eu.b", "other.x"]
    target = ["dr.orders", "dr.old", "dr.eu", "dr.tmp_2", "dr.unchosen_too", "other.y", "shop.z"]
    assert paired(feed, source, target) == {
        "dr.orders": (["shop.orders"], True),
        "dr.items": (["shop.items"], False),
        "dr.eu": (["eu.a", "eu.b"], True),
        "dr.old": ([], True),
    }


@pytest.mark.parametrize(
    ("routes", "name", "expected"),
    [
        ([], "shop.a", "shop.a"),
        ([], "other.a", None),
        ([{"from": "shop.*", "to": "dr.*"}], "dr.a", "shop.a"),
        ([{"from": "shop.*", "to": "dr.*"}], "shop.a", None),
        ([{"from": "shop.*", "to": "shop.copy_*"}], "shop.copy_a", "shop.a"),
        ([{"from": "shop.*", "to": "shop.copy_*"}], "shop.a", None),
        ([{"from": "sh*.old_*", "to": "dr_*.new_*"}], "dr_op.new_x", "shop.old_x"),
        ([{"from": "sh*.old_*", "to": "dr_*.new_*"}], "dr_op.x", None),
        ([{"from": "shop.a", "to": "dr.b"}], "dr.b", "shop.a"),
        ([{"from": "shop.*", "to": "dr.all"}], "dr.all", None),
        ([{"from": "shop.a", "to": "dr.a"}, {"from": "shop.*", "to": "x.*"}], "x.a", None),
    ],
)
def test_a_name_at_the_target_is_traced_back_to_the_source(
    routes: list[dict[str, str]], name: str, expected: str | None
) -> None:
    feed = configuration(filter={"tables": ["shop.*"]}, routes=routes)
    found = origin(feed, TableName.parse(name))
    assert (str(found) if found else None) == expected


def test_the_dead_letters_are_nobodys_copy() -> None:
    feed = configuration(dead_letter="sluice.rejected")
    assert origin(feed, TableName.parse("sluice.rejected")) is None
    assert origin(feed, TableName.parse("sluice.other")) is not None
