"""`outgrown`: the tables that stand still and of which more DDLs wait than are kept. Pure.

The DDLs of a table that stands wait with it, in etcd and in the owner's memory, for as long as the source has its rows: days, and a program may
change the options of a table every second. So too many of them end the table's wait: it is lost, as if the source had forgotten its rows, and
goes on by being copied anew. From then on no DDL of it is recorded but those that end or rename it (`recording.py`).

    waiting of     a 1001   b 900, stopped   c 2000, held up by nothing       a is lost
    in all         of 12 standing tables 900 each                             the first is lost, then 9900 are left

A table that cannot be copied anew is not given up: the source's oplog bounds what waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from changefeed.errors import HistoryLost
from changefeed.lifecycle import ErrorReport
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableId
from owner.ddl.stragglers import SKIPPABLE, StoredStraggler, Waiting

_MOST = 1_000
"""Of one table. They run one after another when it goes on."""
_MOST_BYTES = 1_000_000
"""Of their descriptions. In etcd they are several times larger."""
_MOST_IN_ALL = 10_000


def outgrown(
    records: Iterable[DdlRecord],
    stragglers: Mapping[TableId, StoredStraggler],
    waiting: Waiting,
    can_be_copied: Callable[[TableId], bool],
    now: datetime,
) -> dict[TableId, ErrorReport]:
    if not waiting.standing:
        return {}
    counts, sizes, ending = Counter[TableId](), Counter[TableId](), set[TableId]()
    for record in records:
        table = record.event.id
        if not record.open:
            continue
        ending |= record.scope.ended
        if table in waiting.standing and record.event.type in SKIPPABLE:
            counts[table] += 1
            sizes[table] += len(record.event.description.raw)
    kept = {
        table: count
        for table, count in counts.items()
        if table not in ending and not (table in stragglers and stragglers[table].lost) and can_be_copied(table)
    }
    in_all, lost = sum(kept.values()), dict[TableId, ErrorReport]()
    for table, count in sorted(kept.items(), key=lambda each: (-each[1], each[0])):
        if count > _MOST or sizes[table] > _MOST_BYTES or in_all > _MOST_IN_ALL:
            in_all -= count
            lost[table] = ErrorReport.of(_lost(count).about(table), now)
    return lost


def _lost(count: int) -> HistoryLost:
    return HistoryLost(
        f"it stands still, and {count} DDLs of it wait, more than are kept; have it copied anew: `sluice table recopy`"
    )
