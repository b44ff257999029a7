"""`ChangefeedService`: creates, shows and controls changefeeds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from admin.access import Access, Guard
from admin.cluster_reader import Changes, ClusterReader, UnreadableChangefeed
from admin.desired import verbs
from admin.desired.desired_store import DesiredStore
from admin.desired.verbs import DeploymentIds, differences
from admin.planning.planner import estimate_of
from admin.preflight.source_probe import check_start, newest_start
from admin.preflight.validation import Validator
from admin.services import changefeed_messages, history_messages, sync_points
from admin.services.cut_over import CutOver
from admin.services.plans import Plans, in_portions
from admin.services.rpc import AdmittedCall, admits
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.stubs.sluice.admin.v1.admin_pb2_grpc import ChangefeedServiceServicer
from admin.way_back.reversal import AskedReversal
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.errors import ConfigurationError, NotFoundError, RetryableError
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId
from changefeed.table import BESIDE_NAMES

_MOST_STREAMS = 32
"""Each stream uses a thread; the remaining threads answer the other calls."""

_LEFT = (
    "its records cannot be read, so they are deleted from etcd and nothing else is cleaned up. At the target stay its tables with their rows, tables that "
    f"were being copied ({BESIDE_NAMES}), dead letters, and expiries that are not restored; written messages stay where they are. At the source "
    "stay the heartbeats of change streams (__sluice.heartbeat) and notes in the oplog, which harm nothing"
)

_LAG_STEP_SECONDS = 10
_RUNNING = frozenset({pb.CHANGEFEED_STATE_NORMAL, pb.CHANGEFEED_STATE_WARNING})

_CUT_OVER_WITHIN = timedelta(minutes=1)


class ChangefeedService(ChangefeedServiceServicer):
    def __init__(self, guard: Guard, reader: ClusterReader, store: DesiredStore, stopping: threading.Event) -> None:
        self.guard = guard
        self._reader = reader
        self._store = store
        self._stopping = stopping
        self._validator = Validator(reader)
        self._plans = Plans(reader, store, self._validator, stopping)
        self._cut_over = CutOver(reader, store, self._validator)
        self._streams = threading.Semaphore(_MOST_STREAMS)

    @admits(Access.OPERATOR)
    def CreateChangefeed(self, request: pb.CreateChangefeedRequest, call: AdmittedCall) -> pb.Changefeed:
        configuration = Configuration.from_yaml(request.configuration)
        self._store.check_free(ChangefeedId(configuration.id))
        findings = self._validator.findings(configuration)
        choice, ids = findings.accepted(), DeploymentIds(findings.source_id, findings.sink_id)
        estimate, warnings = estimate_of(configuration, findings)
        info = verbs.created(configuration, choice, datetime.now(UTC), ids)
        rev = self._store.by(call.caller).create(info, unless_removed=request.unless_removed)
        message = self._message(configuration.id, rev)
        message.warnings.extend([*findings.warnings, *warnings])
        if estimate is not None:
            message.estimate.CopyFrom(estimate)
        return message

    @admits(Access.OPERATOR)
    def PlanChangefeed(self, request: pb.PlanChangefeedRequest, call: AdmittedCall) -> Iterator[pb.Plan]:
        """Only for operators: the node connects to an address that the caller chooses, with the node's own secrets."""
        match request.WhichOneof("asked"):
            case "create":
                yield from in_portions(self._plans.of_creation(request.create.configuration))
            case "update":
                yield from in_portions(self._plans.of_update(request.update))
            case _:
                raise ConfigurationError(["asked: found nothing; write create or update"])

    @admits(Access.OPERATOR)
    def CompareChangefeed(
        self, request: pb.CompareChangefeedRequest, call: AdmittedCall
    ) -> pb.CompareChangefeedResponse:
        """Only for operators: a viewer could find out a password by trying."""
        configuration = Configuration.from_yaml(request.configuration)
        id = ChangefeedId(configuration.id)
        try:
            present, _ = self._store.read(id)
        except NotFoundError:
            return pb.CompareChangefeedResponse(removed_at=self._store.removed_at(id))
        found = differences(configuration, present.configuration)
        return pb.CompareChangefeedResponse(present=self._message(id), differences=found)

    @admits(Access.VIEWER)
    def GetChangefeed(self, request: pb.GetChangefeedRequest, call: AdmittedCall) -> pb.Changefeed:
        return self._message(request.id)

    @admits(Access.OPERATOR)
    def ExportChangefeed(self, request: pb.GetChangefeedRequest, call: AdmittedCall) -> pb.ExportedChangefeed:
        info, _ = self._store.read(ChangefeedId(request.id))
        text, variables = info.configuration.exported()
        return pb.ExportedChangefeed(configuration=text, variables=variables)

    @admits(Access.VIEWER)
    def ListChangefeeds(self, request: pb.ListChangefeedsRequest, call: AdmittedCall) -> pb.ListChangefeedsResponse:
        with self._reader.read() as view:
            found = view.changefeeds()
        now, unwritable = datetime.now(UTC), self._reader.serving.unwritable()
        shown = {
            id: changefeed_messages.changefeed(id, known, now=now, unwritable=unwritable)
            for id, known in found.readable.items()
        }
        shown |= {
            id: changefeed_messages.unreadable_changefeed(id, error, now) for id, error in found.unreadable.items()
        }
        return pb.ListChangefeedsResponse(changefeeds=[shown[id] for id in sorted(shown)])

    @admits(Access.OPERATOR)
    def UpdateChangefeed(self, request: pb.UpdateChangefeedRequest, call: AdmittedCall) -> pb.Changefeed:
        return self._message(request.id, self._plans.update(request, call.caller))

    @admits(Access.OPERATOR)
    def PauseChangefeed(self, request: pb.PauseChangefeedRequest, call: AdmittedCall) -> pb.Changefeed:
        rev = self._store.by(call.caller).change(ChangefeedId(request.id), verbs.paused, "pause")
        return self._message(request.id, rev)

    @admits(Access.OPERATOR)
    def ResumeChangefeed(self, request: pb.ResumeChangefeedRequest, call: AdmittedCall) -> pb.Changefeed:
        id = ChangefeedId(request.id)
        info, status = self._store.read(id)
        start = _start(request.start, info.configuration)
        verbs.resumed(info, status, start)
        if start is not None:
            check_start(info, start)
        store = self._store.by(call.caller)
        rev = store.change(id, lambda info, status: verbs.resumed(info, status, start), "resume")
        return self._message(id, rev)

    @admits(Access.OPERATOR)
    def RemoveChangefeed(self, request: pb.RemoveChangefeedRequest, call: AdmittedCall) -> pb.RemoveChangefeedResponse:
        id = ChangefeedId(request.id)
        with self._reader.read() as view:
            unreadable = id in view.changefeeds().unreadable
        if unreadable:
            self._store.by(call.caller).remove_unread(id)
            return pb.RemoveChangefeedResponse(left=_LEFT)
        self._store.by(call.caller).change(id, verbs.removed, "remove")
        return pb.RemoveChangefeedResponse()

    @admits(Access.OPERATOR)
    def FinalizeChangefeed(
        self, request: pb.FinalizeChangefeedRequest, call: AdmittedCall
    ) -> Iterator[pb.FinalizeProgress]:
        id, back = ChangefeedId(request.id), ChangefeedId(request.reverse_as)
        if request.give_up:
            yield self._cut_over.give_up(id, call.caller)
            return
        with self._following(call) as changes:
            if back:
                asked = AskedReversal(id=id, back=back, blocks=request.block_writes)
                yield from self._cut_over.reverse(asked, changes, call.caller)
                return
            yield from self._cut_over.finalize(
                id, changes, call.caller, leave_stopped=request.leave_stopped, block_writes=request.block_writes
            )

    @admits(Access.VIEWER)
    def GetReadiness(self, request: pb.GetReadinessRequest, call: AdmittedCall) -> pb.Readiness:
        within = request.within.ToTimedelta() if request.HasField("within") else _CUT_OVER_WITHIN
        id, back = ChangefeedId(request.id), ChangefeedId(request.reverse_as)
        asked = AskedReversal(id=id, back=back, blocks=request.block_writes) if back else None
        return self._cut_over.ready(
            id,
            within=within,
            leave_stopped=request.leave_stopped,
            block_writes=request.block_writes,
            reversed_as=asked,
        )

    @admits(Access.VIEWER)
    def ListSyncPoints(self, request: pb.ListSyncPointsRequest, call: AdmittedCall) -> pb.ListSyncPointsResponse:
        known = self._reader.changefeed(ChangefeedId(request.id))
        return pb.ListSyncPointsResponse(points=sync_points.listed(known, request.most))

    @admits(Access.OPERATOR)
    def MakeSyncPoint(self, request: pb.MakeSyncPointRequest, call: AdmittedCall) -> pb.MakeSyncPointResponse:
        id = ChangefeedId(request.id)
        known = self._reader.changefeed(id)
        sync_points.check_has_some(known.info.configuration)
        rev = self._store.by(call.caller).ask_for_sync_point(id)
        return pb.MakeSyncPointResponse(point=sync_points.made(id, known.sync, self._reader, rev))

    @admits(Access.VIEWER)
    def ListHistory(self, request: pb.ListHistoryRequest, call: AdmittedCall) -> Iterator[pb.HistoryEntry]:
        id, known = ChangefeedId(request.changefeed), None
        entries = self._store.history(id)
        try:
            known = self._reader.changefeed(id)
        except (NotFoundError, UnreadableChangefeed):
            if not entries:
                raise
        yield from history_messages.entries(entries, known)

    @admits(Access.VIEWER)
    def WatchChangefeed(self, request: pb.WatchChangefeedRequest, call: AdmittedCall) -> Iterator[pb.Changefeed]:
        shown: pb.Changefeed | None = None
        with self._following(call) as changes:
            while changes.wait():
                try:
                    now = self._message(request.id)
                except NotFoundError:
                    if shown is None:
                        raise
                    return
                if shown is None or _in_steps(now) != _in_steps(shown):
                    yield now
                    shown = now

    def _message(self, id: str, at_least: int = 0) -> pb.Changefeed:
        try:
            known = self._reader.changefeed(ChangefeedId(id), at_least)
        except UnreadableChangefeed as error:
            return changefeed_messages.unreadable_changefeed(ChangefeedId(id), error, datetime.now(UTC))
        unwritable = self._reader.serving.unwritable()
        return changefeed_messages.changefeed(ChangefeedId(id), known, now=datetime.now(UTC), unwritable=unwritable)

    def _following(self, call: AdmittedCall) -> Changes:
        if not self._streams.acquire(blocking=False):
            raise RetryableError(
                f"this node already serves {_MOST_STREAMS} streams; try again later, or ask another node"
            )
        return Changes(self._reader, call.when_over, self._stopping, self._streams.release)


def _start(text: str, configuration: Configuration) -> Position | None:
    if not text:
        return None
    if text == "now":
        return newest_start(configuration)
    if text == "initial":
        raise ConfigurationError(
            ["start: found 'initial'; a changefeed that has begun is not copied again, remove it and create it again"]
        )
    for parse in (Position.parse, lambda text: Position(ClusterTime.from_iso(text))):
        try:
            return parse(text)
        except ValueError:
            continue
    raise ConfigurationError(
        [
            f"start: found {text[:60]!r}; write now, a time such as 2026-11-21T00:00:00Z or a cluster time such as 1795224774.9"
        ]
    )


def _in_steps(message: pb.Changefeed) -> pb.Changefeed:
    """Without what changes with time alone. A lag that grows while the changefeed runs is told in steps."""
    rest = pb.Changefeed()
    rest.CopyFrom(message)
    steps = message.lag.seconds // _LAG_STEP_SECONDS if message.state in _RUNNING else 0
    rest.lag.FromSeconds(steps)
    rest.ClearField("slowest")
    if rest.HasField("copy"):
        rest.copy.ClearField("left")
    return rest
