"""`Mounter`: turns a raw event into a row change, with the schema that is valid at the event's position. Pure.

A worked example. The schema store says that table A is `shop.orders` until position 9.1 and `shop.sales` from there; the route
sends `shop.*` to `copy.*`.

    insert at 8.4 of A, shop.orders       into copy.orders
    insert at 9.3 of A, shop.sales        into copy.sales
    insert at 9.3 of A, shop.orders       InvariantError: a rename was missed
    insert at 8.4 of B                    InvariantError: a create was missed

A guess instead of the error would write rows to the wrong table. What is looked up about a table is cached as long as it cannot change,
so that an event costs one dictionary lookup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from changefeed.config.configuration import OrderBy
from changefeed.config.sinks.message_options import Images
from changefeed.documents.row_key import key_text
from changefeed.errors import ImageMissing, InvariantError, SourceUnsupported
from changefeed.event import RowType
from changefeed.table import COPY_ANEW, TableName, TableSchema
from processor.task.rows.shuffle import TableRoute, dependence, dependent
from schema_store.versions import SchemaVersions
from sink.row import RowChange, RowDetails, TargetTable
from source.columns import Columns
from source.raw_row import Header, RowAbout
from source.stream.change_event import table_name

_TYPES = {kind.value.encode(): kind for kind in RowType}
_UPDATE, _DELETE = RowType.UPDATE, RowType.DELETE
_IMAGES = {(True, True): "both", (True, False): "before", (False, True): "after", (False, False): "missing"}
_new = tuple.__new__


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedTable:
    """One version of a table, as the pipeline needs it."""

    schema: TableSchema
    target: TargetTable
    route: TableRoute
    columns: Columns | None = None
    """What the target sees of its rows; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountOptions:
    order_by: OrderBy = OrderBy.AUTO
    about_of: Callable[[bytes, Header], RowAbout] | None = None
    """If changes become messages: when and in which transaction a row was written."""
    images: Images = Images.NONE


