"""Whether two databases hold the same, found without the product's code: raw BSON, sorted by its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import OperationFailure

_CURSOR_NOT_FOUND, _QUERY_PLAN_KILLED = 43, 175
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)


def documents(client: MongoClient[Any], database: str, collection: str) -> list[bytes]:
    """Of a time series its buckets, as they are stored."""
    series = "timeseries" in options(client, database).get(collection, {})
    found = client[database][f"system.buckets.{collection}" if series else collection].with_options(_RAW).find()
    return sorted(bytes(document.raw) for document in found)


def indexes(client: MongoClient[Any], database: str, collection: str) -> dict[str, dict[str, Any]]:
    """Indexes by name, without the fields for its namespace and its format version. A view has none."""
    if "viewOn" in options(client, database).get(collection, {}):
        return {}
    listed = client[database][collection].list_indexes()
    return {index["name"]: _specification(index) for index in listed}


def _specification(index: Mapping[str, Any]) -> dict[str, Any]:
    """6.0.27 repeats the expiry of a clustered collection, which is an option of the collection, in its index; 6.0.5 does not.

    5.0.4 lists the fields of a projection in its own order.
    """
    unsaid = ("ns", "v", "expireAfterSeconds") if index.get("clustered") else ("ns", "v")
    return {
        name: dict(value) if name == "wildcardProjection" else value
        for name, value in index.items()
        if name not in unsaid
    }


def options(client: MongoClient[Any], database: str) -> dict[str, dict[str, Any]]:
    """Options of each collection, by its name."""
    listed = client[database].list_collections()
    return {entry["name"]: entry.get("options", {}) for entry in listed if not entry["name"].startswith("system.")}


def differences(source: MongoClient[Any], source_db: str, target: MongoClient[Any], target_db: str) -> list[str]:
    """The differences in words; empty when both hold the same collections, options, indexes and documents."""
    here, there = options(source, source_db), options(target, target_db)
    found = [f"collections {sorted(here)} became {sorted(there)}"] if sorted(here) != sorted(there) else []
    for name in here.keys() & there.keys():
        if here[name] != there[name]:
            found.append(f"{name}: options {here[name]} became {there[name]}")
        if "viewOn" in here[name] or "viewOn" in there[name]:
            continue  # a view shows documents of other collections, and has no indexes
        if indexes(source, source_db, name) != indexes(target, target_db, name):
            found.append(
                f"{name}: indexes {indexes(source, source_db, name)} became {indexes(target, target_db, name)}"
            )
        try:
            found += _different_documents(source, source_db, target, target_db, name)
        except OperationFailure as error:
            if error.code not in (_CURSOR_NOT_FOUND, _QUERY_PLAN_KILLED):
                raise
            found.append(f"{name}: dropped or renamed while it was read")
    return found


def _different_documents(
    source: MongoClient[Any], source_db: str, target: MongoClient[Any], target_db: str, name: str
) -> list[str]:
    expected, observed = documents(source, source_db, name), documents(target, target_db, name)
    if expected == observed:
        return []
    missing, extra = set(expected) - set(observed), set(observed) - set(expected)
    counts = f"{len(expected)} documents became {len(observed)}: {len(missing)} missing, {len(extra)} extra"
    first, other = ([RawBSONDocument(raw) for raw in sorted(some)[:2]] for some in (missing, extra))
    return [f"{name}: {counts}; {first} against {other}"]
