"""`Plans`: what a create or an update would find and do, the same as messages of the admin API, and the update itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from admin.access import Caller
from admin.cluster_reader import ClusterReader
from admin.desired import verbs
from admin.desired.desired_store import DesiredStore
from admin.desired.verbs import DeploymentIds
from admin.planning.planner import plan_creation
from admin.preflight.looked import Update
from admin.preflight.update_effect import UpdateEffect, changed_options
from admin.preflight.validation import Findings, Validator
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.capture import ASKED_FOR, Capture
from changefeed.config.capture_choice import CaptureChoice
from changefeed.config.configuration import Configuration
from changefeed.errors import ConfigurationError, ConflictError, WrongState
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, Reroute
from changefeed.records.status import ChangefeedStatus
from owner.decision import capture_change
from owner.etcd_view import OwnerView

_PORTION = 1_000
_RUNS_ON = ("it runs on; its tasks obey within seconds",)
_MIRROR_SECONDS = 2.0
_STILL_SECONDS, _LOOK_AGAIN = 20.0, 0.1
"""The pipelines of a changefeed end soon after a pause; those of a dead node end when its permits have expired."""


@dataclass(frozen=True, slots=True)
class _AskedUpdate:
    """An update that was looked at, and the version that it replaces."""

    configuration: Configuration
    reroute: Reroute | None
    known: OwnerView
    version: int
    findings: Findings


class Plans:
    def __init__(
        self, reader: ClusterReader, store: DesiredStore, validator: Validator, stopping: threading.Event
    ) -> None:
        self._reader = reader
        self._store = store
        self._validator = validator
        self._stopping = stopping

    def of_creation(self, text: str) -> pb.Plan:
        try:
            configuration = Configuration.from_yaml(text)
        except ConfigurationError as error:
            return pb.Plan(problems=error.problems)
        self._store.check_free(ChangefeedId(configuration.id))
        return plan_creation(self._validator, configuration)

    def of_update(self, request: pb.UpdateChangefeedRequest) -> pb.Plan:
        asked = self._asked(request)
        if not asked.findings.problems:
            self._level(asked.known, asked.findings.accepted().capture)
        plan = asked.findings.message()
        plan.version = asked.version
        return plan

    def update(self, request: pb.UpdateChangefeedRequest, caller: Caller) -> int:
        """Returns the revision of the change."""
        asked = self._asked(request)
        choice = asked.findings.accepted()
        level = self._level(asked.known, choice.capture)
        ids = DeploymentIds(asked.findings.source_id, asked.findings.sink_id)

        def updated(info: ChangefeedInfo, status: ChangefeedStatus | None) -> ChangefeedInfo:
            return verbs.updated(
                info, status, asked.configuration, asked.version, choice, level=level, reroute=asked.reroute, ids=ids
            )

        return self._store.by(caller).change(ChangefeedId(request.id), updated, "update")

    def _asked(self, request: pb.UpdateChangefeedRequest) -> _AskedUpdate:
        id = ChangefeedId(request.id)
        info, status = self._store.read(id)
        configuration, reroute = _wanted(request, info.configuration), _reroute(request.routes)
        verbs.check_update(info, status, configuration, request.expected_version)
        known = self._at_version(id, info.version)
        if verbs.runs_on(
            info, status, configuration
        ):  # also while source or target is in trouble: a limit may be the remedy
            options = changed_options(info.configuration, configuration)
            findings = Findings(
                choice=CaptureChoice(capture=info.capture, reason=info.capture_reason),
                source_id=info.source_id,
                sink_id=info.sink_id,
                effect=UpdateEffect(options=options, notes=_RUNS_ON if options else ()),
            )
            return _AskedUpdate(configuration, None, known, info.version, findings)
        update = Update.of(known, reroute)
        findings = self._validator.findings(configuration, replaces=update)
        if not findings.problems and verbs.changes_tables(info, status, configuration):
            findings = _while_it_runs(findings, update, configuration)
        return _AskedUpdate(configuration, reroute, known, info.version, findings)

    def _at_version(self, id: ChangefeedId, version: int) -> OwnerView:
        """The mirror may not have shown the version yet."""
        deadline = time.monotonic() + _MIRROR_SECONDS
        while True:
            known = self._reader.changefeed(id)
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
            known = self._reader.changefeed(id)


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


def _while_it_runs(findings: Findings, update: Update, configuration: Configuration) -> Findings:
    """Of an update that takes tables in and out."""
    if any(place.moves for place in update.places(configuration)):
        raise WrongState(
            f"routes: tables of changefeed {configuration.id!r} would get other names; pause it first, then update it"
        )
    note = "it runs on; once no DDL is open its tables change, and all of them stand still for about a second"
    return replace(findings, effect=replace(findings.effect, notes=(*findings.effect.notes, note)))


def in_portions(plan: pb.Plan) -> Iterator[pb.Plan]:
    """There may be a hundred thousand tables."""
    tables = list(plan.tables)
    plan.ClearField("tables")
    for begin in range(0, max(1, len(tables)), _PORTION):
        plan.tables.extend(tables[begin : begin + _PORTION])
        yield plan
        plan = pb.Plan()
