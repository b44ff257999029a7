"""Each kind of DDL, with the target's state before it and a check of the state after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from changefeed.documents.document import Document
from changefeed.table import TableName
from sink.ddl import (
    CreateIndexes,
    CreateTable,
    DropIndexes,
    DropTables,
    ModifyTable,
    RenameTable,
    ReplaceView,
    SingleDdl,
)

Database = Any

FIFTY_YEARS = 50 * 365 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`prepare` creates the target's state before the DDL; `after` checks the state after it."""

    prepare: Callable[[Database], None]
    ddl: Callable[[str], SingleDdl]
    after: Callable[[Database], bool]
    since: str = "4.4"
    """The oldest server version that supports it."""


def options(db: Database, name: str) -> dict[str, Any]:
    (entry,) = db.list_collections(filter={"name": name})
    return dict(entry["options"])


def indexes(db: Database, name: str) -> dict[str, dict[str, Any]]:
    return {index["name"]: dict(index) for index in db[name].list_indexes()}


def documents(db: Database, name: str) -> list[dict[str, Any]]:
    return list(db[name].find(sort=[("_id", 1)]))


def nothing(_: Database) -> None:
    pass


def one_row(db: Database) -> None:
    db.a.insert_one({"_id": 1, "x": 1})


def two_tables(db: Database) -> None:
    one_row(db)
    db.b.insert_one({"_id": 2})


def indexed(db: Database) -> None:
    one_row(db)
    db.a.create_index("x", name="x_1")
    db.a.create_index("y", name="y_1", expireAfterSeconds=3600)


def a_french_table(db: Database) -> None:
    db.create_collection("a", collation={"locale": "fr"})
    db.a.insert_many([{"_id": 1, "x": "é"}, {"_id": 2, "x": "e"}])


def a_view(db: Database) -> None:
    one_row(db)
    db.command({"create": "v", "viewOn": "a", "pipeline": []})


def create(name: str, **of: Any) -> Callable[[str], SingleDdl]:
    return lambda db: CreateTable(name=TableName(db, name), options=Document.of(of))


def replace_view(name: str, **match: Any) -> Callable[[str], SingleDdl]:
    options = Document.of({"viewOn": "a", "pipeline": [{"$match": match}]})
    return lambda db: ReplaceView(name=TableName(db, name), options=options)


def create_indexes(*specs: Mapping[str, Any]) -> Callable[[str], SingleDdl]:
    return lambda db: CreateIndexes(name=TableName(db, "a"), indexes=tuple(map(Document.of, specs)))


def modify(name: str, **changes: Any) -> Callable[[str], SingleDdl]:
    return lambda db: ModifyTable(name=TableName(db, name), changes=Document.of(changes))


def drop(*names: str) -> Callable[[str], SingleDdl]:
    return lambda db: DropTables(names=tuple(TableName(db, name) for name in names))


def rename(replaces: bool) -> Callable[[str], SingleDdl]:
    return lambda db: RenameTable(name=TableName(db, "a"), to=TableName(db, "b"), replaces=replaces)


