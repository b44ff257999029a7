"""`Filter`: which tables, row events and DDLs of the source belong to a changefeed.

This module decides for one name or event at a time. The source's server applies a coarser filter (`filter_match`), which never
drops what this module keeps.

    filter:
      tables: ["shop.*", "!shop.tmp_*"]
      events: [{tables: [shop.audit], ignore: [delete, dropIndexes], ignore_where: {insert: {level: debug}}}]

    insert shop.orders                        replicated
    insert shop.tmp_1                         out of scope
    delete shop.audit                         ignored
    insert shop.audit {level: "debug"}        ignored
    dropIndexes shop.audit                    schema only: recorded in the schema, not sent downstream
    rename shop.tmp_1 to shop.orders          applied: one of its names is in scope
    dropDatabase shop                         applied: the database may hold tables in scope

A time series is replicated by its buckets as they are: documents of the server's own form, which hold many measurements each. So what a user
says about rows cannot be done to it, and only a server of the same release surely reads them (`series_obstacle`, `series_release_obstacle`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

from pydantic import Field, PlainSerializer, PlainValidator, field_validator, model_validator

from changefeed.capture import Capture
from changefeed.config.options import Flag, Mistake, Options, did_you_mean, each_once, shown
from changefeed.config.tables.match import MatchExpression
from changefeed.config.tables.pattern import EVERYTHING, PatternList, TablePattern, literal
from changefeed.event import SHOWN_BY_STREAMS, DdlEvent, DdlType, RowType
from changefeed.table import SYSTEM_DATABASES, TableName


class Disposition(StrEnum):
    """The filter's decision on a DDL in scope."""

    APPLY = "apply"
    SCHEMA_ONLY = "schema_only"


_TYPES: dict[str, RowType | DdlType] = {
    type_.value: type_ for type_ in (*RowType, *DdlType) if isinstance(type_, RowType) or type_ in SHOWN_BY_STREAMS
}


def _event_type(value: object) -> RowType | DdlType:
    if not isinstance(value, str) or value not in _TYPES:
        raise Mistake(f"found {shown(value)}; allowed are {', '.join(_TYPES)}{did_you_mean(value, _TYPES)}")
    return _TYPES[value]


EventType: TypeAlias = Annotated[RowType | DdlType, PlainValidator(_event_type), PlainSerializer(str, return_type=str)]


class IgnoreWhere(Options):
    """Conditions on the document of a row event. An update is ignored if the document before or after it matches.

    A delete is ignored if the document before it matches. A document that the source does not have (no pre-images on the
    collection, or expired) matches nothing, unless the condition is on `_id` alone: an event is ignored only if the match is certain.
    """

    insert: MatchExpression | None = None
    update_old: MatchExpression | None = None
    update_new: MatchExpression | None = None
    replace: MatchExpression | None = None
    delete: MatchExpression | None = None

    def ignores(self, type: RowType, event: Mapping[str, Any]) -> bool:
        match type:
            case RowType.INSERT:
                return _matches(self.insert, event, "fullDocument")
            case RowType.REPLACE:
                return _matches(self.replace, event, "fullDocument")
            case RowType.DELETE:
                return _matches(self.delete, event, "fullDocumentBeforeChange")
            case RowType.UPDATE:
                return _matches(self.update_old, event, "fullDocumentBeforeChange") or _matches(
                    self.update_new, event, "fullDocument"
                )

    @property
    def before_image(self) -> bool:
        return any(match is not None and not match.key_only for match in (self.update_old, self.delete))

    @property
    def after_image(self) -> bool:
        return self.update_new is not None and not self.update_new.key_only


def _matches(expression: MatchExpression | None, event: Mapping[str, Any], image: str) -> bool:
    if expression is None:
        return False
    document = event.get(image) or (event["documentKey"] if expression.key_only else None)
    return document is not None and expression.accepts(document)