class Mounter:
    def __init__(
        self,
        schemas: SchemaVersions,
        route: Callable[[TableName], TableName | None],
        update_of: Callable[[bytes, Header], bytes],
        options: MountOptions | None = None,
        columns_of: Callable[[TableName], Columns | None] = lambda _: None,
    ) -> None:
        """`update_of` returns the `updateDescription` of an update event: each capture has its own function."""
        self._schemas = schemas
        self._route = route
        self._update_of = update_of
        self._options = options or MountOptions()
        self._columns_of = columns_of
        self._made: dict[TableSchema, MountedTable] = {}
        self._settled: dict[tuple[bytes, bytes], tuple[int, MountedTable]] = {}
        """By the UUID and the name in an event: the table's last version, and the time after which it is valid."""

    def table(self, header: Header) -> MountedTable:
        settled = self._settled.get((header.uuid, header.ns))
        if settled is not None and header.time > settled[0]:
            return settled[1]
        return self._look_up(header)

    def mount(self, event: bytes, header: Header) -> RowChange:
        type_, time, token, ns, key, uuid, full_at, full_end, _, _, _, _, _ = header  # faster than a star
        kind = _TYPES.get(type_)
        document = update = None
        if kind is _UPDATE:
            try:
                update = self._update_of(event, header)
            except SourceUnsupported as error:
                raise self._not_understood(header, error) from error
        elif kind is not _DELETE:
            document = event[full_at:full_end]
        if kind is None or not key or not (document or update or kind is _DELETE):
            raise InvariantError(
                f"{header.type.decode()} event at {header.position}: expected a row event with a documentKey and its content, "
                f"observed {len(header.key)} bytes of key, {len(document or b'')} of document, {len(update or b'')} of update"
            ).about(self.table(header).target.id)
        settled = self._settled.get((uuid, ns))
        table = settled[1] if settled is not None and time > settled[0] else self._look_up(header)
        if (columns := table.columns) is not None:
            document = columns.document(document) if document is not None else None
            update = columns.update(update) if update is not None else None
        details = None
        if (about_of := self._options.about_of) is not None:
            wall, transaction = about_of(event, header)
            if self._options.images is Images.NONE:
                details = _new(RowDetails, (wall, transaction, None, None, None))
            else:
                details = self._with_images(event, header, table, kind, wall, transaction)
        return _new(RowChange, (table.target, kind, key, document, update, time, token, details))

    def _not_understood(self, header: Header, error: SourceUnsupported) -> SourceUnsupported:
        schema = self.table(header).schema
        return SourceUnsupported(
            f"update of {schema.name} {key_text(header.key)} at {header.position}: {error}; {COPY_ANEW}, which skips this update; if more of "
            "them come, leave the table out (filter.tables) by `sluice changefeed update`, or for files and topics by another changefeed"
        ).about(schema.id)

    def _with_images(
        self,
        event: bytes,
        header: Header,
        table: MountedTable,
        kind: RowType,
        wall: int | None,
        transaction: tuple[str, int] | None,
    ) -> RowDetails:
        images = self._options.images
        before = event[header.before_at : header.before_end] or None
        after = event[header.full_at : header.full_end] or None
        lacks_before, lacks_after = kind is not RowType.INSERT and not before, kind is not _DELETE and not after
        if images is Images.REQUIRED and (lacks_before or lacks_after):
            lacking = " and ".join(name for name, lacks in (("before", lacks_before), ("after", lacks_after)) if lacks)
            raise ImageMissing(
                f"{kind} of {table.schema.name} {key_text(header.key)} at {header.position}: expected the document {lacking} the change, since images "
                f"is required; the source has none: turn changeStreamPreAndPostImages on there and let images be kept for longer than this "
                f"changefeed may be behind, then {COPY_ANEW}"
            ).about(table.target.id)
        kept = _IMAGES[before is not None, after is not None]
        if (columns := table.columns) is not None:
            before = columns.document(before) if before is not None else None
            after = columns.document(after) if after is not None else None
        return RowDetails(wall, transaction, before, after if kind is _UPDATE else None, kept)

    def _look_up(self, header: Header) -> MountedTable:
        name, position = table_name(header.ns), header.position
        if name is None:
            raise InvariantError(f"{header.type.decode()} event at {position}: expected a table name, observed none")
        identity = header.table
        schema = self._schemas.by_name(name, position) if identity is None else self._schemas.at(identity, position)
        if schema is None or schema.name != name:
            missed = InvariantError(
                f"{header.type.decode()} event of {name} ({identity or 'no id'}) at {position}: expected the schema store to know "
                f"this table under this name, observed {f'{schema.name} ({schema.id})' if schema else 'no such table'}; "
                f"a DDL was missed: remove the changefeed and create it again with --start initial"
            )
            raise missed if schema is None else missed.about(schema.id)
        mounted = self.mounted(schema)
        if self._schemas.latest(schema.id) == schema:
            self._settled[header.uuid, header.ns] = (schema.valid_from.ts.to_int(), mounted)
        return mounted

    def mounted(self, schema: TableSchema) -> MountedTable:
        mounted = self._made.get(schema)
        if mounted is None:
            mounted = self._made[schema] = self._mount_table(schema)
        return mounted

    def _mount_table(self, schema: TableSchema) -> MountedTable:
        name = schema.downstream(self._route)
        if name is None:
            raise InvariantError(
                f"{schema.name} ({schema.id}): expected a target name for a replicated table, observed that the filter leaves it out"
            ).about(schema.id)
        route = TableRoute.of(schema, self._options.order_by)
        target = TargetTable(
            id=schema.id,
            source=schema.name,
            name=schema.rows_at(name),
            version=schema.valid_from,
            ordered=route.whole or dependent(schema),
            dependence=dependence(schema, self._options.order_by),
        )
        return MountedTable(schema=schema, target=target, route=route, columns=self._columns_of(schema.name))
