"""The scope of a DDL: each table that it holds or ends, and each name that it changes downstream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.tables.filter import Filter
from changefeed.config.tables.routes import Routes
from changefeed.documents.document import EMPTY, Document
from changefeed.errors import SourceUnsupported
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableId, TableKind, TableName, TableSchema, view_id
from owner.ddl.scope import DdlClassifier
from schema_store.versions import SchemaVersions

A, B, C, OTHER = (TableId(letter * 32) for letter in "abcd")
VIEW = view_id(TableName("shop", "v"))
KNOWN = SchemaVersions.of(
    [
        *(
            TableSchema(id=id, name=TableName(*name), valid_from=Position(ClusterTime(100, 1)))
            for id, name in {A: ("shop", "a"), B: ("shop", "b"), C: ("shop", "c"), OTHER: ("crm", "x")}.items()
        ),
        TableSchema(
            id=VIEW,
            name=TableName("shop", "v"),
            kind=TableKind.VIEW,
            options=Document.of({"viewOn": "a", "pipeline": []}),
            valid_from=Position(ClusterTime(100, 1)),
        ),
    ]
)
TOGETHER = ({"from": "shop.a", "to": "dr.all"}, {"from": "shop.b", "to": "dr.all"})


def classified(
    type: DdlType, table: str, id: TableId | None, routes: Iterable[dict[str, str]] = (), **fields: Any
) -> DdlRecord:
    name = TableName.parse(table)
    event = DdlEvent(position=Position(ClusterTime(100, 5)), type=type, db=name.db, table=name, id=id, **fields)
    classifier = DdlClassifier(
        filter=Filter.model_validate({"tables": ["shop.*", "crm.*", "!shop.out"]}),
        routes=Routes.model_validate(list(routes)),
        background_indexes=True,
    )
    record = classifier.classify(event, KNOWN, datetime(2026, 11, 22, tzinfo=UTC))
    assert record is not None
    return record


def index(**options: Any) -> Document:
    return Document.of({"indexes": [{"v": 2, "key": {"u": 1}, "name": "u_1", **options}]})


@pytest.mark.parametrize(
    ("type", "description"),
    [
        (DdlType.CREATE_INDEXES, index()),
        (DdlType.CREATE_INDEXES, index(unique=True)),
        (DdlType.DROP_INDEXES, index()),
        (DdlType.MODIFY, Document.of({"validator": {}})),
        (DdlType.DROP, EMPTY),
    ],
)
def test_a_ddl_concerns_every_table_under_its_name(type: DdlType, description: Document) -> None:
    """A unique index is built on the rows of all of them."""
    both = [{"from": "shop.?", "to": "dr.all"}]
    record = classified(type, "shop.a", A, both, description=description)
    assert record.scope.tables == {A, B, C}
    assert record.scope.names == {TableName("dr", "all")}
    assert record.scope.ended == ({A} if type is DdlType.DROP else set())


def test_a_table_under_another_name_is_not_concerned() -> None:
    record = classified(DdlType.CREATE_INDEXES, "shop.a", A, description=index())
    assert record.scope.tables == {A}
    assert record.scope.names == {TableName("shop", "a")}


def test_a_rename_concerns_the_table_that_it_replaces_and_ends_it() -> None:
    record = classified(DdlType.RENAME, "shop.a", A, renamed_to=TableName("shop", "b"), drop_target=B)
    assert record.scope.tables == {A, B}
    assert record.scope.ended == {B}
    assert record.scope.names == {TableName("shop", "a"), TableName("shop", "b")}


def test_a_rename_to_a_free_name_ends_nothing() -> None:
    record = classified(DdlType.RENAME, "shop.a", A, renamed_to=TableName("shop", "new"))
    assert record.scope.tables == {A}
    assert not record.scope.ended


def test_a_rename_out_of_the_filter_ends_its_table() -> None:
    record = classified(DdlType.RENAME, "shop.a", A, renamed_to=TableName("shop", "out"))
    assert record.event.type is DdlType.DROP
    assert record.scope.tables == record.scope.ended == {A}


def test_a_dropped_database_ends_its_tables_and_no_view_waits_for_a_node() -> None:
    event = DdlEvent(position=Position(ClusterTime(100, 5)), type=DdlType.DROP_DATABASE, db="shop")
    classifier = DdlClassifier(filter=Filter(), routes=Routes(), background_indexes=True)
    record = classifier.classify(event, KNOWN, datetime(2026, 11, 22, tzinfo=UTC))
    assert record is not None
    assert record.scope.tables == record.scope.ended == {A, B, C}
    assert record.scope.apart == {VIEW}
    assert record.scope.databases == {"shop"}


@pytest.mark.parametrize(
    ("options", "background"),
    [
        ({}, True),
        ({"key": {"$**": 1}}, True),
        ({"unique": True}, False),
        ({"prepareUnique": True}, False),
        ({"expireAfterSeconds": 60}, False),
        ({"key": {"u": "text"}}, False),
        ({"key": {"u": "2dsphere"}}, False),
    ],
)
def test_only_an_index_that_refuses_and_removes_nothing_is_built_while_rows_are_applied(
    options: dict[str, Any], background: bool
) -> None:
    assert classified(DdlType.CREATE_INDEXES, "shop.a", A, description=index(**options)).background is background


@pytest.mark.parametrize("table", ["shop.a", "shop.new"])
def test_an_unknown_command_is_never_skipped(table: str) -> None:
    with pytest.raises(SourceUnsupported, match="cannot be skipped"):
        classified(DdlType.UNKNOWN, table, A, description=Document.of({"inventedLater": 1}))


def test_a_shard_key_is_told_once_and_to_those_alone_to_whom_it_matters() -> None:
    sharded = DdlEvent(
        position=Position(ClusterTime(100, 5)),
        type=DdlType.SHARD_COLLECTION,
        db="shop",
        table=TableName("shop", "a"),
        id=A,
        description=Document.of({"shardKey": {"k": 1}}),
    )
    classifier, now = DdlClassifier(filter=Filter(), routes=Routes(), background_indexes=True), datetime.now(UTC)
    assert classifier.classify(sharded, KNOWN, now) is not None
    assert replace(classifier, shard_keys=False).classify(sharded, KNOWN, now) is None
    again = replace(sharded, position=Position(ClusterTime(100, 6)))
    assert classifier.classify(again, KNOWN.apply(sharded), now) is None
    for type in (DdlType.REFINE_SHARD_KEY, DdlType.RESHARD_COLLECTION):
        assert classifier.classify(replace(again, type=type), KNOWN.apply(sharded), now) is None
        other = replace(again, type=type, description=Document.of({"shardKey": {"k": 1, "j": 1}}))
        assert classifier.classify(other, KNOWN.apply(sharded), now) is not None
