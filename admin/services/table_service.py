"""`TableService` and `DdlService`: a changefeed's tables with their nodes and progress, and its DDLs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from admin.access import Access, Guard
from admin.cluster_reader import ChangefeedTables, ClusterReader, tables_of
from admin.desired.desired_store import DesiredStore
from admin.services import messages
from admin.services.node_service import find_node
from admin.services.rpc import streaming, unary
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.stubs.sluice.admin.v1.admin_pb2_grpc import DdlServiceServicer, TableServiceServicer
from changefeed.errors import NotFoundError, WrongState
from changefeed.records import ChangefeedId, Role
from changefeed.table import TableKind, TableSchema
from owner.etcd_view import OwnerView


class TableService(TableServiceServicer):
    def __init__(self, guard: Guard, reader: ClusterReader, store: DesiredStore) -> None:
        self.guard = guard
        self._reader = reader
        self._store = store

    @streaming(Access.VIEWER)
    def ListTables(self, request: pb.ListTablesRequest, context: Any) -> Iterator[pb.Table]:
        known = _known(self._reader, request.changefeed)
        yield from messages.tables(known, tables_of(known))

    @unary(Access.OPERATOR)
    def MoveTable(self, request: pb.MoveTableRequest, context: Any) -> pb.MoveTableResponse:
        with self._reader.read() as view:
            known = view.changefeed(ChangefeedId(request.changefeed))
            node = find_node(view, request.node)
            record = view.nodes[node].record
        table = _find_table(request.changefeed, tables_of(known), request.table)
        if table.kind is TableKind.VIEW:
            raise WrongState(f"{table.name} is a view; it has no rows, so it is not assigned to a node")
        if Role.PROCESSOR not in record.roles or record.draining:
            why = "is being drained" if record.draining else "is not a processor"
            raise WrongState(f"node {node!r} {why}; it accepts no tables")
        self._store.move(ChangefeedId(request.changefeed), table.id, node)
        return pb.MoveTableResponse(table=table.id, node=node)


class DdlService(DdlServiceServicer):
    def __init__(self, guard: Guard, reader: ClusterReader) -> None:
        self.guard = guard
        self._reader = reader

    @streaming(Access.VIEWER)
    def ListDdl(self, request: pb.ListDdlRequest, context: Any) -> Iterator[pb.Ddl]:
        known = _known(self._reader, request.changefeed)
        yield from messages.ddls(known, tables_of(known))


def _known(reader: ClusterReader, id: str) -> OwnerView:
    with reader.read() as view:
        return view.changefeed(ChangefeedId(id))


def _find_table(changefeed: str, found: ChangefeedTables, text: str) -> TableSchema:
    for schema in found.living:
        if text in (schema.id, str(schema.name)):
            return schema
    raise NotFoundError(
        f"changefeed {changefeed!r} has no table {text!r}; `sluice table list {changefeed}` shows its tables"
    )
