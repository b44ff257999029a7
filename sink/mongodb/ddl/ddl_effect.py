"""Has this DDL been done? Decided from the target as it was recorded before, and as it is now.

While a DDL runs, its tables are held: no row and no other DDL of this changefeed changes them. So the target can only be as before, as
after, or in between by this very DDL; anything else is somebody else's doing and nothing is guessed about it.

    CreateTable     the name is free: absent. The table under it is alike: present. It is different: unclear
    DropTables      each table that was there: gone, or still the same one. All gone: present; some: absent, the rest is dropped.
                    Another UUID under the name: unclear
    RenameTable     the old name still has the old UUID and the new name what it had, or nothing more where it is replaced: absent.
                    The old name is free and the new one has the old UUID: present. A rename across databases is a copy under a new UUID, as is every rename on some
                    compatible databases: there, the new name must have changed hands and look like what was renamed
    ShardTable      resharding gives the collection a new UUID: present. Otherwise as the next
    CreateIndexes   always absent while the UUID is the same. A server lists an index as soon as its build starts, so a list
    DropIndexes     proves nothing; sent again, the command joins a build under way and returns when it is done. Dropping
    ModifyTable     an index twice and setting a value to what it is change nothing either
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from changefeed.config.configuration import Ttl
from changefeed.event import DdlType
from changefeed.records import Observation, ObservedTable
from changefeed.table import TableName
from sink.ddl import (
    CreateIndexes,
    CreateTable,
    DownstreamDdl,
    DropIndexes,
    DropTables,
    ModifyTable,
    RenameTable,
    ShardTable,
    Skip,
)
from sink.mongodb.ddl.definition_match import option_differences, same_indexes, same_options


class DdlEffect(StrEnum):
    PRESENT = "present"
    ABSENT = "absent"
    """None of it, or a part; doing it (again) from its beginning does it once."""
    UNCLEAR = "unclear"


def effect(ddl: DownstreamDdl, before: Observation, now: Observation, ttl: Ttl) -> DdlEffect:
    match ddl:
        case Skip():
            return DdlEffect.PRESENT
        case CreateTable():
            return _created(ddl, now.tables.get(ddl.name), ttl)
        case DropTables():
            return _dropped(ddl.names, before, now)
        case RenameTable():
            return _renamed(ddl, before, now, ttl)
        case ShardTable() if ddl.how is DdlType.RESHARD_COLLECTION:
            return _resharded(before.tables.get(ddl.name), now.tables.get(ddl.name))
        case CreateIndexes() | DropIndexes() | ModifyTable() | ShardTable():
            same = _same_table(before.tables.get(ddl.name), now.tables.get(ddl.name))
            return DdlEffect.ABSENT if same else DdlEffect.UNCLEAR
        case _:
            assert_never(ddl)


def refusal(ddl: DownstreamDdl, before: Observation, ttl: Ttl) -> str | None:
    """Why a DDL cannot be done to a target as it was recorded, and what to do; None when it can."""
    match ddl:
        case CreateTable():
            return _create_refusal(ddl, before.tables.get(ddl.name), ttl)
        case RenameTable():
            if before.tables.get(ddl.name) is None:
                return _missing(ddl.name)
            if before.tables.get(ddl.to) is not None and not ddl.replaces:
                return f"{ddl.to} stands at the target, but not at the source; rename or drop it at the target"
            return None
        case CreateIndexes() | DropIndexes() | ModifyTable() | ShardTable():
            return _missing(ddl.name) if before.tables.get(ddl.name) is None else None
        case DropTables() | Skip():
            return None
        case _:
            assert_never(ddl)


def _missing(name: TableName) -> str:
    return f"{name} is not at the target; somebody dropped or renamed it there: copy the table again"


def _create_refusal(ddl: CreateTable, there: ObservedTable | None, ttl: Ttl) -> str | None:
    if there is None:
        return None
    differences = option_differences(ddl.options, there.options, ttl)
    if not differences:
        return None
    return (
        f"{ddl.name} stands at the target with other options: {'; '.join(differences)}. "
        "Drop it there, or route the table to another name"
    )


def _created(ddl: CreateTable, now: ObservedTable | None, ttl: Ttl) -> DdlEffect:
    if now is None:
        return DdlEffect.ABSENT
    return DdlEffect.PRESENT if same_options(ddl.options, now.options, ttl) else DdlEffect.UNCLEAR


def _dropped(names: tuple[TableName, ...], before: Observation, now: Observation) -> DdlEffect:
    remaining = False
    for name in names:
        there = now.tables.get(name)
        if there is not None and not _same_table(before.tables.get(name), there):
            return DdlEffect.UNCLEAR
        remaining = remaining or there is not None
    return DdlEffect.ABSENT if remaining else DdlEffect.PRESENT


def _renamed(ddl: RenameTable, before: Observation, now: Observation, ttl: Ttl) -> DdlEffect:
    old_before, old_now = before.tables.get(ddl.name), now.tables.get(ddl.name)
    new_before, new_now = before.tables.get(ddl.to), now.tables.get(ddl.to)
    untouched = _same(new_before, new_now) or (ddl.replaces and new_now is None)
    if _same_table(old_before, old_now) and untouched:
        return DdlEffect.ABSENT
    if old_before is None or old_now is not None or new_now is None:
        return DdlEffect.UNCLEAR
    if old_before.uuid == new_now.uuid:
        return DdlEffect.PRESENT
    return DdlEffect.PRESENT if _copied(old_before, new_before, new_now, ttl) else DdlEffect.UNCLEAR


def _copied(old: ObservedTable, replaced: ObservedTable | None, new: ObservedTable, ttl: Ttl) -> bool:
    changed_hands = replaced is None or replaced.uuid != new.uuid
    return changed_hands and same_options(old.options, new.options, ttl) and same_indexes(old.indexes, new.indexes, ttl)


def _resharded(before: ObservedTable | None, now: ObservedTable | None) -> DdlEffect:
    if before is None or now is None:
        return DdlEffect.UNCLEAR
    return DdlEffect.ABSENT if before.uuid == now.uuid else DdlEffect.PRESENT


def _same(before: ObservedTable | None, now: ObservedTable | None) -> bool:
    return (before is None and now is None) or _same_table(before, now)


def _same_table(before: ObservedTable | None, now: ObservedTable | None) -> bool:
    """The same one. A view has no UUID: it is the one that it was, unless a collection took its name."""
    return before is not None and now is not None and before.uuid == now.uuid and _is_view(before) == _is_view(now)


def _is_view(table: ObservedTable) -> bool:
    return "viewOn" in table.options.decode()
