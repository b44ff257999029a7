"""`definition_results`: compares a pair of tables without their documents; `excuses`: differences that the configuration explains. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import IgnoreWhere
from changefeed.documents.document import Document
from changefeed.errors import DdlUnsupported
from changefeed.event import DdlType, RowType
from changefeed.table import TableKind, TableName
from sink.ddl import Routing, create_copy
from sink.mongodb.ddl.definition_match import index_differences, option_differences
from verify.definitions.pairing import Pair
from verify.report import ALIKE, Aspect, DifferenceKind, Outcome, Result

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


def kind_of(options: Document) -> TableKind:
    fields = options.decode()
    if "timeseries" in fields:
        return TableKind.TIMESERIES
    return TableKind.VIEW if "viewOn" in fields else TableKind.COLLECTION


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
    target = kind_of(pair.target.options)
    others = [schema for schema in pair.sources if schema.kind is not target]
    if others:
        return _different(f"{others[0].name} is a {others[0].kind} at the source, a {target} at the target")
    return ALIKE


def _options(pair: Pair, configuration: Configuration) -> Result:
    reason = _ignored(pair, configuration, _CHANGES_OPTIONS)
    routing = Routing(route=lambda name: _route(configuration, name), tables={})
    try:
        wanted = [create_copy(schema, pair.name, routing).options for schema in pair.sources]
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
