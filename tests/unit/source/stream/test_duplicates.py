"""Reports of several shards about one DDL are one DDL. A DDL that a user repeats is two."""

from __future__ import annotations

from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import EMPTY, Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName
from source.stream.stream_ddl_watch import DuplicateFolder


def event(
    kind: DdlType, at: int, description: dict[str, Any] | None = None, *, coll: str | None = "a", to: str | None = None
) -> DdlEvent:
    return DdlEvent(
        position=Position(ClusterTime(100, at)),
        type=kind,
        db="shop",
        table=TableName("shop", coll) if coll else None,
        id=TableId("e859") if coll else None,
        renamed_to=TableName("shop", to) if to else None,
        description=Document.of(description) if description else EMPTY,
    )


def indexes(kind: DdlType, at: int, name: str, **options: Any) -> DdlEvent:
    return event(kind, at, {"indexes": [{"v": 2, "key": {name: 1}, "name": name, **options}]})


def folded(*events: DdlEvent) -> list[int]:
    folder = DuplicateFolder()
    return [e.position.ts.increment for e in events if not folder.is_duplicate(e)]


def test_a_drop_reported_by_each_shard_is_one_drop() -> None:
    assert folded(event(DdlType.DROP, 1), event(DdlType.DROP, 2), event(DdlType.DROP, 3)) == [1]


def test_a_database_dropped_again_after_it_came_back_is_dropped_twice() -> None:
    drop, again = (event(DdlType.DROP_DATABASE, at, coll=None) for at in (1, 4))
    assert folded(drop, event(DdlType.DROP_DATABASE, 2, coll=None), event(DdlType.CREATE, 3), again) == [1, 3, 4]


def test_builds_that_end_on_the_shards_in_turn_are_folded() -> None:
    one, other = (
        [indexes(DdlType.CREATE_INDEXES, at, name) for at in ats] for name, ats in (("x", (1, 3)), ("y", (2, 4)))
    )
    assert folded(one[0], other[0], one[1], other[1]) == [1, 2]


def test_an_index_created_dropped_and_created_again_is_three_ddls() -> None:
    history = [
        indexes(DdlType.CREATE_INDEXES, 1, "x"),
        indexes(DdlType.CREATE_INDEXES, 2, "x"),
        indexes(DdlType.DROP_INDEXES, 3, "x"),
        indexes(DdlType.DROP_INDEXES, 4, "x"),
        indexes(DdlType.CREATE_INDEXES, 5, "x"),
    ]
    assert folded(*history) == [1, 3, 5]


def test_an_index_of_one_name_with_other_options_is_another_ddl() -> None:
    assert folded(indexes(DdlType.CREATE_INDEXES, 1, "x"), indexes(DdlType.CREATE_INDEXES, 2, "x", unique=True)) == [
        1,
        2,
    ]


def test_a_rename_and_back_again_is_not_folded() -> None:
    there, back, again = (
        event(DdlType.RENAME, at, coll=coll, to=to) for at, coll, to in ((1, "a", "b"), (2, "b", "a"), (3, "a", "b"))
    )
    assert folded(there, back, again) == [1, 2, 3]


def test_two_different_changes_of_options_are_two() -> None:
    assert folded(
        event(DdlType.MODIFY, 1, {"validator": {"a": 1}}), event(DdlType.MODIFY, 2, {"validator": {"a": 2}})
    ) == [1, 2]