class EventRule(Options):
    """Which events of some tables are ignored. Every rule that matches a table applies."""

    tables: tuple[TablePattern, ...] = Field(description="write a list of table patterns, for example [shop.audit]")
    ignore: tuple[EventType, ...] = Field(
        (), description="write a list of event types, for example [delete, dropIndexes]"
    )
    ignore_where: IgnoreWhere | None = None

    @field_validator("tables")
    @classmethod
    def _mean_some_table(cls, tables: tuple[TablePattern, ...]) -> tuple[TablePattern, ...]:
        return sensible_tables(tables)

    @field_validator("ignore")
    @classmethod
    def _names_types_once(cls, ignore: tuple[EventType, ...]) -> tuple[EventType, ...]:
        return each_once(ignore, "event type")

    @model_validator(mode="after")
    def _has_an_effect(self) -> EventRule:
        conditions = self.ignore_where.model_dump(exclude_none=True) if self.ignore_where else {}
        if not self.ignore and not conditions:
            raise Mistake("found a rule that ignores nothing; write ignore, ignore_where or both")
        for condition in conditions:
            if (type_ := condition.partition("_")[0]) in self.ignore:
                raise Mistake(f"found {type_} under ignore and {condition} under ignore_where; leave one of them out")
        if DdlType.DROP_DATABASE in self.ignore and not any(pattern.whole_database for pattern in self.tables):
            raise Mistake(
                "found dropDatabase ignored for single tables; it concerns whole databases, for example shop.*"
            )
        return self

    def means(self, name: TableName) -> bool:
        return PatternList.of(self.tables).means(name)

    def means_database(self, db: str) -> bool:
        """Whether the rule covers the whole database."""
        matching = (pattern for pattern in reversed(self.tables) if pattern.matches_database(db))
        last = next(matching, None)
        return last is not None and last.whole_database and not last.negated


