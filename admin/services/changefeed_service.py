"""`ChangefeedService`: creates, shows and controls changefeeds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from admin.access import Access, Guard
from admin.cluster_reader import Changes, ClusterReader, UnreadableChangefeed
from admin.desired import verbs
from admin.desired.desired_store import DesiredStore
from admin.desired.verbs import DeploymentIds, differences
from admin.planning.planner import estimate_of, plan_creation
from admin.preflight.source_probe import check_start, newest_start
from admin.preflight.update_effect import UpdateEffect, changed_options
from admin.preflight.validation import Accepted, Update, Validator, update_of
from admin.services import messages
from admin.services.cut_over import CutOver
from admin.services.rpc import streaming, unary
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.stubs.sluice.admin.v1.admin_pb2_grpc import ChangefeedServiceServicer
from changefeed.capture import ASKED_FOR, Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.capture_choice import CaptureChoice
from changefeed.config.configuration import Configuration
from changefeed.errors import (
    ConfigurationError,
    ConflictError,
    NotFoundError,
    RetryableError,
    WrongState,
)
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, Reroute
from changefeed.records.status import ChangefeedStatus
from owner import capture_change
from owner.etcd_view import OwnerView

_MOST_STREAMS = 32
"""Each stream uses a thread; the remaining threads answer the other calls."""

_LEFT = (
    "its records cannot be read, so they are deleted from etcd and nothing else is cleaned up. At the target stay its tables with their rows, tables that "
    "were being copied (sluice.recopy.*), dead letters, and expiries that are not restored; written messages stay where they are. At the source "
    "stay the heartbeats of change streams (__sluice.heartbeat) and notes in the oplog, which harm nothing"
)

_LAG_STEP_SECONDS = 10
_RUNNING = frozenset({pb.CHANGEFEED_STATE_NORMAL, pb.CHANGEFEED_STATE_WARNING})

_CUT_OVER_WITHIN = timedelta(minutes=1)
_MIRROR_SECONDS = 2.0
_STILL_SECONDS, _LOOK_AGAIN = 20.0, 0.1
"""The pipelines of a changefeed end soon after a pause; those of a dead node end when its permits have expired."""


class ChangefeedService(ChangefeedServiceServicer):
    def __init__(self, guard: Guard, reader: ClusterReader, store: DesiredStore, stopping: threading.Event) -> None:
        self.guard = guard
        self._reader = reader
        self._store = store
        self._stopping = stopping
        self._validator = Validator(reader)
        self._cut_over = CutOver(reader, store)
        self._streams = threading.Semaphore(_MOST_STREAMS)

    @unary(Access.OPERATOR)
    def CreateChangefeed(self, request: pb.CreateChangefeedRequest, context: Any) -> pb.Changefeed:
        configuration = Configuration.from_yaml(request.configuration)
        accepted = self._validator.check(configuration)
        ids = DeploymentIds(accepted.source_id, accepted.sink_id)
        estimate, warnings = estimate_of(configuration, accepted)
        info = verbs.created(configuration, accepted.choice, datetime.now(UTC), ids)
        rev = self._store.create(info, unless_removed=request.unless_removed)
        message = self._message(configuration.id, rev)
        message.warnings.extend([*accepted.warnings, *warnings])
        if estimate is not None:
            message.estimate.CopyFrom(messages.copy_estimate(estimate))
        return message

    @streaming(Access.OPERATOR)
    def PlanChangefeed(self, request: pb.PlanChangefeedRequest, context: Any) -> Iterator[pb.CreationPlan]:
        """Only for operators, as a validation is."""
        yield from messages.creation_plan(
            plan_creation(self._validator, Configuration.from_yaml(request.configuration))
        )

    @unary(Access.OPERATOR)
    def ValidateChangefeed(self, request: pb.ValidateChangefeedRequest, context: Any) -> pb.ValidateChangefeedResponse:
        """Only for operators: the node connects to an address that the caller chooses, with the node's own secrets."""
        try:
            configuration = Configuration.from_yaml(request.configuration)
        except ConfigurationError as error:
            return pb.ValidateChangefeedResponse(problems=error.problems)
        found = self._validator.findings(configuration)
        return pb.ValidateChangefeedResponse(
            problems=found.problems,
            warnings=found.warnings,
            capture=found.choice.capture if found.choice else "",
            capture_reason=found.choice.reason if found.choice else "",
        )

    @unary(Access.OPERATOR)
    def CompareChangefeed(self, request: pb.CompareChangefeedRequest, context: Any) -> pb.CompareChangefeedResponse:
        """Only for operators: a viewer could find out a password by trying."""
        configuration = Configuration.from_yaml(request.configuration)
        id = ChangefeedId(configuration.id)
        try:
            present, _ = self._store.read(id)
        except NotFoundError:
            return pb.CompareChangefeedResponse(removed_at=messages.moment(self._store.removed_at(id)))
        found = differences(configuration, present.configuration)
        return pb.CompareChangefeedResponse(present=self._message(id), differences=found)

    @unary(Access.VIEWER)
    def GetChangefeed(self, request: pb.GetChangefeedRequest, context: Any) -> pb.Changefeed:
        return self._message(request.id)

    @unary(Access.VIEWER)
    def ListChangefeeds(self, request: pb.ListChangefeedsRequest, context: Any) -> pb.ListChangefeedsResponse:
        with self._reader.read() as view:
            found = view.changefeeds()
        now, unwritable = datetime.now(UTC), self._reader.serving.unwritable()
        shown = {
            id: messages.changefeed(id, known, now=now, unwritable=unwritable) for id, known in found.readable.items()
        }
        shown |= {id: messages.unreadable_changefeed(id, error, now) for id, error in found.unreadable.items()}
        return pb.ListChangefeedsResponse(changefeeds=[shown[id] for id in sorted(shown)])

    @unary(Access.OPERATOR)
    def UpdateChangefeed(self, request: pb.UpdateChangefeedRequest, context: Any) -> pb.Changefeed:
        asked = self._asked_update(request)
        level = self._level(asked.known, asked.accepted.choice.capture)
        ids = DeploymentIds(asked.accepted.source_id, asked.accepted.sink_id)

        def updated(info: ChangefeedInfo, status: ChangefeedStatus | None) -> ChangefeedInfo:
            return verbs.updated(
                info,
                status,
                asked.configuration,
                asked.version,
                asked.accepted.choice,
                level=level,
                reroute=asked.reroute,
                ids=ids,
            )

        return self._message(request.id, self._store.change(ChangefeedId(request.id), updated))

    @unary(Access.OPERATOR)
    def PreviewUpdate(self, request: pb.UpdateChangefeedRequest, context: Any) -> pb.UpdatePreview:
        """Only for operators, as a validation is."""
        asked = self._asked_update(request)
        self._level(asked.known, asked.accepted.choice.capture)
        return messages.preview(asked.version, asked.accepted.effect, asked.accepted.warnings)

    def _asked_update(self, request: pb.UpdateChangefeedRequest) -> _AskedUpdate:
        id = ChangefeedId(request.id)
        info, status = self._store.read(id)
        configuration, reroute = _wanted(request, info.configuration), _reroute(request.routes)
        verbs.check_update(info, status, configuration, request.expected_version)
        known = self._at_version(id, info.version)
        if verbs.runs_on(
            info, status, configuration
        ):  # also while source or target is in trouble: a limit may be the remedy
            accepted = Accepted(
                warnings=(),
                choice=CaptureChoice(capture=info.capture, reason=info.capture_reason),
                source_id=info.source_id,
                sink_id=info.sink_id,
                effect=UpdateEffect(
                    options=changed_options(info.configuration, configuration),
                    notes=("it runs on; its tasks obey within seconds",),
                ),
            )
            return _AskedUpdate(configuration, None, known, info.version, accepted)
        update = update_of(known, reroute)
        accepted = self._validator.check(configuration, replaces=update)
        if verbs.changes_tables(info, status, configuration):
            accepted = _while_it_runs(accepted, update, configuration)
        return _AskedUpdate(configuration, reroute, known, info.version, accepted)

    @unary(Access.OPERATOR)
    def PauseChangefeed(self, request: pb.PauseChangefeedRequest, context: Any) -> pb.Changefeed:
        return self._message(request.id, self._store.change(ChangefeedId(request.id), verbs.paused))

    @unary(Access.OPERATOR)
    def ResumeChangefeed(self, request: pb.ResumeChangefeedRequest, context: Any) -> pb.Changefeed:
        id = ChangefeedId(request.id)
        info, status = self._store.read(id)
        start = _start(request.start, info.configuration)
        verbs.resumed(info, status, start)
        if start is not None:
            check_start(info, start)
        rev = self._store.change(id, lambda info, status: verbs.resumed(info, status, start))
        return self._message(id, rev)

    @unary(Access.OPERATOR)
    def RemoveChangefeed(self, request: pb.RemoveChangefeedRequest, context: Any) -> pb.RemoveChangefeedResponse:
        id = ChangefeedId(request.id)
        with self._reader.read() as view:
            unreadable = id in view.changefeeds().unreadable
        if unreadable:
            self._store.remove_unread(id)
            return pb.RemoveChangefeedResponse(left=_LEFT)
        self._store.change(id, verbs.removed)
        return pb.RemoveChangefeedResponse()

    @streaming(Access.OPERATOR)
    def FinalizeChangefeed(self, request: pb.FinalizeChangefeedRequest, context: Any) -> Iterator[pb.FinalizeProgress]:
        with self._following(context) as changes:
            yield from self._cut_over.finalize(
                ChangefeedId(request.id),
                changes,
                leave_stopped=request.leave_stopped,
                block_writes=request.block_writes,
            )

    @unary(Access.VIEWER)
    def GetReadiness(self, request: pb.GetReadinessRequest, context: Any) -> pb.Readiness:
        within = request.within.ToTimedelta() if request.HasField("within") else _CUT_OVER_WITHIN
        found = self._cut_over.ready(ChangefeedId(request.id), within=within, leave_stopped=request.leave_stopped)
        return pb.Readiness(
            ready=found.ready,
            takes=None if found.takes is None else messages.duration(found.takes),
            findings=[
                pb.ReadinessFinding(kind=each.kind, message=each.message, in_the_way=each.in_the_way)
                for each in found.findings
            ],
        )

    @streaming(Access.VIEWER)
    def WatchChangefeed(self, request: pb.WatchChangefeedRequest, context: Any) -> Iterator[pb.Changefeed]:
        shown: pb.Changefeed | None = None
        with self._following(context) as changes:
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
            with self._reader.read(at_least) as view:
                known = view.changefeed(ChangefeedId(id))
        except UnreadableChangefeed as error:
            return messages.unreadable_changefeed(ChangefeedId(id), error, datetime.now(UTC))
        unwritable = self._reader.serving.unwritable()
        return messages.changefeed(ChangefeedId(id), known, now=datetime.now(UTC), unwritable=unwritable)

    def _at_version(self, id: ChangefeedId, version: int) -> OwnerView:
        """The mirror may not have shown the version yet."""
        deadline = time.monotonic() + _MIRROR_SECONDS
        while True:
            with self._reader.read() as view:
                known = view.changefeed(id)
            if known.info.version == version:
                return known
            if known.info.version > version or time.monotonic() >= deadline:
                raise ConflictError(f"changefeed {id!r} was changed by another user meanwhile; query it again")
            self._stopping.wait(_LOOK_AGAIN)

    def _level(self, known: OwnerView, wanted: Capture) -> ChangefeedInfo | None:
        """The `info` of a changefeed whose positions allow another capture; None if the capture stays. Waits for pipelines that still run."""
        if wanted is known.info.capture:
            return None
        id, deadline = ChangefeedId(known.info.configuration.id), time.monotonic() + _STILL_SECONDS
        while True:
            status, standing = known.status, known.standing()
            in_the_way = standing and capture_change.obstacle(standing)
            obeyed = status is not None and status.info_version == known.info.version
            if obeyed and in_the_way is None:
                return known.info
            for_good = obeyed and status is not None and status.still
            if for_good or time.monotonic() >= deadline or self._stopping.wait(_LOOK_AGAIN):
                raise WrongState(
                    f"changefeed {id!r} cannot change its capture from {known.info.capture} to {wanted} at its positions: {in_the_way}"
                )
            with self._reader.read() as view:
                known = view.changefeed(id)

    def _following(self, context: Any) -> Changes:
        if not self._streams.acquire(blocking=False):
            raise RetryableError(
                f"this node already serves {_MOST_STREAMS} streams; try again later, or ask another node"
            )
        return Changes(self._reader, context, self._stopping, self._streams.release)


