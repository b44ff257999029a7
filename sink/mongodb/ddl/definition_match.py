"""`same_options`, `same_indexes`: whether two tables have equal options and indexes, as far as a user or a query can observe. Pure.

Servers write the same definition differently: later versions leave out defaults, earlier ones round sizes or add versions of their
formats. After this is normalized, definitions are compared byte by byte, so field order and number types inside a validator count.

Not compared: the storage format of an index (`v`), the ICU version of a collation, `background` and `ns` of old servers, the index
that a clustered collection shows, the order of indexes. Under `ttl: deferred` any expiry equals any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import bson

from changefeed.config.configuration import Ttl
from changefeed.documents.document import Document
from sink.mongodb.ddl.target_definition import EXPIRY, index_specification, without_version

_OPTIONS_NOT_COMPARED = frozenset({"uuid", "idIndex", "temp", "autoIndexId", "flags", "recordPreImages"})
_OPTION_DEFAULTS: Mapping[str, Any] = {
    "capped": False,
    "validator": {},
    "validationLevel": "strict",
    "validationAction": "error",
    "changeStreamPreAndPostImages": {"enabled": False},
    "collation": {"locale": "simple"},
    "max": 0,
}
_COLLATION_DEFAULTS: Mapping[str, Any] = {
    "caseLevel": False,
    "caseFirst": "off",
    "strength": 3,
    "numericOrdering": False,
    "alternate": "non-ignorable",
    "maxVariable": "punct",
    "normalization": False,
    "backwards": False,
}
_INDEX_DEFAULTS: Mapping[str, Any] = {
    "unique": False,
    "sparse": False,
    "hidden": False,
    "prepareUnique": False,
    "collation": {"locale": "simple"},
    "default_language": "english",
    "language_override": "language",
}


def same_options(source: Document, target: Document, ttl: Ttl) -> bool:
    return not option_differences(source, target, ttl)


def same_indexes(source: Iterable[Document], target: Iterable[Document], ttl: Ttl) -> bool:
    return not index_differences(source, target, ttl)


def option_differences(source: Document, target: Document, ttl: Ttl) -> tuple[str, ...]:
    """Each as part of a sentence: `validator is {...} at the source, absent at the target`."""
    return _differences(_options(source, ttl), _options(target, ttl), "")


def index_differences(source: Iterable[Document], target: Iterable[Document], ttl: Ttl) -> tuple[str, ...]:
    at_source, at_target = _indexes(source, ttl), _indexes(target, ttl)
    found = [f"index {name} is missing at the target" for name in at_source.keys() - at_target.keys()]
    found += [f"index {name} is at the target only" for name in at_target.keys() - at_source.keys()]
    for name in at_source.keys() & at_target.keys():
        found += _differences(at_source[name], at_target[name], f"index {name}: ")
    return tuple(sorted(found))


def _differences(source: Mapping[str, Any], target: Mapping[str, Any], prefix: str) -> tuple[str, ...]:
    fields = sorted(source.keys() | target.keys())
    return tuple(
        f"{prefix}{field} is {source.get(field, 'absent')} at the source, {target.get(field, 'absent')} at the target"
        for field in fields
        if _exact(source.get(field)) != _exact(target.get(field))
    )


def _options(document: Document, ttl: Ttl) -> dict[str, Any]:
    options = {name: value for name, value in document.decode().items() if name not in _OPTIONS_NOT_COMPARED}
    if "collation" in options:
        options["collation"] = _collation(options["collation"])
    if "timeseries" in options:
        options["timeseries"] = _sorted(_timeseries(options["timeseries"]))
    if "clusteredIndex" in options:
        options["clusteredIndex"] = _sorted(plain_clustered_index(options["clusteredIndex"]))
    if options.get("capped"):
        options["size"] = _capped_size(options.get("size", 0))
    else:
        options.pop("size", None)
    if ttl is Ttl.DEFERRED:
        options.pop(EXPIRY, None)
    return _without_defaults(options, _OPTION_DEFAULTS)


def _indexes(documents: Iterable[Document], ttl: Ttl) -> dict[str, dict[str, Any]]:
    specifications = [document.decode() for document in documents]
    return {spec["name"]: _index(spec, ttl) for spec in specifications if "clustered" not in spec}


def _index(spec: Mapping[str, Any], ttl: Ttl) -> dict[str, Any]:
    index = index_specification(spec)
    index["key"] = {field: _way(way) for field, way in index["key"].items()}
    if "prepareUnique" in spec and not spec.get("unique"):
        index["prepareUnique"] = spec["prepareUnique"]
    if "collation" in index:
        index["collation"] = _collation(index["collation"])
    if "weights" in index:
        index["weights"] = _sorted({field: float(weight) for field, weight in index["weights"].items()})
    if "wildcardProjection" in index:
        index["wildcardProjection"] = _sorted_deeply(index["wildcardProjection"])
    if EXPIRY in index and ttl is Ttl.DEFERRED:
        index[EXPIRY] = "deferred"
    return _without_defaults(index, _INDEX_DEFAULTS)


def _collation(collation: Mapping[str, Any]) -> Any:
    return _sorted(_without_defaults(without_version(collation), _COLLATION_DEFAULTS))


def _sorted(fields: Any) -> Any:
    """For documents in which the order of fields has no meaning."""
    return dict(sorted(fields.items())) if isinstance(fields, Mapping) else fields


def _sorted_deeply(fields: Any) -> Any:
    """5.0 lists the fields of a projection in an order of its own."""
    return {name: _sorted_deeply(fields[name]) for name in sorted(fields)} if isinstance(fields, Mapping) else fields


def _way(way: Any) -> Any:
    """1, 1.0 and 1 as a long mean the same direction."""
    return float(way) if isinstance(way, (int, float)) else way


def plain_timeseries(timeseries: Mapping[str, Any]) -> dict[str, Any]:
    """Without the fields that a granularity implies: servers before 6.3 show them, and refuse them in commands."""
    implied = {"bucketMaxSpanSeconds", "bucketRoundingSeconds"} if "granularity" in timeseries else set()
    return {name: value for name, value in timeseries.items() if name not in implied}


def _timeseries(timeseries: Mapping[str, Any]) -> dict[str, Any]:
    """The default granularity is `seconds`, unless a bucket span is set."""
    chosen = "bucketMaxSpanSeconds" in timeseries
    return plain_timeseries(timeseries if chosen else {"granularity": "seconds", **timeseries})


def plain_clustered_index(index: Mapping[str, Any] | bool) -> dict[str, Any] | bool:
    return index if isinstance(index, bool) else {name: value for name, value in index.items() if name != "v"}


def _capped_size(size: float) -> int:
    """Servers before 6.2 round up to a multiple of 256, and to at least 4096."""
    return max(4096, -(-int(size) // 256) * 256)


def _without_defaults(fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in fields.items() if name not in defaults or _exact(value) != _exact(defaults[name])
    }


def _exact(value: Any) -> Any:
    """Documents are compared byte by byte, but a number at the top level is equal in every type."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return bson.encode({"": value})
