"""What the source's server is asked to leave out of a change stream: a `$match` of equality and `$in`, right after `$changeStream`.

The server decides as little as is cheap, and the reader decides the rest (`processor.task.rows.row_filter`). Measured on 6.0.5, CPU of the server for
each event of its oplog: 2 us for one of another database, 5 us for one of another collection, 7 to 9 us for one that it shows. `$nor` or
regular expressions make it 17 us for every event, and 6.0.5 refuses a `$nor` of two conditions.

So `rows` shows at least what the filter wants, and often more (heartbeats beside it):

    tables                          the server shows rows of
    shop.*, !shop.tmp_*             shop
    shop.orders, shop.items         orders and items in shop
    shop.orders, crm.notes          orders and notes in shop and crm: both of them in both
    shop.a*, *.orders               every database

A server of 6.0 makes regular expressions over its oplog of these names, and forgets to escape `{`: rows of a table that it is asked for as
`a{1}` are never shown. So only names of plain characters are sent.

It never looks into system databases and collections by itself: no pattern can name one, and the reader leaves them out.

Heartbeats (`source/stream/heartbeat.py`) pass, of rows and of DDL, and the reader drops them: they are places to stop at.
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
"""With that of heartbeats. The server looks through them one by one, at 0.1 us each, for every event."""

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")

_HEARTBEAT_TYPE = RowType.REPLACE

_HEARTBEATS: Query = {"ns.db": HEARTBEAT_DATABASE, "ns.coll": HEARTBEAT_COLLECTION}

DDL: Mapping[str, list[Query]] = {
    "$or": [{"operationType": {"$in": sorted(type_.value for type_ in SHOWN_BY_STREAMS)}}, _HEARTBEATS]
}
"""Of all databases: changefeeds with different filters share the stream, and a rename concerns two names.

Here alone the server is asked for one thing or another: 3.1 us an entry on 6.0.5, as much as for DDL alone.
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
    """Without those that are ignored of every table. Something is left: no server was ever asked for nothing."""
    everywhere = [rule for rule in filter_.events if rule.tables in ((EVERYTHING,), filter_.tables)]
    return set(RowType).difference(*(rule.ignore for rule in everywhere)) or set(RowType)


def _names(parts: Iterable[str], of_heartbeats: str) -> dict[str, list[str]] | None:
    """None: they are too many, or not all are plain names."""
    found: set[str] = {of_heartbeats}
    for part in parts:
        name = literal(part)
        if name is None or not _PLAIN.fullmatch(name):
            return None
        found.add(name)
    return {"$in": sorted(found)} if len(found) <= _MOST_NAMES else None
