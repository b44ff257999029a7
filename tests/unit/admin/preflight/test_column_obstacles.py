"""What `columns` must not do to the tables that there are."""

from __future__ import annotations

from typing import Any

import pytest

from admin.preflight.table_obstacles import column_obstacles, column_warnings
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema

USERS = TableName("shop", "users")
KEYED = {"hash_key": "${env:K}"}


def configured(tables: tuple[str, ...] = ("shop.*",), **rule: Any) -> Configuration:
    fields: dict[str, Any] = {"id": "f", "source": "mongodb://a", "sink": "mongodb://b", "filter": {"tables": tables}}
    return Configuration.parse(fields | ({"columns": [{"tables": ["*.users"], **rule}]} if rule else {}))


def table(shard_key: dict[str, Any] | None = None, **index: Any) -> TableSchema:
    return TableSchema(
        id=TableId("ab" * 16),
        name=USERS,
        valid_from=Position(ClusterTime(1, 1)),
        indexes=(Document.of({"name": "an_index", **index}),) if index else (),
        shard_key=Document.of(shard_key) if shard_key else None,
    )


def obstacles(
    configuration: Configuration,
    *tables: TableSchema,
    version: tuple[int, int] = (6, 0),
    before: Configuration | None = None,
) -> str:
    return "; ".join(column_obstacles(configuration, tables, version, before, [USERS]))


@pytest.mark.parametrize(
    ("rule", "found", "said"),
    [
        ({"drop": ["email"]}, table(key={"email": 1}, unique=True), "part of the unique index an_index"),
        ({"mask": {"a": 1}}, table(key={"n": 1, "a.b": 1}, unique=True), "hash it"),
        ({"hash": ["email"], **KEYED}, table(key={"email": 1}, unique=True), ""),
        ({"drop": ["email"]}, table(key={"email": 1}), ""),
        ({"drop": ["email"]}, table(key={"emails": 1}, unique=True), ""),
        ({"hash": ["at"], **KEYED}, table(key={"at": "2dsphere"}), "takes positions only"),
        ({"drop": ["at"]}, table(key={"at": "2dsphere"}), ""),
        ({"hash": ["region"], **KEYED}, table(shard_key={"region": 1}), "part of the shard key"),
    ],
)
def test_what_a_rule_would_break(rule: dict[str, Any], found: TableSchema, said: str) -> None:
    problems = obstacles(configured(**rule), found)
    assert said in problems
    assert bool(said) == bool(problems)


def test_a_source_before_5_0_does_not_say_what_an_update_creates() -> None:
    assert "drop address as a whole" in obstacles(configured(drop=["address.street"]), table(), version=(4, 4))
    assert not obstacles(configured(drop=["address"], mask={"a.b": 1}), table(), version=(4, 4))
    assert not obstacles(configured(drop=["address.street"]), table())


def test_the_rules_of_a_replicated_table_stay() -> None:
    now, before = configured(drop=["ssn"]), configured()
    assert "is replicated already" in obstacles(now, before=before)
    assert not obstacles(now, before=now)
    assert not obstacles(configured(("shop.*", "!shop.users"), drop=["ssn"]), before=before)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({"key": {"at": 1}, "expireAfterSeconds": 5}, "expires documents by at"),
        ({"key": {"n": 1}, "partialFilterExpression": {"at": {"$gt": 1}}}, "has a condition on at"),
        ({"key": {"n": 1}}, ""),
    ],
)
def test_indexes_that_are_something_else_at_the_target(index: dict[str, Any], said: str) -> None:
    warnings = "; ".join(column_warnings(configured(mask={"at": None}), [table(**index)]))
    assert said in warnings
    assert bool(said) == bool(warnings)
