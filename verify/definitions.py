"""The definitions of tables: `pairs` finds the tables of the two sides that belong together, `definition_results` compares a pair without its documents. Pure.

`settled_definitions` repeats that while DDL may still be replicated; `excuses` are differences that the configuration explains.

routes: [{from: "shop.*", to: "dr.*"}, {from: "eu.*", to: dr.eu}]

dr.orders     shop.orders at the source, dr.orders at the target
dr.eu         eu.a and eu.b, both under one name
dr.old        not at the source; shop.old would be routed here, so this table should not exist
other.x       no route leads here and the filter does not accept other.x: it does not belong to this changefeed
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import IgnoreWhere
from changefeed.documents.document import Document
from changefeed.errors import DdlUnsupported
from changefeed.event import DdlType, RowType
from changefeed.records.ddl import ObservedTable
from changefeed.table import TableId, TableName, TableSchema, kind_of
from sink.ddl import create_copy
from sink.mongodb.ddl.definition_match import index_differences, option_differences
from verify.comparison import LOOKS, Passed
from verify.report import ALIKE, Aspect, DifferenceKind, Outcome, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The tables of one target name. `origins` are the names at the source, of present tables or of a former one."""

    name: TableName
    origins: tuple[TableName, ...]
    sources: tuple[TableSchema, ...] = ()
    target: ObservedTable | None = None

    @property
    def fan_in(self) -> bool:
        return len(self.sources) > 1


def pairs(
    configuration: Configuration,
    source: Iterable[TableSchema],
    target: Mapping[TableName, ObservedTable],
    chosen: Callable[[TableName], bool],
) -> tuple[Pair, ...]:
    """`chosen` is called with names at the source."""
    by_target: dict[TableName, list[TableSchema]] = defaultdict(list)
    for schema in source:
        if configuration.filter.wants_table(schema.name):
            by_target[configuration.routes.target(schema.name)].append(schema)
    found = [
        Pair(
            name=name, origins=tuple(schema.name for schema in schemas), sources=tuple(schemas), target=target.get(name)
        )
        for name, schemas in by_target.items()
    ]
    for name, table in target.items():
        if name not in by_target and (once := origin(configuration, name)) is not None:
            found.append(Pair(name=name, origins=(once,), target=table))
    return tuple(sorted((pair for pair in found if any(map(chosen, pair.origins))), key=lambda pair: pair.name))


def origin(configuration: Configuration, name: TableName) -> TableName | None:
    """A source name that the changefeed routes to this name, by a rule if one does; None when no such name can be found."""
    if name == configuration.dead_letter or name.system:
        return None
    wanted = filter(configuration.filter.wants_table, configuration.routes.few_origins(name))
    return min(wanted, key=lambda origin: (origin == name, origin), default=None)


_MAKES = frozenset({DdlType.CREATE, DdlType.RENAME})
_REMOVES = frozenset({DdlType.DROP, DdlType.RENAME, DdlType.DROP_DATABASE})
_CHANGES_INDEXES = frozenset({DdlType.CREATE_INDEXES, DdlType.DROP_INDEXES, DdlType.MODIFY})
_CHANGES_OPTIONS = frozenset({DdlType.MODIFY})
_LEAVES = {
    RowType.INSERT: DifferenceKind.MISSING,
    RowType.DELETE: DifferenceKind.EXTRA,
    RowType.UPDATE: DifferenceKind.CHANGED,
    RowType.REPLACE: DifferenceKind.CHANGED,
}
"""The difference that an event leaves when it is not replicated."""


def definition_results(pair: Pair, configuration: Configuration) -> dict[Aspect, Result]:
    """Options and indexes are compared only if both sides have the table, as the same kind."""
    table = _table(pair, configuration)
    if table.outcome is not Outcome.EQUAL:
        return {Aspect.TABLE: table}
    return {
        Aspect.TABLE: table,
        Aspect.OPTIONS: _options(pair, configuration),
        Aspect.INDEXES: _indexes(pair, configuration),
    }


def excuses(pair: Pair, configuration: Configuration) -> Mapping[DifferenceKind, str]:
    """The kinds of differences between documents that the filter explains, each with the reason."""
    found: dict[DifferenceKind, str] = {}
    for name in pair.origins:
        of_table = configuration.filter.of(name)
        for type_, kind in _LEAVES.items():
            if type_ in of_table.ignored:
                found.setdefault(kind, f"the changefeed ignores {type_} events of {name}")
            elif any(type_ in conditional for conditional in map(_conditional, of_table.conditions)):
                found.setdefault(kind, f"the changefeed ignores some {type_} events of {name} (ignore_where)")
    return found


def _conditional(where: IgnoreWhere) -> frozenset[RowType]:
    conditions = {
        RowType.INSERT: where.insert,
        RowType.REPLACE: where.replace,
        RowType.UPDATE: where.update_old or where.update_new,
        RowType.DELETE: where.delete,
    }
    return frozenset(type_ for type_, condition in conditions.items() if condition is not None)


