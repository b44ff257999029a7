"""`plan`: what a changed filter, or changed routes, do to the tables of a changefeed. The plan is carried out while no pipeline runs. Pure.

Every DDL below `position` is recorded under the old patterns, and every DDL from there on is classified by the new ones. So unknown
tables that the new patterns want begin at `position`, as the source's catalog shows them there; they are copied. Tables that are no longer
wanted end, and stay at the target unchanged. The others go on from their own checkpoints.

    before     bases A: a@0, B: b@0, C: tmp@0     records 5 rename A to x, done; 7 createIndexes C, refused by the target
    patterns   *.*  ──▶  *.*, !*.b, !*.tmp        and the catalog at 9 has E: e, which is unknown
    plan       1  forget record 7                 an open DDL of a table that is no longer wanted
               2  fold record 5 into A: x@0       so that no record names a removed table; each table is past its own records
               3  remove B and C
               4  write E: e@9                    last: a known table is not taken in again

After any prefix, the plan for the rest leads to the same tables. Only an open DDL that is still wanted blocks the change: no checkpoint
says yet what its tables are.

Tables that are copied `anew` end, and begin at `position` like unknown ones: those that changed routes bring to another name, if the user wants
them copied, and those whose name was taken (`owner/ddl/scope.py`) and is free now. The latter end together with their open DDLs. A table whose
name is still taken stays as it is: `without_name`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeVar

from changefeed.config.tables.filter import Filter
from changefeed.config.tables.routes import Routes
from changefeed.errors import ConfigurationError
from changefeed.event import DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableId, TableSchema
from owner.ddl.stragglers import known_tables, named_tables, nameless
from schema_store.store import MAX_OPERATIONS, FoldStep, SchemaStore, fold

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterChange:
    """`steps` are transactions, to be carried out in order; after them `taken_in` may be written table by table."""

    steps: tuple[FoldStep, ...]
    taken_in: tuple[TableSchema, ...]
    anew: frozenset[TableId] = frozenset()
    """Known tables that begin again. What nodes and users have recorded about them does not count any more."""


def plan(
    filter: Filter,
    position: Position,
    bases: Mapping[TableId, TableSchema],
    records: Iterable[DdlRecord],
    found: Iterable[TableSchema],
    *,
    anew: AbstractSet[TableId] = frozenset(),
    without_name: AbstractSet[TableId] = frozenset(),
) -> FilterChange:
    """`found` are the tables that the new patterns want, as they were at `position`."""
    records = list(records)
    if blocking := in_the_way(filter, position, records, anew | without_name):
        raise ConfigurationError([waits_for(blocking)])
    settled = [record for record in records if not record.open]
    stays = [record for record in records if record.open and known_tables(record) <= without_name]
    of_anew = [record for record in records if record.open and record not in stays and known_tables(record) <= anew]
    others = (record for record in records if record.open and record not in stays and record not in of_anew)
    forgotten = sorted((record.position for record in others), reverse=True)
    steps = [FoldStep(ddls=part) for part in _parts(forgotten)]
    left = dict(bases)
    for step in _folded(left, settled, position):
        left |= {schema.id: schema for schema in step.write}
        left = {id: schema for id, schema in left.items() if id not in step.remove}
        steps.append(step)
    steps += _ended_with_their_ddl(of_anew, left)
    with_ddl = {table for record in of_anew for table in named_tables(record)}
    ended = sorted(
        id
        for id, schema in left.items()
        if id not in without_name and id not in with_ddl and (id in anew or not filter.wants_table(schema.name))
    )
    steps += [FoldStep(remove=part) for part in _parts(ended)]
    known = (left.keys() - anew) | without_name
    return FilterChange(
        steps=tuple(steps), taken_in=tuple(schema for schema in found if schema.id not in known), anew=frozenset(anew)
    )


def in_the_way(
    filter: Filter, position: Position, records: Iterable[DdlRecord], but: AbstractSet[TableId] = frozenset()
) -> list[DdlRecord]:
    """The open DDLs that stay wanted, except those of some tables alone."""
    return [
        record
        for record in records
        if _stays_open(record, position) and filter.ddl(record.event) is not None and not known_tables(record) <= but
    ]


def _stays_open(record: DdlRecord, position: Position) -> bool:
    """From `position` on, the watch shows everything again, except the DDLs of Sluice's own: half of a copy made anew would be forgotten."""
    return record.open and (record.position < position or record.event.type.own)


def may_take_names(records: Iterable[DdlRecord], position: Position) -> bool:
    """Whether tables wait for their names, and no open DDL is in the way of copying them anew."""
    open_records = [record for record in records if _stays_open(record, position)]
    waiting = nameless(open_records).keys()
    return bool(waiting) and all(known_tables(record) <= waiting for record in open_records)


def with_free_names(
    routes: Routes, records: Iterable[DdlRecord], found: Iterable[TableSchema]
) -> tuple[AbstractSet[TableId], AbstractSet[TableId]]:
    """Of the tables without a name: those that do not wait for it any more, and those whose name another table has still."""
    found = list(found)
    merged = {name for names in routes.merged(schema.name for schema in found).values() for name in names}
    taken = {schema.id for schema in found if schema.name in merged}
    waiting = nameless(records).keys()
    return waiting - taken, waiting & taken


def waits_for(blocking: Sequence[DdlRecord]) -> str:
    return (
        f"filter.tables: {blocking[0].event} is not done, and tables change only when no DDL of a wanted table is open ({len(blocking)} are "
        "open, `sluice ddl list`); answer those that were refused, leave their tables out, too, or update the changefeed to the tables of before"
    )


def _folded(
    bases: Mapping[TableId, TableSchema], settled: Iterable[DdlRecord], position: Position
) -> Iterator[FoldStep]:
    """Bases keep the position where their table began: it says whether the table is copied, and rows before the last DDL may still come."""
    settled = list(settled)
    living = SchemaStore.from_records(bases.values(), settled).versions.living()
    began = {schema.id: first for first, schema in living}
    for step in fold(bases, settled, position):
        yield replace(step, write=tuple(_from(schema, began) for schema in step.write))


def _from(schema: TableSchema, began: Mapping[TableId, Position]) -> TableSchema:
    first = began.get(schema.id, schema.valid_from)
    return replace(schema, valid_from=min(first, schema.valid_from))


def _ended_with_their_ddl(records: Iterable[DdlRecord], bases: Mapping[TableId, TableSchema]) -> Iterator[FoldStep]:
    """The table, and the DDL since which it has no name, go last and together: until then the table is known as one without a name."""
    by_table: dict[TableId, list[Position]] = {}
    for record in sorted(records, key=lambda record: record.position.order):
        if record.event.type is DdlType.DROP_DATABASE:
            yield FoldStep(ddls=(record.position,))
            continue
        for table in named_tables(record):
            by_table.setdefault(table, []).append(record.position)
    for table, positions in sorted(by_table.items()):
        *parts, last = _parts(positions[::-1])
        yield from (FoldStep(ddls=part) for part in parts)
        yield FoldStep(remove=(table,) if table in bases else (), ddls=last)


def _parts(of: Sequence[T]) -> Iterator[tuple[T, ...]]:
    for first in range(0, len(of), MAX_OPERATIONS):
        yield tuple(of[first : first + MAX_OPERATIONS])