CASES: dict[str, Case] = {
    "create": Case(prepare=nothing, ddl=create("a"), after=lambda db: options(db, "a") == {}),
    "create capped": Case(
        prepare=nothing,
        ddl=create("a", capped=True, size=8192, max=5),
        after=lambda db: options(db, "a") == {"capped": True, "size": 8192, "max": 5},
    ),
    "create with validator": Case(
        prepare=nothing,
        ddl=create("a", validator={"x": {"$gte": 0}}, validationLevel="moderate", validationAction="warn"),
        after=lambda db: (
            options(db, "a")
            == {"validator": {"x": {"$gte": 0}}, "validationLevel": "moderate", "validationAction": "warn"}
        ),
    ),
    "create clustered, expiry deferred": Case(
        since="6.0",
        prepare=nothing,
        ddl=create("a", clusteredIndex={"key": {"_id": 1}, "unique": True, "name": "c"}, expireAfterSeconds=60),
        after=lambda db: options(db, "a").keys() == {"clusteredIndex"},
    ),
    "create time-series": Case(
        since="5.0",
        prepare=nothing,
        ddl=create("a", timeseries={"timeField": "t", "granularity": "hours", "bucketMaxSpanSeconds": 2592000}),
        after=lambda db: (
            options(db, "a")
            == {"timeseries": {"timeField": "t", "granularity": "hours", "bucketMaxSpanSeconds": 2592000}}
        ),
    ),
    "create view": Case(
        prepare=one_row,
        ddl=create("v", viewOn="a", pipeline=[{"$match": {"x": 1}}]),
        after=lambda db: documents(db, "v") == [{"_id": 1, "x": 1}],
    ),
    "replace a view": Case(
        prepare=a_view, ddl=replace_view("v", x=1), after=lambda db: documents(db, "v") == [{"_id": 1, "x": 1}]
    ),
    "replace a view that is missing": Case(
        prepare=one_row,
        ddl=replace_view("v", x=2),
        after=lambda db: "viewOn" in options(db, "v") and not documents(db, "v"),
    ),
    "create with pre-images": Case(
        since="6.0",
        prepare=nothing,
        ddl=create("a", changeStreamPreAndPostImages={"enabled": True}),
        after=lambda db: options(db, "a") == {"changeStreamPreAndPostImages": {"enabled": True}},
    ),
    "createIndexes of several kinds": Case(
        prepare=one_row,
        ddl=create_indexes(
            {"v": 2, "key": {"x": 1, "z": -1}, "name": "compound", "unique": True, "sparse": True},
            {"v": 2, "key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 60},
            {"v": 2, "key": {"p": 1}, "name": "p_1", "partialFilterExpression": {"p": {"$gt": 0}}, "hidden": True},
            {"v": 2, "key": {"$**": 1}, "name": "wild", "wildcardProjection": {"m": 1}},
            {"v": 2, "key": {"loc": "2dsphere"}, "name": "loc", "2dsphereIndexVersion": 3},
        ),
        after=lambda db: (
            indexes(db, "a").keys() == {"_id_", "compound", "at_1", "p_1", "wild", "loc"}
            and list(indexes(db, "a")["compound"]["key"].items()) == [("x", 1), ("z", -1)]
            and indexes(db, "a")["at_1"]["expireAfterSeconds"] >= FIFTY_YEARS
        ),
    ),
    "createIndexes of simple collation on a table of another": Case(
        prepare=a_french_table,
        ddl=create_indexes(
            {"v": 2, "key": {"x": 1}, "name": "simple", "unique": True},
            {"v": 2, "key": {"x": 1}, "name": "french", "collation": {"locale": "fr", "version": "57.1"}},
            {"v": 2, "key": {"_fts": "text", "_ftsx": 1}, "name": "text", "weights": {"x": 1}},
            {"v": 2, "key": {"x": "hashed"}, "name": "hashed"},
        ),
        after=lambda db: (
            {name for name, index in indexes(db, "a").items() if "collation" in index} == {"_id_", "french"}
            and len(indexes(db, "a")) == 5
        ),
    ),
    "createIndexes prepared for unique": Case(
        since="6.0",
        prepare=one_row,
        ddl=create_indexes(
            {"v": 2, "key": {"x": 1}, "name": "x_1", "prepareUnique": True},
            {"v": 2, "key": {"y": 1}, "name": "y_1"},
            {"v": 2, "key": {"z": 1}, "name": "z_1", "prepareUnique": True},
        ),
        after=lambda db: (
            [indexes(db, "a")[name].get("prepareUnique", False) for name in ("x_1", "y_1", "z_1")]
            == [True, False, True]
        ),
    ),
    "dropIndexes": Case(
        prepare=indexed,
        ddl=lambda db: DropIndexes(name=TableName(db, "a"), indexes=("x_1", "y_1")),
        after=lambda db: indexes(db, "a").keys() == {"_id_"},
    ),
    "collMod validator": Case(
        prepare=one_row,
        ddl=modify("a", validator={"x": {"$gte": 1}}),
        after=lambda db: options(db, "a")["validator"] == {"x": {"$gte": 1}},
    ),
    "collMod expiry, deferred": Case(
        prepare=indexed,
        ddl=modify("a", index={"name": "y_1", "expireAfterSeconds": 60}),
        after=lambda db: indexes(db, "a")["y_1"]["expireAfterSeconds"] >= FIFTY_YEARS,
    ),
    "collMod to unique": Case(
        since="6.0",
        prepare=indexed,
        ddl=modify("a", index={"name": "x_1", "unique": True}),
        after=lambda db: indexes(db, "a")["x_1"]["unique"] is True,
    ),
    "collMod pre-images": Case(
        since="6.0",
        prepare=one_row,
        ddl=modify("a", changeStreamPreAndPostImages={"enabled": True}),
        after=lambda db: options(db, "a")["changeStreamPreAndPostImages"] == {"enabled": True},
    ),
    "drop": Case(prepare=two_tables, ddl=drop("a"), after=lambda db: db.list_collection_names() == ["b"]),
    "drop view": Case(
        prepare=a_view,
        ddl=drop("v"),
        after=lambda db: sorted(db.list_collection_names()) == ["a", "system.views"],
    ),
    "dropDatabase": Case(prepare=two_tables, ddl=drop("a", "b"), after=lambda db: db.list_collection_names() == []),
    "rename": Case(
        prepare=indexed,
        ddl=rename(replaces=False),
        after=lambda db: (
            db.list_collection_names() == ["b"]
            and documents(db, "b") == [{"_id": 1, "x": 1}]
            and "x_1" in indexes(db, "b")
        ),
    ),
    "rename replacing": Case(
        prepare=two_tables,
        ddl=rename(replaces=True),
        after=lambda db: db.list_collection_names() == ["b"] and documents(db, "b") == [{"_id": 1, "x": 1}],
    ),
    "rename where the replaced is gone": Case(
        prepare=one_row,
        ddl=rename(replaces=True),
        after=lambda db: documents(db, "b") == [{"_id": 1, "x": 1}],
    ),
}
