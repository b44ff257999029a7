"""`troubles`: which tables of a changefeed are not where the others are, and why. Pure.

Of several troubles of a table the first one counts:

    lost         its history has left the source's oplog: it has to be copied again
    stopped      nothing of it is written until a user resumes it
    refused      the target refused a DDL of it, which waits for a user
    behind       it waits for another such table, is catching up, or is tried on another node
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from changefeed.lifecycle import ErrorReport
from changefeed.records import DdlRecord
from changefeed.table import TableId
from owner.ddl.stragglers import StoredStraggler, known_tables


class TroubleKind(StrEnum):
    LOST = "lost"
    STOPPED = "stopped"
    REFUSED = "refused"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class TableTrouble:
    """`error` is None if a user stopped the table, or if it is behind for the sake of another one."""

    kind: TroubleKind
    error: ErrorReport | None = None

    @property
    def waits_for_user(self) -> bool:
        return self.kind is not TroubleKind.BEHIND


def troubles(
    stragglers: Mapping[TableId, StoredStraggler], records: Iterable[DdlRecord]
) -> dict[TableId, TableTrouble]:
    found = {
        table: _trouble(stored) if stored.record.stopped else TableTrouble(TroubleKind.BEHIND, stored.record.error)
        for table, stored in stragglers.items()
    }
    for record in sorted(records, key=lambda record: record.position, reverse=True):
        if record.open and record.refused is not None:
            for table in known_tables(record):
                if table not in found or not found[table].waits_for_user or found[table].kind is TroubleKind.REFUSED:
                    found[table] = TableTrouble(TroubleKind.REFUSED, record.refused)
    return found


def _trouble(stored: StoredStraggler) -> TableTrouble:
    return TableTrouble(TroubleKind.LOST if stored.lost else TroubleKind.STOPPED, stored.record.error)