def sensible_tables(tables: tuple[TablePattern, ...]) -> PatternList:
    if not tables:
        raise Mistake("found []; write at least one table pattern, for example shop.*")
    each_once(tables, "table pattern")
    if tables[0].negated:
        raise Mistake(
            f'found {str(tables[0])!r} first; there is nothing to exclude it from, put for example "*.*" before it'
        )
    if tables[-1] == TablePattern("*", "*", negated=True):
        raise Mistake('found "!*.*" last; it excludes every table, put the wanted tables after it')
    return PatternList(tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFilter:
    """The filter for one name. A caller that sees many events of a table keeps it."""

    wanted: bool
    ignored: frozenset[RowType | DdlType]
    conditions: tuple[IgnoreWhere, ...]

    def ignores_row(self, type_: RowType, event: Mapping[str, Any]) -> bool:
        """`event` has the form of the change stream's. Its documents are read only if a condition needs them."""
        return not self.wanted or type_ in self.ignored or any(where.ignores(type_, event) for where in self.conditions)

    @property
    def needs_before_image(self) -> bool:
        return self.wanted and any(where.before_image for where in self.conditions)

    @property
    def needs_after_image(self) -> bool:
        """The document as the update left it (`fullDocument: whenAvailable`), not a later one from a lookup."""
        return self.wanted and any(where.after_image for where in self.conditions)


class Filter(Options):
    tables: Annotated[
        tuple[TablePattern, ...],
        Flag(
            "A table pattern such as 'shop.*', instead of all that a file has; may be repeated.",
            "PATTERN",
            name="tables",
            repeated=True,
        ),
    ] = Field(PatternList((EVERYTHING,)), description="write a list of table patterns, for example [shop.*]")
    events: tuple[EventRule, ...] = ()

    @field_validator("tables")
    @classmethod
    def _mean_some_table(cls, tables: tuple[TablePattern, ...]) -> tuple[TablePattern, ...]:
        return sensible_tables(tables)

    def wants_table(self, name: TableName) -> bool:
        """Whether the table is in scope. `passing` names are not: the rename from such a name to a wanted one starts a copy, as of a new table."""
        return not (name.system or name.passing) and PatternList.of(self.tables).means(name)

    def wants_database(self, db: str) -> bool:
        """Whether tables of the database may be in scope."""
        if db in SYSTEM_DATABASES:
            return False
        for pattern in reversed(self.tables):
            if pattern.matches_database(db) and (not pattern.negated or pattern.whole_database):
                return not pattern.negated
        return False

    @property
    def named_databases(self) -> frozenset[str]:
        """The databases that the patterns name in full."""
        found = (literal(pattern.db) for pattern in self.tables if not pattern.negated)
        return frozenset(db for db in found if db is not None)

    @property
    def matches_other_databases(self) -> bool:
        return any(literal(pattern.db) is None for pattern in self.tables if not pattern.negated)

    def of(self, name: TableName) -> TableFilter:
        rules = [rule for rule in self.events if rule.means(name)]
        return TableFilter(
            wanted=self.wants_table(name),
            ignored=frozenset(type_ for rule in rules for type_ in rule.ignore),
            conditions=tuple(rule.ignore_where for rule in rules if rule.ignore_where is not None),
        )

    def ignores_row(self, name: TableName, type_: RowType, event: Mapping[str, Any]) -> bool:
        return self.of(name).ignores_row(type_, event)

    def ddl(self, event: DdlEvent) -> Disposition | None:
        """None if the DDL is out of scope. A rename is in scope if either of its names is.

        The old name decides whether a rename is ignored, or the new name if the old one is out of scope.
        """
        if event.table is None:
            if not self.wants_database(event.db):
                return None
            ignored = any(event.type in rule.ignore and rule.means_database(event.db) for rule in self.events)
        else:
            names = [name for name in (event.table, event.renamed_to) if name is not None and self.wants_table(name)]
            if not names:
                return None
            ignored = event.type in self.of(names[0]).ignored
        return Disposition.SCHEMA_ONLY if ignored else Disposition.APPLY


_OTHER_SERIES_SINCE = (8, 0)
"""Updates of buckets change parts of binary values, and from 8.3 on there are no buckets."""
_NEEDED = frozenset({RowType.INSERT, RowType.UPDATE, RowType.REPLACE})
_LEAVE_OUT = "or leave the time series out (filter.tables)"


def series_obstacle(of_table: TableFilter, capture: Capture, *, messages: bool, columns: bool, shared: bool) -> str:
    """Empty: it is replicated. `messages`: the sink keeps these. `columns`: some fields are not to be seen. `shared`: its name at the target
    may be that of other tables, too.
    """
    if messages:
        return "its buckets are no messages; leave the time series out (filter.tables)"
    if capture is Capture.CHANGE_STREAM:
        return f"change streams do not show its measurements; have the oplog read (capture: oplog), {_LEAVE_OUT}"
    if columns:
        return f"its buckets are written as they are, so fields cannot be left out or masked; take it out of `columns`, {_LEAVE_OUT}"
    if of_table.conditions or _NEEDED & of_table.ignored:
        return f"a bucket is inserted once and then updated with each measurement, so its row events cannot be ignored (deletes can); change filter.events, {_LEAVE_OUT}"
    if shared:
        return f"several tables may come under its name at the target; give it a name of its own (routes), {_LEAVE_OUT}"
    return ""


def series_release_obstacle(source: tuple[int, int], target: tuple[int, int]) -> str:
    """Empty: the target reads what the source has written."""
    if source >= _OTHER_SERIES_SINCE:
        return f"MongoDB {_text(source)} writes time series in another form, which this release does not replicate; leave the time series out (filter.tables)"
    if source != target:
        return (
            f"the source is MongoDB {_text(source)} and the target {_text(target)}, and a server reads the buckets of its own release only; bring both "
            f"to one release, {_LEAVE_OUT}"
        )
    return ""


def _text(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
