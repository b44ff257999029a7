"""`plan_creation`, `estimate_of`: what a configuration would create and copy. Changes nothing, at the source, the target or in etcd."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

import structlog

from admin.planning.copy_sample import CopySample, sample_of
from admin.planning.creation_plan import AtTarget, CopyEstimate, PlannedTable, oplog_warnings, planned_tables
from admin.preflight.sink_probe import TargetTables, look_at_tables
from admin.preflight.validation import Accepted, Findings, Validator
from changefeed.config.configuration import Configuration, Start
from changefeed.errors import SluiceError
from changefeed.table import TableName, TableSchema
from credentials.redaction import redacted
from source.tables.chunks import chunks_of

_BRIEFLY = 0.5
_FEW_TABLES = 1_000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationPlan:
    findings: Findings
    tables: tuple[PlannedTable, ...] = ()
    estimate: CopyEstimate | None = None
    """None: nothing is copied, or nothing is known."""


def plan_creation(validator: Validator, configuration: Configuration) -> CreationPlan:
    """With all findings, whether or not the changefeed could be created."""
    findings = validator.findings(configuration)
    if findings.choice is None or not findings.tables:
        return CreationPlan(findings=findings)
    try:
        sample = sample_of(configuration, findings.choice.capture, findings.tables)
        found = look_at_tables(configuration, findings.looks_at)
    except SluiceError as error:
        problems = (*findings.problems, redacted(f"the tables cannot be measured: {error}"))
        return CreationPlan(findings=replace(findings, problems=problems))
    at_target = partial(_at_target, findings.looks_at, found)
    tables = tuple(planned_tables(configuration, findings.tables, sample.sizes, chunks_of, at_target))
    if configuration.start is not Start.INITIAL:
        return CreationPlan(findings=findings, tables=tables)
    estimate = _estimate(configuration, tables, sample)
    warnings = (*findings.warnings, *_warnings(configuration, findings.tables, estimate))
    return CreationPlan(findings=replace(findings, warnings=warnings), tables=tables, estimate=estimate)


def estimate_of(configuration: Configuration, accepted: Accepted) -> tuple[CopyEstimate | None, list[str]]:
    """For a changefeed that is being created: with a shorter measurement, and only where that is cheap. Also returns warnings."""
    if configuration.start is not Start.INITIAL or not 0 < len(accepted.tables) <= _FEW_TABLES:
        return None, []
    try:
        sample = sample_of(configuration, accepted.choice.capture, accepted.tables, seconds=_BRIEFLY)
    except SluiceError as error:
        _log.info("copy_not_estimated", changefeed=configuration.id, reason=str(error))
        return None, []
    unknown = partial(_at_target, frozenset(), TargetTables())
    tables = planned_tables(configuration, accepted.tables, sample.sizes, chunks_of, unknown)
    estimate = _estimate(configuration, tuple(tables), sample)
    return estimate, list(_warnings(configuration, accepted.tables, estimate))


def _at_target(looked_at: AbstractSet[TableName], found: TargetTables, name: TableName) -> AtTarget:
    if name not in looked_at:
        return AtTarget.UNKNOWN
    if name in found.missing:
        return AtTarget.CREATED
    return AtTarget.OCCUPIED if name in found.occupied else AtTarget.EMPTY


def _estimate(configuration: Configuration, tables: tuple[PlannedTable, ...], sample: CopySample) -> CopyEstimate:
    return CopyEstimate.of(
        configuration, tables, read_rate=sample.read_rate, send_rate=sample.send_rate, oplog=sample.oplog
    )


def _warnings(configuration: Configuration, tables: tuple[TableSchema, ...], estimate: CopyEstimate) -> list[str]:
    merged = configuration.routes.merged(table.name for table in tables)
    return list(oplog_warnings(configuration, estimate, sorted(merged)))
