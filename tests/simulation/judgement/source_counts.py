"""`count_source`: counts the kinds of DDL and of times that a source had in a run, so that rare ones are known to occur."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from changefeed.event import DdlType
from changefeed.table import TableId, TableName
from tests.simulation.cluster import Cluster
from tests.simulation.source.tables import Ddl


def count_source(cluster: Cluster, wants: Callable[[TableName], bool]) -> None:
    gone: set[TableName] = set()
    renamed: set[TableId] = set()
    count = cluster.machine.count
    for ddl in cluster.source.ddls:
        count(f"source: {ddl.type}", 1)
        if ddl.type is DdlType.CREATE and ddl.names <= gone:
            count("source: create under a dropped table's name", 1)
        if ddl.type is DdlType.DROP:
            gone |= ddl.names
        if ddl.to is not None:
            for what in _kinds_of_rename(ddl, ddl.to, renamed, wants):
                count(what, 1)
    ddl_times = {ddl.position.ts for ddl in cluster.source.ddls}
    for ts, events in cluster.source.event_times().items():
        if events > 1:
            count(
                f"source: several events of one cluster time, {'DDL among them' if ts in ddl_times else 'rows only'}", 1
            )


def _kinds_of_rename(
    ddl: Ddl, to: TableName, renamed: set[TableId], wants: Callable[[TableName], bool]
) -> Iterator[str]:
    [table], [name] = ddl.ids - ddl.dropped, ddl.names - {to}
    if wants(name) != wants(to):
        yield f"source: rename {'into' if wants(to) else 'out of'} the filter"
    if ddl.dropped:
        yield "source: rename over another table"
    if table in renamed:
        yield "source: rename of a renamed table"
    renamed.add(table)
