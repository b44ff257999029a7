"""`effect`: whether a DDL has been applied, decided from the recorded state of the target and its present state.

While a DDL runs, its tables are held: no row and no other DDL of this changefeed changes them. So the target can only be in the state
before this DDL, after it, or in between. Any other state was made by another client: it is unclear, and nothing is guessed about it.

    CreateTable     the name is free: absent. The table of that name is equal: present. It is different: unclear
    DropTables      each observed table is dropped, or still has its UUID. All dropped: present. Some left: absent, the rest is dropped.
                    The name has another UUID: unclear
    ReplaceView     the name is free, or has another view: absent. An equal view: present. A collection: unclear
    RenameTable     the old name has its old UUID, and the new name is unchanged, or free if its table is to be replaced: absent.
                    The old name is free and the new one has the old UUID: present.
                    A rename across databases, and every rename on some compatible databases, is a copy under a new UUID:
                    present if the old name is free, and the new name has a new UUID and the options and indexes of the renamed table
    ShardTable      resharding gives the collection a new UUID: present. Otherwise as the next
    CreateIndexes   always absent while the UUID is the same. A server lists an index as soon as its build starts, so a list
    DropIndexes     proves nothing; the repeated command joins a running build and returns when it is finished. Dropping
    ModifyTable     an index twice and setting a value again have no further effect
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from changefeed.config.configuration import Ttl
from changefeed.event import DdlType
from changefeed.records.ddl import Observation, ObservedTable
from changefeed.table import COPY_ANEW, TableName
from sink.ddl import (
    BeginAgain,
    CreateIndexes,
    CreateTable,
    DropIndexes,
    DropTables,
    ModifyTable,
    RenameTable,
    ReplaceView,
    ShardTable,
    SingleDdl,
    Skip,
)
from sink.mongodb.ddl.definition_match import option_differences, same_indexes, same_options


class DdlEffect(StrEnum):
    PRESENT = "present"
    ABSENT = "absent"
    """Nothing of it is applied, or a part; running it from its beginning applies it once."""
    UNCLEAR = "unclear"


def effect(  # noqa: PLR0911 - one case for each kind of DDL
    ddl: SingleDdl, before: Observation, now: Observation, ttl: Ttl
) -> DdlEffect:
    match ddl:
        case Skip():
            return DdlEffect.PRESENT
        case CreateTable():
            return _created(ddl, now.tables.get(ddl.name), ttl)
        case DropTables():
            return _dropped(ddl.names, before, now)
        case ReplaceView():
            return _view_replaced(ddl, now.tables.get(ddl.name), ttl)
        case RenameTable():
            return _renamed(ddl, before, now, ttl)
        case ShardTable() if ddl.how is DdlType.RESHARD_COLLECTION:
            return _resharded(before.tables.get(ddl.name), now.tables.get(ddl.name))
        case CreateIndexes() | DropIndexes() | ModifyTable() | ShardTable() | BeginAgain():
            same = _same_table(before.tables.get(ddl.name), now.tables.get(ddl.name))
            return DdlEffect.ABSENT if same else DdlEffect.UNCLEAR
        case _:
            assert_never(ddl)


def refusal(  # noqa: PLR0911 - one case for each kind of DDL
    ddl: SingleDdl, before: Observation, ttl: Ttl
) -> str | None:
    """Why a DDL cannot be applied to a target in the recorded state, and the remedy; None when it can."""
    match ddl:
        case CreateTable():
            return _create_refusal(ddl, before.tables.get(ddl.name), ttl)
        case ReplaceView():
            there = before.tables.get(ddl.name)
            return None if there is None or _is_view(there) else f"{ddl.name} is no view at the target; drop it there"
        case RenameTable():
            if before.tables.get(ddl.name) is None:
                return _missing(ddl.name)
            if before.tables.get(ddl.to) is not None and not ddl.replaces:
                return f"{ddl.to} exists at the target, but not at the source; rename or drop it at the target"
            return None
        case CreateIndexes() | DropIndexes() | ModifyTable() | ShardTable():
            return _missing(ddl.name) if before.tables.get(ddl.name) is None else None
        case BeginAgain():
            return f"{ddl.name} would begin again among messages, and a MongoDB has none; {COPY_ANEW}"
        case DropTables() | Skip():
            return None
        case _:
            assert_never(ddl)


def _missing(name: TableName) -> str:
    return f"{name} does not exist at the target; another client dropped or renamed it there: {COPY_ANEW}"


def _create_refusal(ddl: CreateTable, there: ObservedTable | None, ttl: Ttl) -> str | None:
    if there is None:
        return None
    differences = option_differences(ddl.options, there.options, ttl)
    if not differences:
        return None
    return (
        f"{ddl.name} exists at the target with other options: {'; '.join(differences)}. "
        "Drop it there, or route the table to another name"
    )


def _created(ddl: CreateTable, now: ObservedTable | None, ttl: Ttl) -> DdlEffect:
    if now is None:
        return DdlEffect.ABSENT
    return DdlEffect.PRESENT if same_options(ddl.options, now.options, ttl) else DdlEffect.UNCLEAR


def _view_replaced(ddl: ReplaceView, now: ObservedTable | None, ttl: Ttl) -> DdlEffect:
    if now is not None and not _is_view(now):
        return DdlEffect.UNCLEAR
    equal = now is not None and same_options(ddl.options, now.options, ttl)
    return DdlEffect.PRESENT if equal else DdlEffect.ABSENT


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
    """A view has no UUID: it counts as the same, unless a collection has its name."""
    return before is not None and now is not None and before.uuid == now.uuid and _is_view(before) == _is_view(now)


def _is_view(table: ObservedTable) -> bool:
    return "viewOn" in table.options.decode()
