"""The filter as a `$match` stage: what the source's server need not send at all.

Used right after `$changeStream`, on every server from 4.2 on: only equality, `$in`, `$or`, `$and`, `$nor` and regular
expressions on `operationType`, `ns` and `to`, which newer servers push down into their scan of the oplog.

Of a list of patterns the last match decides. Written without nesting, since BSON's depth is limited: a name is meant when some
pattern matches it and no later negated one does, so `["a.*", "!a.b", "a.bc"]` is

    (a.* and not a.b) or a.bc
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from changefeed.event import DdlType, RowType
from changefeed.filter import Filter
from changefeed.pattern import TablePattern, literal, regex
from changefeed.table import SYSTEM_DATABASES

Query: TypeAlias = dict[str, Any]

_NOTHING: Query = {"operationType": {"$in": []}}


def rows(filter_: Filter) -> Query:
    """The row events of the changefeed, but for what `ignore_where` leaves out."""
    ignored = [
        {"$and": [_types(rule_types), _tables(rule.tables, "ns")]}
        for rule in filter_.events
        if (rule_types := [type_ for type_ in rule.ignore if isinstance(type_, RowType)])
    ]
    return _and(_types(RowType), _wanted(filter_, "ns"), *([{"$nor": ignored}] if ignored else []))


def ddl(filter_: Filter) -> Query:
    """The DDL events that `Filter.ddl` has a disposition for."""
    of_tables = [type_ for type_ in DdlType if type_ not in (DdlType.RENAME, DdlType.DROP_DATABASE)]
    return _or(
        _and(_types(of_tables), _wanted(filter_, "ns")),
        _and(_types([DdlType.RENAME]), _or(_wanted(filter_, "ns"), _wanted(filter_, "to"))),
        _and(_types([DdlType.DROP_DATABASE]), _no_system_database("ns"), _databases(filter_.tables)),
    )


def everything(filter_: Filter) -> Query:
    return _or(rows(filter_), ddl(filter_))


def _types(types: Iterable[RowType | DdlType]) -> Query:
    return {"operationType": {"$in": [type_.value for type_ in types]}}


def _wanted(filter_: Filter, at: str) -> Query:
    no_system_table = {"$nor": [{f"{at}.coll": {"$regex": r"^system\."}}]}
    return _and(_no_system_database(at), no_system_table, _tables(filter_.tables, at))


def _no_system_database(at: str) -> Query:
    return {f"{at}.db": {"$nin": sorted(SYSTEM_DATABASES)}}


def _tables(patterns: Sequence[TablePattern], at: str) -> Query:
    return _last_match(patterns, lambda pattern: _and(_part(f"{at}.db", pattern.db), _part(f"{at}.coll", pattern.coll)))


def _databases(patterns: Sequence[TablePattern]) -> Query:
    deciding = [pattern for pattern in patterns if not pattern.negated or pattern.whole_database]
    return _last_match(deciding, lambda pattern: _part("ns.db", pattern.db))


def _part(path: str, part: str) -> Query:
    name = literal(part)
    if name is not None:
        return {path: name}
    return {path: {"$exists": True}} if part == "*" else {path: {"$regex": regex(part), "$options": "s"}}


def _last_match(patterns: Sequence[TablePattern], condition: Callable[[TablePattern], Query]) -> Query:
    runs = [
        (negated, [condition(each) for each in run]) for negated, run in groupby(patterns, lambda each: each.negated)
    ]
    meant = []
    for number, (negated, run) in enumerate(runs):
        if not negated:
            excluded = [each for later_negated, later in runs[number + 1 :] if later_negated for each in later]
            meant.append(_and(_or(*run), *([{"$nor": excluded}] if excluded else [])))
    return _or(*meant) if meant else _NOTHING


def _and(*parts: Query) -> Query:
    return parts[0] if len(parts) == 1 else {"$and": list(parts)}


def _or(*parts: Query) -> Query:
    return parts[0] if len(parts) == 1 else {"$or": list(parts)}
