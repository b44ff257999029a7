"""What keeps time series from being replicated."""

from __future__ import annotations

from typing import Any

import pytest

from admin.preflight.privileges import Privileges
from admin.preflight.table_obstacles import series_obstacles
from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.table import TableId, TableKind, TableName, TableSchema

ANYONE = Privileges()
READER = Privileges(user="r", granted=({"resource": {"db": "shop", "collection": ""}, "actions": ["find"]},))
EVERYWHERE = Privileges(user="r", granted=({"resource": {"system_buckets": ""}, "actions": ["find"]},))
_ACTIONS = ["find", "insert", "update", "remove", "bypassDocumentValidation"]
WRITER = Privileges(user="w", granted=({"resource": {"db": "shop", "system_buckets": ""}, "actions": _ACTIONS},))


def table(kind: TableKind = TableKind.TIMESERIES) -> TableSchema:
    return TableSchema(
        id=TableId("ab" * 16), name=TableName("shop", "w"), kind=kind, valid_from=Position(ClusterTime(1, 1))
    )


def obstacles(
    *tables: TableSchema,
    capture: Capture = Capture.OPLOG,
    source: tuple[int, int] | None = (6, 0),
    target: tuple[int, int] | None = (6, 0),
    users: tuple[Privileges, Privileges | None] = (ANYONE, ANYONE),
    **fields: Any,
) -> str:
    given = {"id": "f", "source": "mongodb://a", "sink": "mongodb://b", "filter": {"tables": ["shop.*"]}} | fields
    configuration = Configuration.parse(given)
    return "; ".join(series_obstacles(configuration, tables or (table(),), capture, (source, target), users))


def ignoring(*types: str) -> dict[str, Any]:
    return {"tables": ["shop.*"], "events": [{"tables": ["shop.w"], "ignore": list(types)}]}


def test_a_time_series_of_one_release_on_both_sides_is_replicated() -> None:
    assert obstacles() == ""
    assert obstacles(filter=ignoring("delete", "drop")) == ""
    assert obstacles(target=None, sink="blackhole://") == ""
    assert obstacles(table(TableKind.COLLECTION), capture=Capture.CHANGE_STREAM, target=(7, 0)) == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"capture": Capture.CHANGE_STREAM},
            "shop.w: change streams do not show its measurements; have the oplog read",
        ),
        ({"target": (7, 0)}, "the source is MongoDB 6.0 and the target 7.0"),
        ({"source": (8, 0), "target": (8, 0)}, "writes time series in another form"),
        ({"source": (8, 3), "target": (8, 3)}, "writes time series in another form"),
        ({"columns": [{"tables": ["shop.*"], "drop": ["v"]}]}, "take it out of `columns`"),
        ({"filter": ignoring("update")}, "its row events cannot be ignored"),
        ({"routes": [{"from": "*.w", "to": "all.w"}]}, "give it a name of its own"),
        ({"sink": "file:///tmp/x"}, "its buckets are no messages"),
        ({"users": (READER, ANYONE)}, 'role: "readAnyDatabase"'),
        ({"users": (EVERYWHERE, READER)}, 'resource: {db: "shop", system_buckets: ""}'),
    ],
)
def test_what_keeps_it_from_being_replicated_is_said_with_the_remedy(given: dict[str, Any], said: str) -> None:
    assert said in obstacles(**given)


def test_a_role_with_the_privilege_suffices() -> None:
    assert obstacles(users=(EVERYWHERE, WRITER)) == ""
    assert "may not" in obstacles(users=(EVERYWHERE, WRITER), routes=[{"from": "shop.*", "to": "other.*"}])
