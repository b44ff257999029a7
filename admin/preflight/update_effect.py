"""`effect`: what an update does to a changefeed, for a user to confirm. `other_deployments`: whether it still means its source and sink. Pure.

A position means something in one deployment's history only, and what was replicated is in one target only. Host names do not say which
deployment they lead to; the id of its replica set or sharded cluster does.

    known and found ids                        decide, whatever the host names are
    one of them is unknown, the same hosts     nothing was changed
    one of them is unknown, the source         the same if its oplog has an entry at a position of the changefeed, and it has one of its tables
    otherwise                                  refused, with the privilege that would prove it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from admin.preflight.table_obstacles import expires
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.capture import Capture
from changefeed.config.configuration import Configuration, Ttl
from changefeed.config.live_options import messages_at
from changefeed.config.uri import ConnectionUri
from changefeed.printable import named
from changefeed.records.requests import ChangefeedInfo, Reroute
from changefeed.table import TableId, TableKind, TableName, TableSchema
from owner.tables.route_change import Place


class TableEffect(StrEnum):
    ADDED = "added"
    """Copied from the source, then followed."""
    FOLLOWED = "followed"
    """Without a copy, since the start copies nothing, or since it is a view."""
    REMOVED = "removed"
    """No longer replicated. It stays at the target as it is."""
    RENAMED = "renamed"
    COPIED = "copied"
    """Anew, to its new name. What has the old one stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateEffect:
    options: tuple[pb.ChangedOption, ...] = ()
    tables: tuple[pb.PlannedTable, ...] = ()
    notes: tuple[str, ...] = ()


def effect(
    info: ChangefeedInfo,
    configuration: Configuration,
    capture: Capture,
    reroute: Reroute | None,
    places: Iterable[Place],
    found: Iterable[TableSchema],
    *,
    known: Iterable[TableSchema],
    without_name: Iterable[TableId],
    begun: bool,
) -> UpdateEffect:
    """`places` are the known tables that stay, `found` those that the source has and the new patterns want. `without_name`: see `owner/ddl/scope.py`."""
    known = list(known)
    tables = list(_tables(configuration, reroute, places, found, known, frozenset(without_name))) if begun else []
    options = changed_options(info.configuration, configuration)
    return UpdateEffect(
        options=options,
        tables=tuple(sorted(tables, key=lambda table: (table.effect, table.name))),
        notes=tuple(_notes(info, configuration, capture, options, known, begun=begun)),
    )


def changed_options(before: Configuration, now: Configuration) -> tuple[pb.ChangedOption, ...]:
    return tuple(_options(before, now))


def _tables(
    configuration: Configuration,
    reroute: Reroute | None,
    places: Iterable[Place],
    found: Iterable[TableSchema],
    known: list[TableSchema],
    without_name: frozenset[TableId],
) -> Iterator[pb.PlannedTable]:
    for place in places:
        if place.moves:
            moved = TableEffect.COPIED if reroute is Reroute.COPY else TableEffect.RENAMED
            yield _table(place.table.name, moved, place.to, place.at)
    ids = {table.id for table in known} - without_name
    for table in found:
        if table.id not in ids:
            added = TableEffect.FOLLOWED if table.kind is TableKind.VIEW else TableEffect.ADDED
            yield _table(table.name, added, configuration.routes.target(table.name))
    for table in known:
        if not configuration.filter.wants_table(table.name):
            yield _table(table.name, TableEffect.REMOVED)


def _table(
    name: TableName, effect: TableEffect, now: TableName | None = None, before: TableName | None = None
) -> pb.PlannedTable:
    """`before`, `now`: its names at the target."""
    return pb.PlannedTable(name=str(name), effect=effect, target_before=str(before or ""), target=str(now or ""))


