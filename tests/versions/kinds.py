"""Every kind of DDL that a server accepts, each in its own databases, with its prerequisites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bson.son import SON
from pymongo import IndexModel
from pymongo.database import Database as _Database

Database = _Database[dict[str, Any]]
Version = tuple[int, ...]

V4_4, V5_0, V6_0 = (4, 4), (5, 0), (6, 0)
_FRENCH = {"locale": "fr", "strength": 1}
_CLUSTERED = {"key": {"_id": 1}, "unique": True, "name": "by_id"}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`before` runs in a database, then `ddl`. `elsewhere`: the suffix of another database that it writes to."""

    column: str
    before: Callable[[Database], object]
    ddl: Callable[[Database], object]
    since: Version = V4_4
    elsewhere: str | None = None
    one_release: bool = False
    """Only where source and target are of one release."""

    def known_to(self, source: Version, target: Version) -> bool:
        return min(source, target) >= self.since and (not self.one_release or source[:2] == target[:2])


def nothing(_: Database) -> None:
    pass


def rows(db: Database) -> None:
    documents = [
        {"_id": n, "a": n, "b": f"word {n % 7}", "h": {"k": n}, "loc": [n % 90, n % 45], "u": f"u{n}"}
        for n in range(50)
    ]
    db["t"].insert_many(documents)


def _two(db: Database) -> None:
    rows(db)
    db["old"].insert_many([{"_id": n, "old": True} for n in range(10)])
    db["old"].create_index("old")


def _accented(db: Database) -> None:
    db.create_collection("t", collation=_FRENCH)
    db["t"].insert_many([{"_id": word, "word": word} for word in ("cote", "côtes", "mur")])


def _accented_alike(db: Database) -> None:
    """Two values that the table's collation considers equal, in a field with an index that is unique by bytes."""
    _accented(db)
    db["t"].insert_many([{"_id": n, "word": word} for n, word in enumerate(("é", "e"))])


def _view(db: Database) -> None:
    rows(db)
    db.create_collection("v", viewOn="t", pipeline=[{"$match": {"a": {"$gt": 3}}}])


def _indexed(db: Database) -> None:
    rows(db)
    db["t"].create_indexes(
        [
            IndexModel("a", name="a_1"),
            IndexModel([("b", 1), ("a", -1)], name="ba"),
            IndexModel("at", name="at_1", expireAfterSeconds=3600),
            IndexModel([("b", "text")], name="words"),
        ]
    )


def _series(db: Database) -> None:
    db.create_collection("s", timeseries={"timeField": "at", "metaField": "m", "granularity": "seconds"})
    day = datetime(2026, 1, 1, tzinfo=UTC)
    for hour in range(20):
        db["s"].insert_many([{"at": day + timedelta(hours=hour, seconds=n), "m": n % 3, "v": n} for n in range(30)])


def _strict(db: Database) -> None:
    db.create_collection("t", validator={"a": {"$gte": 0}}, validationLevel="moderate", validationAction="warn")
    rows(db)


def _clustered(db: Database) -> None:
    db.create_collection("t", clusteredIndex=_CLUSTERED, expireAfterSeconds=7200)


def _capped(db: Database) -> None:
    db.create_collection("t", capped=True, size=1 << 20, max=500)
    rows(db)


def _create(**options: Any) -> Callable[[Database], object]:
    return lambda db: db.create_collection("t", **options)


def _collated_in_transaction(db: Database) -> None:
    with db.client.start_session() as session, session.start_transaction():
        db.create_collection("t", session=session)
        db["t"].create_index("a", session=session)
        db["t"].insert_many([{"_id": n, "a": n} for n in range(5)], session=session)


def _index(keys: Any, **options: Any) -> Callable[[Database], object]:
    return lambda db: db["t"].create_index(keys, **options)


def _modify(name: str = "t", **changes: Any) -> Callable[[Database], object]:
    return lambda db: db.command(SON([("collMod", name), *changes.items()]))


def _to_unique(db: Database) -> None:
    db.command("collMod", "t", index={"name": "a_1", "prepareUnique": True})
    db.command("collMod", "t", index={"name": "a_1", "unique": True})


