"""`TableService` and `DdlService`: a changefeed's tables with their nodes and progress, and its DDLs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TypeVar

from admin.access import Access, Guard
from admin.cluster_reader import ChangefeedTables, ClusterReader, tables_of
from admin.desired.desired_store import DesiredStore
from admin.preflight.disk_space import disk_spaces, releases
from admin.services import rejected_rows, table_messages
from admin.services.changefeed_messages import table_names
from admin.services.node_service import find_node
from admin.services.rpc import AdmittedCall, admits
from admin.services.troubles import TroubleKind, troubles
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.stubs.sluice.admin.v1.admin_pb2_grpc import DdlServiceServicer, TableServiceServicer
from changefeed.config.tables.filter import series_release_obstacle
from changefeed.errors import ConfigurationError, NotFoundError, RetryableError, WrongState
from changefeed.event import DdlType
from changefeed.printable import counted
from changefeed.records.ddl import DdlRecord
from changefeed.records.node import NodeRecord, Role
from changefeed.records.requests import ChangefeedId, TableVerb
from changefeed.table import TableId, TableKind, TableSchema
from owner.ddl.stragglers import SKIPPABLE, known_tables, nameless
from owner.decision import recopy
from owner.etcd_view import OwnerView
from owner.tables.known_tables import KnownTables

_ANSWER_SECONDS, _LOOK_EVERY = 20.0, 0.05
_TABLES_A_PAGE = 500
_NEEDLESS_AFTER_A_COPY = SKIPPABLE | {DdlType.CREATE}
"""Once refused, they do not keep their table from being copied anew."""


class TableService(TableServiceServicer):
    def __init__(self, guard: Guard, reader: ClusterReader, store: DesiredStore) -> None:
        self.guard = guard
        self._reader = reader
        self._store = store

    @admits(Access.VIEWER)
    def ListTables(self, request: pb.ListTablesRequest, call: AdmittedCall) -> Iterator[pb.TablePage]:
        known = _known(self._reader, request.changefeed)
        found = iter(table_messages.tables(known, tables_of(known), now=datetime.now(UTC)))
        while some := [_as_of(table, self._reader) for table in islice(found, _TABLES_A_PAGE)]:
            yield pb.TablePage(tables=some)

    @admits(Access.OPERATOR)
    def MoveTable(self, request: pb.MoveTableRequest, call: AdmittedCall) -> pb.MoveTableResponse:
        with self._reader.read() as view:
            known = view.changefeed(ChangefeedId(request.changefeed))
            node = find_node(view, request.node)
            record = view.nodes[node].record
        table = _find_table(request.changefeed, tables_of(known), request.table)
        if table.kind is TableKind.VIEW:
            raise WrongState(f"{table.name} is a view; it has no rows, so it is not assigned to a node")
        if not record.takes_tables:
            raise WrongState(f"node {node!r} {_why_not(record)}; it accepts no tables")
        self._store.by(call.caller).move(ChangefeedId(request.changefeed), table.id, node, name=str(table.name))
        return pb.MoveTableResponse(table=table.id, node=node)

    @admits(Access.OPERATOR)
    def StopTable(self, request: pb.StopTableRequest, call: AdmittedCall) -> pb.Table:
        id, known = ChangefeedId(request.changefeed), _known(self._reader, request.changefeed)
        table = _find_table(request.changefeed, tables_of(known), request.table)
        if table.kind is TableKind.VIEW:
            raise WrongState(f"{table.name} is a view; it has no rows, so there is nothing to stop")
        rev = self._store.by(call.caller).ask(id, table.id, TableVerb.STOP, name=str(table.name))
        return self._obeyed(id, table.id, rev)

    @admits(Access.OPERATOR)
    def ResumeTable(self, request: pb.ResumeTableRequest, call: AdmittedCall) -> pb.Table:
        id, known = ChangefeedId(request.changefeed), _known(self._reader, request.changefeed)
        table, name = _find_troubled(known, request.changefeed, request.table)
        _check_has_a_name(known, name, table)
        trouble = troubles(known.stragglers, known.records.values()).get(table)
        if trouble is None or not trouble.waits_for_user:
            raise WrongState(f"table {name} is not stopped; `sluice table list {id}` shows the tables")
        if trouble.kind is TroubleKind.LOST and trouble.error is not None:
            raise WrongState(f"table {name} cannot go on: {trouble.error.message}")
        rev = self._store.by(call.caller).ask(id, table, TableVerb.RESUME, name=name)
        return self._obeyed(id, table, rev)

    @admits(Access.OPERATOR)
    def RecopyTables(self, request: pb.RecopyTablesRequest, call: AdmittedCall) -> pb.RecopyTablesResponse:
        id, known = ChangefeedId(request.changefeed), _known(self._reader, request.changefeed)
        found = [_find_to_recopy(known, request.changefeed, text) for text in request.tables]
        if not found:
            raise ConfigurationError(["tables: found none; name at least one table"])
        for table in found:
            _check_recopy(known, table)
        configuration = known.info.configuration
        if series := [table for table in found if table.kind is TableKind.TIMESERIES]:
            _check_series(known, series, series_release_obstacle(*releases(configuration)))
        targets = {table.name: configuration.routes.target(table.name) for table in found}
        second = {table.name: targets[table.name] for table in found if not recopy.in_place(table)}
        spaces = disk_spaces(configuration, second)
        if not request.dry_run:
            store = self._store.by(call.caller)
            revs = [store.ask(id, table.id, TableVerb.RECOPY, name=str(table.name)) for table in found]
            asked = {table.id for table in found}
            _until(self._reader, id, max(revs), lambda known: asked.isdisjoint(known.requests))
        return pb.RecopyTablesResponse(
            tables=[
                pb.TableRecopy(
                    id=table.id,
                    name=str(table.name),
                    target=str(targets[table.name]),
                    bytes=spaces.sizes.get(table.name),
                    in_place=table.kind.value if recopy.in_place(table) else "",
                )
                for table in found
            ],
            warnings=list(spaces.warnings(second)),
        )

    @admits(Access.VIEWER)
    def ListRejectedRows(self, request: pb.ListRejectedRowsRequest, call: AdmittedCall) -> Iterator[pb.RejectedRow]:
        yield from rejected_rows.listed(_known(self._reader, request.changefeed), request.table)

    @admits(Access.OPERATOR)
    def RetryRejectedRows(
        self, request: pb.RetryRejectedRowsRequest, call: AdmittedCall
    ) -> pb.RetryRejectedRowsResponse:
        known = _known(self._reader, request.changefeed)
        record = self._recording(call, known, "retry rejected rows", request.table)
        rows = rejected_rows.requested(known, request.table, request.keys, record)
        return pb.RetryRejectedRowsResponse(rows=rows)

    @admits(Access.OPERATOR)
    def DropRejectedRows(self, request: pb.DropRejectedRowsRequest, call: AdmittedCall) -> pb.DropRejectedRowsResponse:
        known = _known(self._reader, request.changefeed)
        record = self._recording(call, known, "drop rejected rows", request.table)
        rows = rejected_rows.dropped(known, request.table, request.keys, record)
        return pb.DropRejectedRowsResponse(rows=rows)

    def _recording(self, call: AdmittedCall, known: OwnerView, action: str, table: str) -> Callable[[int], None]:
        """For what is changed at the target: recorded before, so that nothing is done without a record."""
        store, id = self._store.by(call.caller), ChangefeedId(known.info.configuration.id)
        name = table_names(known).get(TableId(table), table)
        return lambda rows: store.record(id, action, name, after=counted(rows, "row"))

    def _obeyed(self, id: ChangefeedId, table: TableId, rev: int) -> pb.Table:
        """Waits until the owner has answered the request."""
        known = _until(self._reader, id, rev, lambda known: table not in known.requests)
        found = {
            message.id: message for message in table_messages.tables(known, tables_of(known), now=datetime.now(UTC))
        }
        return found.get(table, pb.Table(id=table))


class DdlService(DdlServiceServicer):
    def __init__(self, guard: Guard, reader: ClusterReader, store: DesiredStore) -> None:
        self.guard = guard
        self._reader = reader
        self._store = store

    @admits(Access.OPERATOR)
    def SkipDdl(self, request: pb.SkipDdlRequest, call: AdmittedCall) -> pb.Ddl:
        id, known = ChangefeedId(request.changefeed), _known(self._reader, request.changefeed)
        record = _find_refused(known, request.changefeed, request.ddl)
        if record.taken and record.refused is not None:
            raise WrongState(f"it cannot be skipped: {record.refused.message}")
        if record.event.type not in SKIPPABLE:
            anew = record.event.type in _NEEDLESS_AFTER_A_COPY
            raise WrongState(
                f"{record.event} cannot be skipped, since later changes depend on it (only {', '.join(sorted(SKIPPABLE))} can): "
                "remove the cause at the target and resume the table (`sluice table resume`)"
                + (", or have the table copied anew (`sluice table recopy`)" if anew else "")
            )
        rev = self._store.by(call.caller).skip(id, record.position, name=str(record.event))
        known = _until(self._reader, id, rev, lambda known: record.position not in known.skips)
        found = {message.position: message for message in table_messages.ddls(known, tables_of(known))}
        return found.get(str(record.position), pb.Ddl(position=str(record.position)))

    @admits(Access.VIEWER)
    def ListDdl(self, request: pb.ListDdlRequest, call: AdmittedCall) -> Iterator[pb.Ddl]:
        known = _known(self._reader, request.changefeed)
        for ddl in table_messages.ddls(known, tables_of(known)):
            yield _as_of(ddl, self._reader)


_Dated = TypeVar("_Dated", pb.Table, pb.Ddl)


def _as_of(message: _Dated, reader: ClusterReader) -> _Dated:
    """A lag that was known then is not known now."""
    stale = reader.serving.unwritable()
    if stale is not None:
        message.as_of.FromDatetime(stale.at)
        if isinstance(message, pb.Table):
            message.ClearField("lag")
    return message


def _why_not(record: NodeRecord) -> str:
    if Role.PROCESSOR not in record.roles:
        return "is not a processor"
    return "is being drained" if record.draining else "is not ready (`sluice node list` says why)"


def _known(reader: ClusterReader, id: str) -> OwnerView:
    return reader.changefeed(ChangefeedId(id))


def _check_recopy(known: OwnerView, table: TableSchema) -> None:
    id = known.info.configuration.id
    if obstacle := recopy.obstacle(table, known.info.configuration):
        raise WrongState(f"table {table.name} cannot be copied anew: it {obstacle}")
    _check_has_a_name(known, str(table.name), table.id)
    if known.status is None or not known.status.lifecycle.running:
        raise WrongState(f"changefeed {id!r} does not run; resume it, then copy the table anew")
    for record in known.records.values():
        waits = record.open and record.refused is not None and table.id in known_tables(record)
        if waits and record.refused is not None and record.event.type not in _NEEDLESS_AFTER_A_COPY:
            raise WrongState(
                f"table {table.name} has a DDL that waits for a user and comes first: {record.refused.message}"
            )


def _check_series(known: OwnerView, series: Iterable[TableSchema], of_releases: str) -> None:
    """The target's time series is dropped first, so it has to be sure that it can be copied."""
    for table in series:
        why = known.info.configuration.series_obstacle(table.name, known.info.capture) or of_releases
        if why:
            raise WrongState(f"table {table.name} cannot be copied anew: it is a time series: {why}")


