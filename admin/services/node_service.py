"""`NodeService` and `ClusterService`: the nodes of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from admin.access import Access, Guard
from admin.cluster_reader import ClusterReader, ClusterView, ServingNode
from admin.desired.audit import AuditLine
from admin.desired.desired_store import DesiredStore
from admin.diagnosis import Diagnosis
from admin.lag import node_lag
from admin.services.changefeed_messages import alike, error_report
from admin.services.rpc import AdmittedCall, admits
from admin.services.troubles import faults, not_ready
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.stubs.sluice.admin.v1.admin_pb2_grpc import ClusterServiceServicer, NodeServiceServicer
from changefeed.errors import ConflictError, CoordinationUnavailable, NotFoundError, WrongState
from changefeed.records.node import NodeId, PositionReport, Role
from changefeed.records.requests import ChangefeedId
from credentials.logging import levels, set_levels
from owner.etcd_view import OwnerView

_PORTION_BYTES = 1 << 20
"""A client takes messages of up to 4 MiB."""


class NodeService(NodeServiceServicer):
    def __init__(self, guard: Guard, reader: ClusterReader, store: DesiredStore, diagnosis: Diagnosis) -> None:
        self.guard = guard
        self._reader = reader
        self._store = store
        self._diagnosis = diagnosis

    @admits(Access.VIEWER)
    def ListNodes(self, request: pb.ListNodesRequest, call: AdmittedCall) -> pb.ListNodesResponse:
        with self._reader.read() as view:
            return pb.ListNodesResponse(nodes=node_messages(view, self._reader.serving, datetime.now(UTC)))

    @admits(Access.OPERATOR)
    def DrainNode(self, request: pb.DrainNodeRequest, call: AdmittedCall) -> pb.Node:
        node = self._processor(request.id)
        return self._written(node, self._store.by(call.caller).drain(node, force=request.force))

    @admits(Access.OPERATOR)
    def UndrainNode(self, request: pb.UndrainNodeRequest, call: AdmittedCall) -> pb.Node:
        node = self._processor(request.id)
        return self._written(node, self._store.by(call.caller).undrain(node))

    def _processor(self, text: str) -> NodeId:
        with self._reader.read() as view:
            node = find_node(view, text)
            if Role.PROCESSOR not in view.nodes[node].record.roles:
                raise WrongState(f"node {node!r} is not a processor; it has no tables to give up")
        return node

    def _written(self, node: NodeId, rev: int) -> pb.Node:
        with self._reader.read(rev) as view:
            found = [each for each in node_messages(view, self._reader.serving, datetime.now(UTC)) if each.id == node]
        if not found:
            raise NotFoundError(f"node {node!r} no longer exists")
        return found[0]

    @admits(Access.OPERATOR)
    def ResignOwner(self, request: pb.ResignOwnerRequest, call: AdmittedCall) -> pb.ResignOwnerResponse:
        with self._reader.read() as view:
            owner, nodes = view.owner, view.nodes
        if owner is None:
            raise CoordinationUnavailable("there is no owner at present; an election is running")
        if not any(Role.OWNER in stored.record.roles for node, stored in nodes.items() if node != owner.node):
            raise WrongState(f"{owner.node} is the only node that may be owner; start another one first")
        self._store.by(call.caller).resign(owner)
        return pb.ResignOwnerResponse(former_owner=owner.node)

    @admits(Access.OPERATOR)
    def SetLogLevels(self, request: pb.LogLevels, call: AdmittedCall) -> pb.LogLevels:
        if request.levels:
            before = levels()
            set_levels(dict(request.levels))
            shown = (
                " ".join(f"{module or '*'}={level}" for module, level in each.items()) for each in (before, levels())
            )
            AuditLine(by=call.caller, action="log_level", before=next(shown), after=next(shown)).log()
        return pb.LogLevels(levels=levels())

    @admits(Access.OPERATOR)
    def Diagnose(self, request: pb.DiagnoseRequest, call: AdmittedCall) -> Iterator[pb.DiagnosticFile]:
        profile = request.profile.ToTimedelta() if request.HasField("profile") else None
        for name, content in self._diagnosis.files(profile):
            for begin in range(0, max(1, len(content)), _PORTION_BYTES):
                yield pb.DiagnosticFile(name=name, content=content[begin : begin + _PORTION_BYTES])


class ClusterService(ClusterServiceServicer):
    def __init__(self, guard: Guard, reader: ClusterReader, version: str) -> None:
        self.guard = guard
        self._reader = reader
        self._version = version

    @admits(Access.VIEWER)
    def GetCluster(self, request: pb.GetClusterRequest, call: AdmittedCall) -> pb.Cluster:
        with self._reader.read() as view:
            owner = view.owner
            return pb.Cluster(
                name=self._reader.layout.cluster,
                owner=owner.node if owner else "",
                nodes=len(view.nodes),
                changefeeds=len(view.ids),
                version=self._version,
            )


def find_node(view: ClusterView, text: str) -> NodeId:
    """Finds a node by its id, or by its name if only one node has it."""
    nodes = view.nodes
    if text in nodes:
        return NodeId(text)
    named = [node for node, stored in nodes.items() if stored.record.name == text]
    if len(named) > 1:
        raise ConflictError(f"several nodes are named {text!r}: {', '.join(sorted(named))}; use the id of one of them")
    if not named:
        raise NotFoundError(f"there is no node {text!r}; `sluice node list` shows all nodes")
    return named[0]


def node_messages(view: ClusterView, serving: ServingNode, now: datetime) -> Iterator[pb.Node]:
    leader, unwritable = view.owner, serving.unwritable()
    counts: dict[NodeId, int] = {}
    reports: dict[NodeId, list[tuple[ChangefeedId, PositionReport]]] = {}
    changefeeds = view.changefeeds().readable
    for id, known in changefeeds.items():
        for node, assigned in known.assignments.items():
            counts[node] = counts.get(node, 0) + len(assigned.record.tables)
        for node, report in known.present_reports.items():
            given = known.assignments.get(node)
            if (given is not None and given.record.tables) or report.error is not None or report.reaches:
                reports.setdefault(node, []).append((id, report))
    met = [
        (id, known.status.lifecycle.error)
        for id, known in changefeeds.items()
        if known.status is not None and known.status.lifecycle.error is not None
    ]
    lags = lags_of_nodes(changefeeds.values(), now)
    for node, stored in sorted(view.nodes.items()):
        record, own = stored.record, node == serving.node()
        leads = leader is not None and leader.node == node
        found = faults(record.health, reports.get(node, ()), met if leads else ())
        feed, error = found.last or (None, None)
        takes_part = node in reports or (leads and bool(met))
        yield pb.Node(
            **alike(record, "id", "name", "admin_address", "version", "started_at", "draining"),
            roles=sorted(record.roles),
            owner=leads,
            tables=counts.get(node, 0),
            not_ready=serving.not_ready() if own else not_ready(record.health) if record.health else "",
            spark=record.health.ready if record.health else None,
            etcd_writable=unwritable is None if own else None,
            source_reachable=not found.source if takes_part else None,
            target_reachable=not found.target if takes_part else None,
            last_error=error_report(error),
            last_error_changefeed=feed or "",
            lag=lags.get(node) if unwritable is None else None,
            as_of=unwritable.at if unwritable else None,
        )


def lags_of_nodes(changefeeds: Iterable[OwnerView], now: datetime) -> dict[NodeId, timedelta]:
    """Of the nodes that have tables which are not stopped."""
    found: dict[NodeId, timedelta] = {}
    for known in changefeeds:
        if known.status is None or known.status.checkpoint is None or not known.status.lifecycle.running:
            continue
        for node, assigned in known.assignments.items():
            lag = node_lag(known.status, assigned.record, known.reports.get(node), known.stragglers.keys(), now)
            if lag is not None:
                found[node] = max(lag, found.get(node, lag))
    return found