def _notes(
    info: ChangefeedInfo,
    configuration: Configuration,
    capture: Capture,
    options: tuple[pb.ChangedOption, ...],
    known: Iterable[TableSchema],
    *,
    begun: bool,
) -> Iterator[str]:
    for name, before, now in (
        ("source", info.configuration.source, configuration.source),
        ("sink", info.configuration.sink, configuration.sink),
    ):
        if before != now:
            yield f"the {name} is reached by another connection string; " + (
                "it is the same deployment" if begun else "nothing of the changefeed is there yet"
            )
    if begun and any(option.path == "start" for option in options):
        yield "the new start has no effect, since the changefeed has begun; `sluice changefeed resume --start` moves it"
    if begun and configuration.ddl.ttl is not info.configuration.ddl.ttl:
        yield from _expiry_notes(configuration, known)
    if capture is not info.capture:
        yield f"the source's history is read by {capture}, instead of {info.capture}"


def _expiry_notes(configuration: Configuration, known: Iterable[TableSchema]) -> Iterator[str]:
    names = [table.name for table in known if configuration.filter.wants_table(table.name) and expires(table)]
    if not names:
        return
    until = (
        "their documents go on expiring at the target by themselves"
        if configuration.ddl.ttl is Ttl.DEFERRED
        else "their documents do not expire at the target until the cut-over (`finalize`) restores that"
    )
    yield (
        f"ddl.ttl: the expiries of {named(names)} stay at the target as they are: {until}; the new value holds for expiries that come or change "
        "from now on"
    )


def _options(before: Configuration, now: Configuration) -> Iterator[pb.ChangedOption]:
    old, new = dict(_flat(before.public())), dict(_flat(now.public()))
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) != new.get(path):
            yield pb.ChangedOption(path=path, before=_text(old.get(path)), now=_text(new.get(path)))


def _flat(fields: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        path = f"{at}.{name}" if at else name
        if isinstance(value, Mapping):
            yield from _flat(value, path)
        else:
            yield path, value


def _text(value: object) -> str:
    if value is None or value in ([], ()):
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, Mapping):
        return " ".join(f"{name} {_text(each)}" for name, each in value.items() if each not in (None, [], ()))
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The source or the sink, as it is known, and as the update names it."""

    name: str
    before: ConnectionUri
    now: ConnectionUri
    known_id: str
    found_id: str
    other_known_id: str
    """Of the changefeed's other side: the two may have been exchanged."""
    proven: bool | None = None
    """Whether the changefeed's own history was found there. None: it could not be looked for."""
    grant: str = ""
    """What the user of the new URI would need."""

    @property
    def same_hosts(self) -> bool:
        return self.before.hosts == self.now.hosts

    @property
    def comparable(self) -> bool:
        """Whether both URIs lead to a MongoDB, which has an id."""
        return self.before.is_mongodb and self.now.is_mongodb


def other_deployments(id: str, *sides: Side) -> Iterator[str]:
    for side in sides:
        why = _another(side)
        if why is not None:
            yield (
                f"{side.name}: {why}; an update keeps the deployments that changefeed {id!r} has replicated between, under whatever names. To "
                "replicate between others, create another changefeed"
            )


def _another(side: Side) -> str | None:
    if not side.comparable:
        other = f"it is {side.now}, and was {side.before}, which does not have the same rows"
        same = side.same_hosts or (side.known_id and side.known_id == side.found_id)
        return None if same and messages_at(side.before) == messages_at(side.now) else other
    if side.found_id and side.found_id == side.other_known_id:
        return f"it is the changefeed's {'sink' if side.name == 'source' else 'source'}"
    if side.known_id and side.found_id:
        another = f"it is another deployment, {side.found_id}, and was {side.known_id}"
        return another if side.known_id != side.found_id else None
    if side.proven or side.same_hosts:
        return None
    unknown = f"its id is unknown{side.grant and f': {side.grant}'}"
    if side.proven is False:
        return f"its oplog has no entry at a position of the changefeed, or it has none of its tables, and {unknown}"
    return f"nothing proves that it is the deployment that it was: {unknown}"
