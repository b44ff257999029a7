"""`AtPoint`: a comparison of both sides at a sync point: which tables are compared there, and why others are not.

A table is read at a time of the past by the name that it has now, and only if no DDL has touched it since: some servers refuse to read across one (246,
`SnapshotUnavailable`), some answer with later rows. Which tables there were is known from the schemas of that time, not from the servers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pymongo.errors import OperationFailure

from changefeed.errors import SluiceError
from changefeed.records.sync_point import SyncPoint
from changefeed.table import TableId, TableName, TableSchema
from verify.definitions import Definition, Pair
from verify.report import Aspect, DocumentsReport, Outcome, Result

_TOO_OLD = 239
_AGED = "the point is older than the history that the server keeps (minSnapshotHistoryWindowInSeconds); compare at a newer one"
_NOT_THERE = {
    246: "the server cannot read it as of then: it is capped, or a DDL has touched it, or a shard was added or removed, since",
    250: "chunks of it were merged since, and nobody knows any more who owned them",
}
_BUILT = "an index is being built in the background"


@dataclass(frozen=True, slots=True)
class AtPoint:
    """`tables`: those of that time. `changed`: asked again when a table differs: why a table cannot be read there any more."""

    point: SyncPoint
    tables: Sequence[TableSchema]
    changed: Callable[[], Mapping[TableId, str]]
    route: Callable[[TableName], TableName]
    building: Callable[[], Collection[TableId]] = tuple
    """Of which tables an index is being built in the background: it may not be there yet."""

    def settled(self, definitions: Sequence[Definition], chosen: Callable[[TableName], bool]) -> list[Definition]:
        """With what can be said of each table at once, and with the tables that are gone since."""
        changed, there = self.changed(), {schema.id for schema in self.tables}
        present = {schema.id for each in definitions for schema in each.pair.sources}
        found = [self._judged(each, changed, there) for each in definitions]
        gone = [schema for schema in self.tables if schema.id not in present and chosen(schema.name)]
        for schema in gone:
            pair = Pair(name=self.route(schema.name), origins=(schema.name,), sources=(schema,))
            found.append(_left_out(pair, changed.get(schema.id, "it was dropped, or renamed, since then")))
        return found

    def _judged(self, definition: Definition, changed: Mapping[TableId, str], there: set[TableId]) -> Definition:
        pair = definition.pair
        why = next(self._obstacles(pair, changed), "")
        if not why and any(schema.id not in there for schema in pair.sources):
            why = "it was created since then"
        if not why and not pair.sources:
            why = "the source has no such table now" if changed else ""
        if not why and definition.different and not {each.id for each in pair.sources}.isdisjoint(self.building()):
            results = {**definition.results, Aspect.INDEXES: Result(Outcome.NOT_COMPARABLE, (_BUILT,))}
            return Definition(pair, results) if Aspect.INDEXES in definition.results else definition
        return _left_out(pair, why) if why else definition

    def _obstacles(self, pair: Pair, changed: Mapping[TableId, str]) -> Iterator[str]:
        for table in self.point.excepted:
            if pair.name in table.target or any(schema.name in table.source for schema in pair.sources):
                yield f"the point excepts it: {table.why}"
        for schema in pair.sources:
            if schema.id in changed:
                yield changed[schema.id]

    def changed_since(self, pair: Pair) -> str:
        """Asked when the table differs: a DDL may have come while it was read."""
        return next(self._obstacles(pair, self.changed()), "")


def unread(error: SluiceError) -> DocumentsReport | None:
    """What is known of a range that a side cannot show as of then. None: it is another error. Age alone says nothing about the table: what other ranges have
    shown holds, and equality was not shown.
    """
    code = error.__cause__.code if isinstance(error.__cause__, OperationFailure) else None
    if code == _TOO_OLD:
        return DocumentsReport(complete=False, missed=_AGED)
    return DocumentsReport(unreadable=_NOT_THERE[code]) if code in _NOT_THERE else None


def _left_out(pair: Pair, why: str) -> Definition:
    return Definition(pair, {Aspect.TABLE: Result(Outcome.NOT_COMPARABLE, (why,))})
