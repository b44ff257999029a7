"""Whether an update keeps what its changefeed stands on: its deployments, open DDLs, and the names that its tables have at the target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from admin.preflight.looked import Check, Looked, SourceFindings, Update
from admin.preflight.sink_probe import SinkFindings, identify_sink
from admin.preflight.source_probe import identify_source
from admin.preflight.update_effect import Side, UpdateEffect, effect, other_deployments
from changefeed.config.capture_choice import CaptureChoice
from changefeed.config.configuration import Configuration
from changefeed.records.requests import Reroute
from changefeed.table import TableKind, TableSchema
from owner.decision.state import published
from owner.tables import filter_change, route_change
from owner.tables.route_change import rename_problems
from owner.target_changes import view_problems


def decided(configuration: Configuration, replaces: Update | None) -> CaptureChoice | None:
    """An earlier decision stays until a user requests another capture."""
    if replaces is None or replaces.known.info.configuration.capture is not configuration.capture:
        return None
    return CaptureChoice(capture=replaces.known.info.capture, reason=replaces.known.info.capture_reason)


def followed(tables: Sequence[TableSchema], replaces: Update) -> tuple[TableSchema, ...]:
    """A table that has the name of a known one, and an unknown id, came after the checkpoint: the known one was dropped, renamed, moved or
    resharded. The changefeed will follow that DDL. To its update the table is the known one; or nothing, if that is here by another name.
    """
    known = [table for table in replaces.tables if table.id not in replaces.without_name]
    present, ids = {table.id for table in tables}, {table.id for table in known}
    names = {each.name: each.id for each in known}
    found = []
    for table in tables:
        if table.id in ids or table.name not in names:
            found.append(table)
        elif names[table.name] not in present:
            found.append(replace(table, id=names[table.name]))
    return tuple(found)


def another_deployment(
    configuration: Configuration, replaces: Update, source: SourceFindings, sink: SinkFindings
) -> Iterator[str]:
    info = replaces.known.info
    before = info.configuration
    read = Side(
        name="source",
        before=before.source,
        now=configuration.source,
        known_id=info.source_id,
        found_id=source.identity.id or "",
        other_known_id=info.sink_id,
        proven=_proven(replaces, source),
        grant=source.identity_lacks,
    )
    written = Side(
        name="sink",
        before=before.sink,
        now=configuration.sink,
        known_id=info.sink_id,
        found_id=sink.identity.id or "",
        other_known_id=info.source_id,
        grant=sink.identity_lacks,
    )
    if not read.known_id and read.found_id and not read.same_hosts:
        read = replace(read, known_id=identify_source(before))
    if not written.known_id and written.found_id and not written.same_hosts:
        written = replace(written, known_id=identify_sink(before))
    yield from other_deployments(configuration.id, read, written)


def _proven(replaces: Update, source: SourceFindings) -> bool | None:
    """Two deployments may have an entry of one time by chance (idle ones write a no-op at the beginning of a second), but not a table with one UUID."""
    if source.has_history is None:
        return None
    known = {table.id for table in replaces.tables if table.kind is not TableKind.VIEW}
    there = {table.id for table in source.tables}
    return source.has_history and (not known or bool(known & there))


def effect_of(looked: Looked) -> UpdateEffect:
    replaces, choice = looked.replaces, looked.source.choice and looked.choice
    if replaces is None or choice is None:
        return UpdateEffect()
    return effect(
        replaces.known.info,
        looked.configuration,
        choice.capture,
        replaces.reroute,
        replaces.places(looked.configuration),
        looked.tables,
        known=replaces.tables,
        without_name=replaces.without_name,
        begun=replaces.begun,
    )


def _unfinished_ddls(looked: Looked) -> Iterator[str]:
    """Those that wait for a user. For the others the owner waits."""
    replaces, configuration = looked.replaces, looked.configuration
    status = replaces.known.status if replaces is not None else None
    if replaces is None or status is None or status.checkpoint is None or status.follows(configuration):
        return
    position, records = published(status, replaces.known.barrier), replaces.known.records.values()
    blocking = filter_change.in_the_way(configuration.filter, position, records, replaces.without_name.keys())
    if refused := [record for record in blocking if record.refused is not None]:
        yield filter_change.waits_for(refused)


def _new_names(looked: Looked) -> Iterator[str]:
    """Whether tables can get the names that changed routes give them."""
    replaces, configuration = looked.replaces, looked.configuration
    status = replaces.known.status if replaces is not None else None
    if replaces is None or status is None or status.checkpoint is None or looked.merged:
        return
    if status.routes is None and configuration.routes != replaces.known.info.configuration.routes:
        yield "routes: the owner has not recorded yet by which routes the tables have their names; try again in a moment"
        return
    places, moving = replaces.places(configuration), looked.moving
    if moving and replaces.reroute is None:
        yield route_change.undecided(moving)
    if replaces.reroute is Reroute.RENAME:
        yield from (f"routes: {problem}" for problem in rename_problems(places))
    if moving:
        yield from (f"routes: {problem}" for problem in view_problems(places, configuration))


PROBLEMS: tuple[Check, ...] = (_unfinished_ddls, _new_names)
