"""`LeftTables`, `left_tables`: which tables a shard may have had at a time after which it was removed, as the config servers tell. Pure.

A shard that is removed owns nothing any more. So what it had at an earlier time has left it since, and each way leaves entries:

    config.chunks        a chunk that names the shard, now or in its history
                         a chunk whose history does not reach back to that time: it may have been anywhere
    config.collections   another UUID: a resharding, whose donors are not known
    config.databases     another primary shard, or a drop: it may have had the unsharded tables of the database
                         (the drop of one of these leaves nothing: the database moves later, or is dropped)
    config.collections   a drop, which leaves the name only: its owners are not known. The entry of a renamed one is deleted, too, and another
                         one is inserted with its UUID, which may be dropped or resharded later

It may name too many tables, never too few.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableId, TableName
from source.ddl.ddl_description import uuid_of
from source.sharded.tables.live_tables import CHUNKS, COLLECTIONS, DATABASES, changed_field, document_id
from source.sharded.unit import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftTables:
    """What it may have had at a time: `uuids` of sharded tables, and the `databases` whose unsharded ones it may have had. `all`: nobody knows.

    Of sharded tables that were dropped since, the names are known: `dropped`. So are those that only have another name now, which `named` has.
    """

    uuids: frozenset[TableId] = frozenset()
    databases: frozenset[str] = frozenset()
    dropped: frozenset[TableName] = frozenset()
    named: frozenset[TableId] = frozenset()
    all: bool = False

    def may_have(self, name: TableName, uuids: Iterable[TableId]) -> bool:
        """`uuids`: all that the table has had."""
        of_table = frozenset(uuids)
        ended = name in self.dropped and self.named.isdisjoint(of_table)
        return self.all or ended or name.db in self.databases or not self.uuids.isdisjoint(of_table)


def left_tables(shard: str, since_ts: ClusterTime, operations: Iterable[Operation]) -> LeftTables:
    """`operations`: of the config servers, from that time to the removal or beyond."""
    uuids: set[TableId] = set()
    databases: set[str] = set()
    dropped: set[TableName] = set()
    named: dict[TableId, TableName] = {}
    for operation in operations:
        op, ns, o = operation["op"], operation["ns"], operation["o"]
        if ns == str(DATABASES) and (op == "d" or changed_field(operation, "primary") is not None):
            databases.add(str(document_id(operation)))
        elif ns == str(COLLECTIONS):
            name, uuid = TableName.parse(str(document_id(operation))), uuid_of(changed_field(operation, "uuid"))
            if op == "d" or uuid is not None:
                named = {other: given for other, given in named.items() if given != name}
            if op == "d":
                dropped.add(name)
            elif op == "u" and uuid is not None:
                uuids.add(uuid)
            elif uuid is not None:
                named[uuid] = name
        elif ns == str(CHUNKS) and "_id" in o and (uuid := uuid_of(o.get("uuid"))) is not None:
            history = o.get("history", ())
            owners = {str(o["shard"]), *(str(each["shard"]) for each in history)}
            known_since = min((ClusterTime.from_bson(each["validAfter"]) for each in history), default=None)
            if shard in owners or known_since is None or known_since >= since_ts:
                uuids.add(uuid)
    return LeftTables(
        uuids=frozenset(uuids), databases=frozenset(databases), dropped=frozenset(dropped), named=frozenset(named)
    )
