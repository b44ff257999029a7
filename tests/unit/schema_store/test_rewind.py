"""Earlier tables, from the present ones and the DDLs in between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableKind, TableName, TableSchema, view_id
from schema_store.rewind import rewound
from schema_store.versions import SchemaVersions

A, B, C = TableId("a" * 32), TableId("b" * 32), TableId("c" * 32)


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def name(coll: str) -> TableName:
    return TableName("shop", coll)


def index(coll: str) -> Document:
    return Document.of({"v": 2, "key": {coll: 1}, "name": f"{coll}_1"})


def table(id: TableId, coll: str, *indexes: Document, **options: Any) -> TableSchema:
    return TableSchema(id=id, name=name(coll), indexes=indexes, options=Document.of(options), valid_from=at(50))


def ddl(increment: int, type: DdlType, coll: str, id: TableId | None, **more: Any) -> DdlEvent:
    return DdlEvent(position=at(increment), type=type, db="shop", table=name(coll), id=id, **more)


def indexes(*specifications: Document) -> Document:
    return Document.of({"indexes": [specification.decode() for specification in specifications]})


def then(tables: list[TableSchema], since: list[DdlEvent]) -> dict[str, tuple[TableId, tuple[Document, ...]]]:
    return {schema.name.coll: (schema.id, schema.indexes) for schema in rewound(tables, since, at(1))}


def test_the_worked_example() -> None:
    since = [
        ddl(5, DdlType.CREATE, "c", B),
        ddl(6, DdlType.DROP, "c", B),
        ddl(7, DdlType.RENAME, "a", A, renamed_to=name("b")),
        ddl(8, DdlType.CREATE_INDEXES, "b", A, description=indexes(index("x"))),
    ]
    assert then([table(A, "b", index("x"))], since) == {"a": (A, ())}


def test_an_index_that_is_presumed_to_be_old_stays_when_its_event_is_undone() -> None:
    described = Document.of(indexes(index("x"), index("y")).decode() | {"presumed": ["x_1"]})
    since = [ddl(8, DdlType.CREATE_INDEXES, "a", A, description=described)]
    assert then([table(A, "a", index("x"), index("y"))], since) == {"a": (A, (index("x"),))}


def test_a_swap_is_undone_by_ids() -> None:
    since = [
        ddl(5, DdlType.RENAME, "a", A, renamed_to=name("tmp")),
        ddl(6, DdlType.RENAME, "b", B, renamed_to=name("a")),
        ddl(7, DdlType.RENAME, "tmp", A, renamed_to=name("b")),
    ]
    assert then([table(A, "b"), table(B, "a")], since) == {"a": (A, ()), "b": (B, ())}


def test_the_table_that_a_rename_replaced_existed_before() -> None:
    since = [ddl(5, DdlType.RENAME, "a", A, renamed_to=name("b"), drop_target=B)]
    assert then([table(A, "b")], since) == {"a": (A, ()), "b": (B, ())}


def test_a_dropped_and_created_table_is_the_first_one_again() -> None:
    since = [ddl(5, DdlType.DROP, "a", A), ddl(6, DdlType.CREATE, "a", B)]
    assert then([table(B, "a", index("x"))], since) == {"a": (A, ())}


def test_a_dropped_index_exists_again() -> None:
    since = [ddl(5, DdlType.DROP_INDEXES, "a", A, description=indexes(index("x")))]
    assert then([table(A, "a")], since) == {"a": (A, (index("x"),))}


def test_a_dropped_view_is_a_view_again_beside_a_later_collection_of_its_name() -> None:
    since = [ddl(5, DdlType.DROP, "v", None), ddl(6, DdlType.CREATE, "v", C)]
    [view] = rewound([table(C, "v")], since, at(1))
    assert (view.id, view.kind) == (view_id(name("v")), TableKind.VIEW)


def test_a_shard_key_is_the_old_one_again() -> None:
    keys = Document.of({"shardKey": {"new": 1}, "oldShardKey": {"old": 1}})
    sharded = [table(A, "a")]
    [refined] = rewound(sharded, [ddl(5, DdlType.REFINE_SHARD_KEY, "a", A, description=keys)], at(1))
    assert refined.shard_key == Document.of({"old": 1})
    [before] = rewound(sharded, [ddl(4, DdlType.SHARD_COLLECTION, "a", A, description=keys)], at(1))
    assert before.shard_key == Document.of({"old": 1})


def test_of_a_shard_key_the_config_servers_do_not_say_what_it_was() -> None:
    now, said = replace(table(A, "a"), shard_key=Document.of({"new": 1})), Document.of({"shardKey": {"new": 1}})
    for type in (DdlType.REFINE_SHARD_KEY, DdlType.RESHARD_COLLECTION):
        assert [each.shard_key for each in rewound([now], [ddl(5, type, "a", A, description=said)], at(1))] == [
            now.shard_key
        ]
    [unsharded] = rewound([now], [ddl(5, DdlType.SHARD_COLLECTION, "a", A, description=said)], at(1))
    assert unsharded.shard_key is None


def test_the_rewound_tables_accept_all_events_since() -> None:
    """Even of a dropped table, of which only its own events are known."""
    hidden = Document.of({"index": {"name": "x_1", "hidden": True}})
    since = [
        ddl(5, DdlType.MODIFY, "gone", A, description=hidden),
        ddl(6, DdlType.DROP_INDEXES, "gone", A, description=indexes(index("x"))),
        ddl(7, DdlType.MODIFY, "gone", A, description=Document.of({"index": {"keyPattern": {"y": 1}, "hidden": True}})),
        ddl(8, DdlType.DROP, "gone", A),
        ddl(9, DdlType.CREATE, "gone", B),
    ]
    now = [table(B, "gone")]
    versions = SchemaVersions.of(rewound(now, since, at(1))).apply_all(since)
    assert [schema.id for _, schema in versions.living()] == [B]


def test_before_another_uuid_a_table_has_the_one_before() -> None:
    since = [ddl(5, DdlType.NEW_UUID, "a", A, description=Document.of({"uuid": B}))]
    since += [
        ddl(7, DdlType.RENAME, "a", B, renamed_to=name("b")),
        ddl(9, DdlType.CREATE_INDEXES, "b", B, description=indexes(index("x"))),
    ]
    assert then([table(B, "b", index("x"))], since) == {"a": (A, ())}


def test_a_dropped_time_series_exists_again_once_though_its_view_is_dropped_before_its_buckets() -> None:
    since = [
        ddl(5, DdlType.DROP, "w", view_id(name("w"))),
        ddl(6, DdlType.DROP, "w", A, description=Document.of({"timeseries": {}})),
    ]
    [found] = rewound([], since, at(1))
    assert (found.id, found.kind, found.bucketed) == (A, TableKind.TIMESERIES, True)


def test_a_view_that_ended_with_all_others_is_known_if_it_was_changed_before() -> None:
    view = view_id(name("v"))
    since = [
        ddl(5, DdlType.MODIFY, "v", view, description=Document.of({"viewOn": "a", "pipeline": []})),
        ddl(6, DdlType.DROP, "system.views", C),
        ddl(7, DdlType.CREATE, "v", B),
    ]
    earlier = rewound([table(B, "v")], since, at(1))
    assert {schema.id: schema.kind for schema in earlier if not schema.name.system} == {view: TableKind.VIEW}