@dataclass(frozen=True, slots=True)
class _AskedUpdate:
    """An update that was checked, and the version that it was checked against."""

    configuration: Configuration
    reroute: Reroute | None
    known: OwnerView
    version: int
    accepted: Accepted


def _reroute(text: str) -> Reroute | None:
    if text and text not in tuple(Reroute):
        raise ConfigurationError([f"routes: found {text[:60]!r}; allowed are {', '.join(Reroute)}"])
    return Reroute(text) if text else None


def _wanted(request: pb.UpdateChangefeedRequest, present: Configuration) -> Configuration:
    configuration = Configuration.from_yaml(request.configuration) if request.configuration else present
    limits = {name: getattr(request, name) for name in ("copy_limit", "apply_limit", "delay") if request.HasField(name)}
    written: dict[str, Any] = {name: None if limit == "none" else limit for name, limit in limits.items()}
    if request.tables:
        rest = configuration.filter.model_dump(mode="json", exclude_unset=True)
        written["filter"] = {**rest, "tables": list(request.tables)}
    if written:
        configuration = Configuration.parse(configuration.model_dump(mode="json", exclude_unset=True) | written)
    if not request.capture:
        return configuration
    if request.capture not in ASKED_FOR:
        raise ConfigurationError([f"capture: found {request.capture[:60]!r}; allowed are {', '.join(ASKED_FOR)}"])
    return configuration.model_copy(update={"capture": Capture(request.capture)})


def _while_it_runs(accepted: Accepted, update: Update, configuration: Configuration) -> Accepted:
    """Of an update that takes tables in and out."""
    known, id = update.known, configuration.id
    if any(place.moves for place in update.places(configuration)):
        raise WrongState(f"routes: tables of changefeed {id!r} would get other names; pause it first, then update it")
    refused = [str(record.event) for record in known.records.values() if record.open and record.refused is not None]
    if refused:
        raise WrongState(
            f"{refused[0]} was refused by the target, and tables change only when no DDL is open; answer it first (`sluice ddl list {id}`), or pause "
            "the changefeed, update it, and resume it"
        )
    note = "it runs on; once no DDL is open its tables change, and all of them stand still for about a second"
    return replace(accepted, effect=replace(accepted.effect, notes=(*accepted.effect.notes, note)))


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