def _check_has_a_name(known: OwnerView, text: str, table: TableId) -> None:
    taken = nameless(known.records.values()).get(table)
    if taken is not None and taken.refused is not None:
        raise WrongState(f"table {text} cannot go on: {taken.refused.message}")


def _until(reader: ClusterReader, id: ChangefeedId, rev: int, answered: Callable[[OwnerView], bool]) -> OwnerView:
    """The state when the owner has answered a request that was written at this revision."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while True:
        known = reader.changefeed(id, rev)
        if answered(known):
            return known
        if time.monotonic() >= deadline:
            raise RetryableError(
                f"changefeed {id!r}: the owner has not obeyed within {_ANSWER_SECONDS:g} s; the request stays, and `sluice table list {id}` "
                "shows when it has"
            )
        time.sleep(_LOOK_EVERY)


def _find_troubled(known: OwnerView, changefeed: str, text: str) -> tuple[TableId, str]:
    """Also finds a table that does not exist yet, since its create was refused."""
    for record in known.records.values():
        named = record.event.table is not None and text in (record.event.id, str(record.event.table))
        if named and record.refused is not None and record.open and record.event.id is not None:
            return record.event.id, str(record.event.table)
    found = _find_table(changefeed, tables_of(known), text)
    return found.id, str(found.name)


def _find_to_recopy(known: OwnerView, changefeed: str, text: str) -> TableSchema:
    """Also finds a table that does not exist yet, since its create was refused."""
    records = known.records.values()
    refused = [record.event for record in records if record.open and record.refused is not None]
    created = {event.id for event in refused if event.type is DdlType.CREATE}
    tip = KnownTables(known.bases, records).tip.living() if created else ()
    for _, schema in tip:
        if schema.id in created and text in (schema.id, str(schema.name)):
            return schema
    return _find_table(changefeed, tables_of(known), text)


def _find_refused(known: OwnerView, changefeed: str, text: str) -> DdlRecord:
    names = {schema.id: str(schema.name) for schema in tables_of(known).living}
    for _, record in sorted(known.records.items()):
        tables = known_tables(record)
        meant = {str(record.position), str(record.event.table), *tables, *(names.get(table, "") for table in tables)}
        if record.open and record.refused is not None and text in meant:
            return record
    raise NotFoundError(
        f"changefeed {changefeed!r} has no refused DDL {text!r}; `sluice ddl list {changefeed}` shows its DDLs"
    )


def _find_table(changefeed: str, found: ChangefeedTables, text: str) -> TableSchema:
    for schema in found.living:
        if text in (schema.id, str(schema.name)):
            return schema
    raise NotFoundError(
        f"changefeed {changefeed!r} has no table {text!r}; `sluice table list {changefeed}` shows its tables"
    )