def _table(pair: Pair, configuration: Configuration) -> Result:
    if pair.target is None:
        found = f"{_names(pair.origins)} is missing at the target"
        return _different(found, reason=_ignored(pair, configuration, _MAKES))
    if not pair.sources:
        found = f"it is at the target only; {pair.origins[0]} is not at the source"
        return _different(found, reason=_ignored(pair, configuration, _REMOVES))
    target = kind_of(pair.target.options.decode())
    others = [schema for schema in pair.sources if schema.kind is not target]
    if others:
        return _different(f"{others[0].name} is a {others[0].kind} at the source, a {target} at the target")
    return ALIKE


def _options(pair: Pair, configuration: Configuration) -> Result:
    reason = _ignored(pair, configuration, _CHANGES_OPTIONS)
    try:
        wanted = [create_copy(schema, pair.name, partial(_route, configuration)).options for schema in pair.sources]
    except DdlUnsupported as error:
        return Result(Outcome.NOT_COMPARABLE, (str(error),))
    ttl = configuration.ddl.ttl
    if any(option_differences(wanted[0], other, ttl) for other in wanted[1:]):
        return Result(
            Outcome.NOT_COMPARABLE, (f"{_names(pair.origins)} have one name at the target, but different options",)
        )
    assert pair.target is not None
    differences = option_differences(wanted[0], pair.target.options, ttl)
    return _different(*differences, reason=reason) if differences else ALIKE


def _indexes(pair: Pair, configuration: Configuration) -> Result:
    reason = _ignored(pair, configuration, _CHANGES_INDEXES)
    ttl = configuration.ddl.ttl
    first, *others = (schema.indexes for schema in pair.sources)
    if any(index_differences(first, other, ttl) for other in others):
        return Result(
            Outcome.NOT_COMPARABLE, (f"{_names(pair.origins)} have one name at the target, but different indexes",)
        )
    assert pair.target is not None
    differences = index_differences(first, pair.target.indexes, ttl)
    return _different(*differences, reason=reason) if differences else ALIKE


def _different(*details: str, reason: str | None = None) -> Result:
    if reason is None:
        return Result(Outcome.DIFFERENT, details)
    return Result(Outcome.NOT_COMPARABLE, (*details, reason))


def _ignored(pair: Pair, configuration: Configuration, types: Iterable[DdlType]) -> str | None:
    for name in pair.origins:
        ignored = sorted(configuration.filter.of(name).ignored & frozenset(types))
        if ignored:
            return f"the changefeed ignores {', '.join(ignored)} events of {name}"
    return None


def _route(configuration: Configuration, name: TableName) -> TableName | None:
    return configuration.routes.target(name) if configuration.filter.wants_table(name) else None


def _names(names: Iterable[TableName]) -> str:
    return ", ".join(map(str, names))


@dataclass(frozen=True, slots=True)
class Definition:
    """One pair and its results, without its documents."""

    pair: Pair
    results: Mapping[Aspect, Result]

    @property
    def different(self) -> bool:
        return any(result.outcome is Outcome.DIFFERENT for result in self.results.values())

    @property
    def state(self) -> tuple[object, ...]:
        """The state that must be unchanged between two looks for a difference to be confirmed."""
        at_source: list[tuple[TableId, Document, tuple[Document, ...]]] = [
            (schema.id, schema.options, schema.indexes) for schema in self.pair.sources
        ]
        return at_source, self.pair.target, dict(self.results)

    def unsettled(self, reason: str) -> Definition:
        return Definition(
            self.pair,
            {
                aspect: Result(Outcome.UNSETTLED, (*result.details, reason))
                if result.outcome is Outcome.DIFFERENT
                else result
                for aspect, result in self.results.items()
            },
        )


def settled_definitions(look: Callable[[], Iterable[Definition]], wait: Callable[[], Passed]) -> tuple[Definition, ...]:
    """A difference is confirmed when two looks show the same, and replication has passed the time of the first look before the second.

    The result has the names of the last look, so a table that was renamed in between has its new name.
    """
    now = _by_name(look())
    confirmed: frozenset[TableName] = frozenset()
    for _ in range(LOOKS - 1):
        open_ = {name for name, definition in now.items() if definition.different and name not in confirmed}
        if not open_:
            break
        if wait() is Passed.OVERDUE:
            return _ending(now, confirmed, "replication did not pass it in time")
        before, now = now, _by_name(look())
        confirmed = frozenset(
            name
            for name, definition in now.items()
            if definition.different and name in before and definition.state == before[name].state
        )
    return _ending(now, confirmed, f"it changed between each of {LOOKS} looks")


def _by_name(definitions: Iterable[Definition]) -> dict[TableName, Definition]:
    return {definition.pair.name: definition for definition in definitions}


def _ending(
    now: Mapping[TableName, Definition], confirmed: frozenset[TableName], reason: str
) -> tuple[Definition, ...]:
    return tuple(
        definition if name in confirmed or not definition.different else definition.unsettled(reason)
        for name, definition in now.items()
    )
