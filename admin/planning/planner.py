"""`plan_creation`, `estimate_of`: what a configuration would create and copy, and about how long that takes. Changes nothing, anywhere.

Documents go to the target in a comment of a `ping`, so only the way there is measured. How long the target writes is taken from how long the
source reads (`creation_plan.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from datetime import timedelta
from functools import partial

import structlog
from bson.binary import Binary
from pymongo.errors import PyMongoError

from admin.planning.creation_plan import AtTarget, CopySample, copy_estimate, oplog_warnings, planned_tables
from admin.preflight.sink_probe import TargetTables, look_at_tables
from admin.preflight.validation import Findings, Validator
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.config.written_values import Start
from changefeed.errors import SluiceError, SourceRefused
from changefeed.table import TableKind, TableName, TableSchema
from credentials.redaction import redacted
from credentials.secrets import expanded
from sink.opening import target_client
from source.connection import Client, connect, read_command
from source.errors import translated
from source.opening import open_source
from source.oplog.window import read_oplog_window
from source.raw_find import RawFind
from source.tables.chunks import chunks_of, table_sizes

_log = structlog.get_logger(__name__)


_BRIEFLY = 0.5
_FEW_TABLES = 1_000


def plan_creation(validator: Validator, configuration: Configuration) -> pb.Plan:
    """With all findings, whether or not the changefeed could be created."""
    findings = validator.findings(configuration)
    plan = findings.message()
    if findings.choice is None or not findings.tables:
        return plan
    try:
        sample = sample_of(configuration, findings.choice.capture, findings.tables)
        found = look_at_tables(configuration, findings.looks_at)
    except SluiceError as error:
        plan.problems.append(redacted(f"the tables cannot be measured: {error}"))
        return plan
    at_target = partial(_at_target, findings.looks_at, found)
    plan.tables.extend(planned_tables(configuration, findings.tables, sample.sizes, chunks_of, at_target))
    if configuration.start is Start.INITIAL:
        plan.estimate.CopyFrom(copy_estimate(configuration, plan.tables, sample))
        plan.warnings.extend(_warnings(configuration, findings.tables, plan.estimate))
    return plan


def estimate_of(configuration: Configuration, findings: Findings) -> tuple[pb.CopyEstimate | None, list[str]]:
    """For a changefeed that is being created: with a shorter measurement, and only where that is cheap. Also returns warnings."""
    if configuration.start is not Start.INITIAL or not 0 < len(findings.tables) <= _FEW_TABLES:
        return None, []
    try:
        sample = sample_of(configuration, findings.accepted().capture, findings.tables, seconds=_BRIEFLY)
    except SluiceError as error:
        _log.info("copy_not_estimated", changefeed=configuration.id, reason=str(error))
        return None, []
    unknown = partial(_at_target, frozenset(), TargetTables())
    tables = tuple(planned_tables(configuration, findings.tables, sample.sizes, chunks_of, unknown))
    estimate = copy_estimate(configuration, tables, sample)
    return estimate, list(_warnings(configuration, findings.tables, estimate))


def _at_target(looked_at: AbstractSet[TableName], found: TargetTables, name: TableName) -> AtTarget:
    if name not in looked_at:
        return AtTarget.UNKNOWN
    if name in found.missing:
        return AtTarget.CREATED
    return AtTarget.OCCUPIED if name in found.occupied else AtTarget.EMPTY


def _warnings(configuration: Configuration, tables: tuple[TableSchema, ...], estimate: pb.CopyEstimate) -> list[str]:
    merged = configuration.routes.merged(table.name for table in tables)
    return list(oplog_warnings(configuration, estimate, sorted(merged)))


_NAME = "sluice-validate"
_SECONDS = 2.0
_READ_BYTES, _SENT_AT_ONCE = 64_000_000, 8_000_000
_MOST_DOCUMENTS = 5_000
_FEWEST_BYTES = 1_000_000
"""Fewer say nothing about a rate."""

_TELLING = 0.01
"""The part of an oplog that has to be filled before its pace says how long it lasts."""


def sample_of(
    configuration: Configuration, capture: Capture, tables: Sequence[TableSchema], *, seconds: float = _SECONDS
) -> CopySample:
    """Takes twice the seconds at most, and the time of a `dataSize` for each table."""
    names = [table.name for table in tables if table.kind is not TableKind.VIEW]
    uri = expanded(configuration.source)
    if capture is Capture.SHARD_OPLOGS:
        return _of_shards(uri, capture, names)
    with closing(connect(uri, app_name=_NAME, capture=capture)) as client:
        sizes = table_sizes(client, names)
        largest = sorted(sizes, key=lambda name: sizes[name].bytes, reverse=True)[:1]
        documents, read_rate = _read(client, largest, seconds)
        oplog = _oplog_span(client)
    return CopySample(sizes=sizes, read_rate=read_rate, send_rate=_sent(configuration, documents, seconds), oplog=oplog)


def _of_shards(uri: str, capture: Capture, names: Sequence[TableName]) -> CopySample:
    """Only sizes: a rate that one shard shows is not that of a copy from all of them."""
    with closing(open_source(uri, capture)) as source:
        window = source.oplog_window()
        return CopySample(sizes=source.sizes(names), oplog=window.span if window is not None else None)


def _read(client: Client, names: Iterable[TableName], seconds: float) -> tuple[bytes, float | None]:
    """The beginning of the largest table, read as a copy reads it; some of its bytes, and the rate."""
    begun_at, size, some = time.monotonic(), 0, b""
    for name in names:
        with translated(f"reading a sample of {name}"), RawFind(client, name, {}, most=_MOST_DOCUMENTS) as replies:
            for found in replies:
                size += sum(map(len, found.documents))
                some = some or b"".join(found.documents)[:_SENT_AT_ONCE]
                if size >= _READ_BYTES or time.monotonic() > begun_at + seconds:
                    break
    took = time.monotonic() - begun_at
    return some, size / took if size >= _FEWEST_BYTES else None


def _sent(configuration: Configuration, documents: bytes, seconds: float) -> float | None:
    if len(documents) < _FEWEST_BYTES:
        return None
    try:
        with target_client(configuration) as client:
            if client is None:
                return None
            client.admin.command("ping")
            begun_at, size = time.monotonic(), 0
            while not size or time.monotonic() < begun_at + seconds:
                client.admin.command({"ping": 1, "comment": Binary(documents)})
                size += len(documents)
            return size / (time.monotonic() - begun_at)
    except (PyMongoError, SluiceError) as error:
        _log.info("way_to_target_not_measured", reason=type(error).__name__)
        return None


def _oplog_span(client: Client) -> timedelta | None:
    """An oplog that is not full yet will last for longer than its oldest entry is old; how much longer, a new one does not tell."""
    try:
        window = read_oplog_window(client)
        if window is None:
            return None
        with translated("reading the size of the source's oplog"):
            stats = read_command(client, "local", {"collStats": "oplog.rs"})
    except SourceRefused:
        return None
    filled = stats.get("size", 0) / stats["maxSize"] if stats.get("maxSize") else 1.0
    return window.span / min(1.0, filled) if filled >= _TELLING else None
