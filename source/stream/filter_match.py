"""`rows`, `DDL`: the `$match` of a change stream, of equality and `$in` only, right after `$changeStream`.

The server decides only what is cheap; the reader decides the rest (`processor.task.rows.gate`). Measured on 6.0.5, CPU of the server
for each event of its oplog: 2 us for one of another database, 5 us for one of another collection, 7 to 9 us for one that it shows. `$nor`
or regular expressions make it 17 us for every event, and 6.0.5 refuses a `$nor` of two conditions.

So `rows` passes at least what the filter wants, often more, and the heartbeats:

    tables                          the server shows rows of
    shop.*, !shop.tmp_*             shop
    shop.orders, shop.items         orders and items in shop
    shop.orders, crm.notes          orders and notes, both of them in shop and in crm
    shop.a*, *.orders               every database

A 6.0 server makes these names into regular expressions over its oplog, and does not escape `{`: the rows of a table `a{1}` are never shown
if that name is sent. So only names of plain characters are sent.

The match does not exclude system databases and collections: no pattern can name one, and the reader drops them.

Heartbeats (`source/stream/note.py`) pass both matches, and the reader drops them: a stream can stop at them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from changefeed.config.tables.filter import Filter
from changefeed.config.tables.pattern import EVERYTHING, literal
from changefeed.event import SHOWN_BY_STREAMS, RowType
from changefeed.table import HEARTBEAT_COLLECTION, HEARTBEAT_DATABASE

Query: TypeAlias = Mapping[str, str | dict[str, list[str]]]

_MOST_NAMES = 17
"""Including the one of heartbeats. The server compares them one by one, at 0.1 us each, for every event."""

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")

_HEARTBEAT_TYPE = RowType.REPLACE

_HEARTBEATS: Query = {"ns.db": HEARTBEAT_DATABASE, "ns.coll": HEARTBEAT_COLLECTION}

DDL: Mapping[str, list[Query]] = {
    "$or": [{"operationType": {"$in": sorted(type_.value for type_ in SHOWN_BY_STREAMS)}}, _HEARTBEATS]
}
"""DDL of all databases: changefeeds with different filters share the stream, and a rename concerns two names.

It is the only match with an `$or`: 3.1 us an entry on 6.0.5, as much as for DDL alone.
"""


def rows(filter_: Filter) -> Query:
    wanted = [pattern for pattern in filter_.tables if not pattern.negated]
    databases = _names((pattern.db for pattern in wanted), HEARTBEAT_DATABASE)
    collections = _names((pattern.coll for pattern in wanted), HEARTBEAT_COLLECTION)
    query: dict[str, str | dict[str, list[str]]] = {
        "operationType": {"$in": sorted(type_.value for type_ in _types(filter_) | {_HEARTBEAT_TYPE})}
    }
    if databases:
        query["ns.db"] = databases
    if collections:
        query["ns.coll"] = collections
    return query


def _types(filter_: Filter) -> set[RowType]:
    """Without the types that are ignored for every table. If none would be left, it is all: an empty list was never tried on a server."""
    everywhere = [rule for rule in filter_.events if rule.tables in ((EVERYTHING,), filter_.tables)]
    return set(RowType).difference(*(rule.ignore for rule in everywhere)) or set(RowType)


def _names(parts: Iterable[str], of_heartbeats: str) -> dict[str, list[str]] | None:
    """None if they are too many, or if not all are plain names."""
    found: set[str] = {of_heartbeats}
    for part in parts:
        name = literal(part)
        if name is None or not _PLAIN.fullmatch(name):
            return None
        found.add(name)
    return {"$in": sorted(found)} if len(found) <= _MOST_NAMES else None