def _rename_across(db: Database) -> None:
    db.client.admin.command("renameCollection", f"{db.name}.t", to=f"{db.name}_b.moved")


def _again(db: Database) -> None:
    db.drop_collection("t")
    db.create_collection("t", validator={"a": {"$exists": True}})
    db["t"].insert_many([{"_id": n, "a": "again"} for n in range(7)])


def _create_view(db: Database) -> None:
    db.create_collection("v", viewOn="t", pipeline=[{"$match": {"a": 1}}], collation=_FRENCH)


def _drop_database(db: Database) -> None:
    db.client.drop_database(db.name)


def _create_kind(ddl: Callable[[Database], object], since: Version = V4_4) -> Kind:
    return Kind(column="create", before=nothing, ddl=ddl, since=since)


def _index_kind(
    ddl: Callable[[Database], object], before: Callable[[Database], object] = rows, since: Version = V4_4
) -> Kind:
    return Kind(column="createIndexes", before=before, ddl=ddl, since=since)


def _modify_kind(
    ddl: Callable[[Database], object], before: Callable[[Database], object] = rows, since: Version = V4_4
) -> Kind:
    return Kind(column="collMod", before=before, ddl=ddl, since=since)


KINDS: Mapping[str, Kind] = {
    "create": _create_kind(_create()),
    "create_by_insert": _create_kind(rows),
    "create_capped": _create_kind(_create(capped=True, size=100_000, max=1000)),
    "create_validator": _create_kind(
        _create(validator={"a": {"$gte": 0}}, validationLevel="moderate", validationAction="warn")
    ),
    "create_schema": _create_kind(_create(validator={"$jsonSchema": {"required": ["a"]}})),
    "create_collation": _create_kind(_create(collation=_FRENCH)),
    "create_engine": _create_kind(_create(storageEngine={"wiredTiger": {"configString": "block_compressor=zstd"}})),
    "create_index_defaults": _create_kind(_create(indexOptionDefaults={"storageEngine": {"wiredTiger": {}}})),
    "create_in_transaction": _create_kind(_collated_in_transaction),
    "create_view": Kind(column="create", before=rows, ddl=_create_view),
    "create_series": Kind(column="create", before=nothing, ddl=_series, since=V5_0, one_release=True),
    "create_clustered": _create_kind(_clustered, since=V6_0),
    "create_clustered_collation": _create_kind(_create(clusteredIndex=_CLUSTERED, collation=_FRENCH), since=V6_0),
    "create_images": _create_kind(_create(changeStreamPreAndPostImages={"enabled": True}), since=V6_0),
    "index": _index_kind(_index([("a", 1), ("b", -1)])),
    "index_of_empty": _index_kind(_index([("a", 1), ("b", -1)]), before=_create()),
    "index_several": _index_kind(
        lambda db: db["t"].create_indexes([IndexModel("a"), IndexModel("b"), IndexModel("h.k")])
    ),
    "index_unique": _index_kind(_index("u", unique=True)),
    "index_sparse": _index_kind(_index("absent", unique=True, sparse=True)),
    "index_hidden": _index_kind(_index("a", hidden=True)),
    "index_partial": _index_kind(_index("a", partialFilterExpression={"a": {"$gt": 10}})),
    "index_ttl": _index_kind(_index("at", expireAfterSeconds=3600)),
    "index_text": _index_kind(_index([("a", 1), ("b", "text"), ("h.k", "text")], weights={"b": 3}, name="words")),
    "index_text_all": _index_kind(_index([("$**", "text")], default_language="german")),
    "index_hashed": _index_kind(_index([("h.k", "hashed")])),
    "index_hashed_compound": _index_kind(_index([("a", 1), ("h.k", "hashed")])),
    "index_2dsphere": _index_kind(_index([("loc", "2dsphere"), ("a", 1)])),
    "index_2d": _index_kind(_index([("loc", "2d")], bits=20, min=-200, max=200)),
    "index_wildcard": _index_kind(_index([("$**", 1)], wildcardProjection={"a": 1, "h": 1})),
    "index_wildcard_path": _index_kind(_index([("h.$**", 1)])),
    "index_collation": _index_kind(_index("b", collation={"locale": "de", "strength": 2})),
    "index_collation_of_table": _index_kind(_index("word"), before=_accented),
    "index_simple": _index_kind(_index("word", unique=True, collation={"locale": "simple"}), before=_accented_alike),
    "index_simple_of_empty": _index_kind(
        _index("word", collation={"locale": "simple"}), before=_create(collation=_FRENCH)
    ),
    "index_simple_of_clustered": _index_kind(
        _index("word", collation={"locale": "simple"}),
        before=_create(clusteredIndex=_CLUSTERED, collation=_FRENCH),
        since=V6_0,
    ),
    "drop_index": Kind(column="dropIndexes", before=_indexed, ddl=lambda db: db["t"].drop_index("ba")),
    "drop_index_text": Kind(column="dropIndexes", before=_indexed, ddl=lambda db: db["t"].drop_index("words")),
    "drop_indexes": Kind(column="dropIndexes", before=_indexed, ddl=lambda db: db["t"].drop_indexes()),
    "modify_validator": _modify_kind(_modify(validator={"a": {"$gte": 0}})),
    "modify_level": _modify_kind(_modify(validationLevel="off"), before=_strict),
    "modify_validator_off": _modify_kind(_modify(validator={}), before=_strict),
    "modify_ttl": _modify_kind(_modify(index={"name": "at_1", "expireAfterSeconds": 7200}), before=_indexed),
    "modify_hidden": _modify_kind(_modify(index={"keyPattern": {"a": 1}, "hidden": True}), before=_indexed),
    "modify_view": _modify_kind(_modify("v", viewOn="t", pipeline=[{"$match": {"b": "word 1"}}]), before=_view),
    "modify_unique": _modify_kind(_to_unique, before=_indexed, since=V6_0),
    "modify_to_ttl": _modify_kind(
        _modify(index={"name": "a_1", "expireAfterSeconds": 2**31 - 1}), before=_indexed, since=V6_0
    ),
    "modify_images": _modify_kind(_modify(changeStreamPreAndPostImages={"enabled": True}), since=V6_0),
    "modify_capped": _modify_kind(_modify(cappedSize=2 << 20, cappedMax=900), before=_capped, since=V6_0),
    "modify_clustered_ttl": _modify_kind(_modify(expireAfterSeconds=60), before=_clustered, since=V6_0),
    "modify_series": Kind(
        column="collMod",
        before=_series,
        ddl=_modify("s", timeseries={"granularity": "hours"}),
        since=V5_0,
        one_release=True,
    ),
    "index_series": Kind(
        column="createIndexes",
        before=_series,
        ddl=lambda db: db["s"].create_index([("m", 1), ("at", -1)]),
        since=V5_0,
        one_release=True,
    ),
    "rename": Kind(column="rename", before=_indexed, ddl=lambda db: db["t"].rename("renamed")),
    "rename_replacing": Kind(column="rename", before=_two, ddl=lambda db: db["t"].rename("old", dropTarget=True)),
    "rename_across": Kind(column="rename", before=_indexed, ddl=_rename_across, elsewhere="_b"),
    "drop": Kind(column="drop", before=_two, ddl=lambda db: db.drop_collection("old")),
    "drop_view": Kind(column="drop", before=_view, ddl=lambda db: db.drop_collection("v")),
    "drop_series": Kind(
        column="drop", before=_series, ddl=lambda db: db.drop_collection("s"), since=V5_0, one_release=True
    ),
    "drop_create": Kind(column="drop", before=_two, ddl=_again),
    "drop_database": Kind(column="drop", before=_view, ddl=_drop_database),
    "to_capped": Kind(
        column="convertToCapped", before=_indexed, ddl=lambda db: db.command("convertToCapped", "t", size=1 << 20)
    ),
}
"""The kinds by name, which is part of the names of their databases. A server supports only the kinds of its version."""

COLUMNS = tuple(dict.fromkeys(kind.column for kind in KINDS.values()))
