"""How a task reads rows of its source: `read_options` for the stream of changes, `SourceRows` for a single row that a change does not fit, that is
to be repaired, or that has a dead letter.

A table of a sharded cluster has another UUID after a resharding or a movePrimary. An open DDL says so before the schema store does, and so
it says that another table has been created under the name. A worked example; the table is T1, and the job's open DDLs are

    newUuid shop.a to T2     the row is read by T1, or by T2, whatever name the table has by now
    create shop.a U          neither T1 nor T2 is there any more, but U has the name: the table is gone
    -                        neither T1 nor T2 is there, and nobody has heard of V, which has the name: the row is read again, with the DDLs of then
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from changefeed.config.configuration import Configuration
from changefeed.config.sinks.message_options import Images
from changefeed.documents.document import Document
from changefeed.table import TableId, TableName
from processor.task.job import Held
from processor.task.rows.gate import RowFilter
from schema_store.versions import SchemaVersions
from sink.row import RowChange, SourceRow
from source.columns import Columns
from source.source import ReadsRows
from source.stream import filter_match
from source.stream.window_reader import ReadOptions

PATIENCE = timedelta(seconds=3)
"""A server that is unreachable for longer is an error of the changefeed, which tries again. A task that waits longer would keep a core
from the tasks of other changefeeds, whose servers answer."""


def read_options(configuration: Configuration) -> ReadOptions:
    conditions = [rule.ignore_where for rule in configuration.filter.events if rule.ignore_where is not None]
    images = configuration.images is not Images.NONE
    return ReadOptions(
        match=Document.of(filter_match.rows(configuration.filter)),
        after=images or any(condition.after_image for condition in conditions),
        before=images or any(condition.before_image for condition in conditions),
        patience=PATIENCE,
    )


def image_options(configuration: Configuration) -> ReadOptions:
    """Also reads the documents before and after each change, where the source keeps them: for windows with divided tables."""
    return replace(read_options(configuration), after=True, before=True)


def streams_asked_for(configuration: Configuration) -> tuple[ReadOptions, ...]:
    """Every stream of rows that the changefeed may open."""
    plain, images = read_options(configuration), image_options(configuration)
    return (plain, images) if configuration.pipeline.pre_images else (plain,)


@dataclass(slots=True, eq=False)
class SourceRows:
    source: ReadsRows
    schemas: SchemaVersions
    filter: RowFilter
    columns_of: Callable[[TableName], Columns | None]
    held: Held = field(default_factory=Held, init=False)
    """What open DDLs hold, as the running job knows it."""

    def fetch(self, change: RowChange) -> SourceRow | None:
        """The row may be newer than the change that did not fit. Later changes then find it ahead of them."""
        table = change.table
        uuids = self._uuids(table.id)
        row = self.source.row(
            table.source,
            uuids,
            change.key,
            not_before=change.position.ts,
            of_another=lambda uuid: uuid not in uuids and self._is_of_another(uuid, table.id),
        )
        if row is None or row.document is None:
            return None if row is None else SourceRow(None, row.read_ts)
        columns, ignored = self.columns_of(table.source), self.filter.ignores_document(table.source, row.document)
        document = row.document if columns is None else columns.document(row.document)
        return SourceRow(document, row.read_ts, ignored=ignored)

    def _uuids(self, table: TableId) -> tuple[TableId, ...]:
        schema = self.schemas.latest(table)
        later = (uuid for uuid, of in self.held.uuids.items() if of == table)
        return (table, *(schema.uuids if schema is not None else ()), *later)

    def _is_of_another(self, uuid: TableId, table: TableId) -> bool:
        """Of a UUID that is not among the table's."""
        if uuid in self.held.tables or self.schemas.latest(uuid) is not None:
            return True
        return self.schemas.by_uuid().get(uuid, table) != table
