"""`Validator`: finds all problems of a changefeed before it is accepted, and reports them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta

from admin.cluster_reader import ClusterReader, tables_of
from admin.preflight.event_sink_obstacles import event_sink_obstacles, event_sink_warnings
from admin.preflight.privileges import Privileges, missing_at_sink
from admin.preflight.shard_obstacles import shard_obstacles
from admin.preflight.sink_probe import SinkFindings, TargetTables, identify_sink, look_at_tables, probe_sink
from admin.preflight.source_probe import SourceFindings, identify_source, probe_source
from admin.preflight.table_obstacles import column_obstacles, column_warnings, series_obstacles
from admin.preflight.update_effect import Side, UpdateEffect, effect, other_deployments
from changefeed.capture import Capture
from changefeed.config.capture_choice import CaptureChoice
from changefeed.config.configuration import Configuration, OnOccupied
from changefeed.config.overlap import common_target, writes
from changefeed.config.tables.pattern import TablePattern
from changefeed.config.uri import refused_at_target
from changefeed.config.written_values import Start
from changefeed.errors import ConfigurationError, SluiceError
from changefeed.lifecycle import State
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.records.requests import ChangefeedId, DesiredState, Reroute
from changefeed.table import TableId, TableKind, TableName, TableSchema, identified
from credentials.redaction import redacted
from credentials.secrets import expanded, hash_key
from owner.ddl.stragglers import nameless
from owner.etcd_view import OwnerView
from owner.state import published
from owner.tables import filter_change, route_change
from owner.tables.route_change import Place, rename_problems
from owner.target_changes import view_problems

_MOST_NAMED = 5
_TAKES_USERS = (4, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    warnings: tuple[str, ...]
    choice: CaptureChoice
    source_id: str = ""
    sink_id: str = ""
    effect: UpdateEffect = field(default_factory=UpdateEffect)
    tables: tuple[TableSchema, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Settings that are allowed but are probably mistakes."""
    choice: CaptureChoice | None = None
    """None if no capture is possible."""
    source_id: str = ""
    sink_id: str = ""
    effect: UpdateEffect = field(default_factory=UpdateEffect)
    """Of an update."""
    tables: tuple[TableSchema, ...] = ()
    """The source's tables that it wants, as far as they can be read."""
    looks_at: frozenset[TableName] = frozenset()
    """The target's names of these that its user may look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The changefeed whose configuration an update replaces, and what the user says to its routes."""

    known: OwnerView
    reroute: Reroute | None = None
    tables: tuple[TableSchema, ...] = ()
    """Its tables, of whatever filter."""

    @property
    def begun(self) -> bool:
        status = self.known.status
        return status is not None and status.checkpoint is not None

    @property
    def without_name(self) -> Mapping[TableId, DdlRecord]:
        return nameless(self.known.records.values())

    def places(self, configuration: Configuration) -> list[Place]:
        """The places of the tables that stay. One whose name was taken is copied as a new one."""
        before = (self.known.status and self.known.status.routes) or self.known.info.configuration.routes
        wants, waiting = configuration.filter.wants_table, self.without_name
        stays = [table for table in self.tables if wants(table.name) and table.id not in waiting]
        return route_change.places(stays, before, configuration.routes, self.known.renames)

    def positions(self) -> list[Position]:
        status = self.known.status
        found = (status.checkpoint, published(status, self.known.barrier)) if status and status.checkpoint else ()
        return [at for at in found if at is not None]


def update_of(known: OwnerView, reroute: Reroute | None) -> Update:
    return Update(known=known, reroute=reroute, tables=tables_of(known).living)


class Validator:
    def __init__(self, reader: ClusterReader) -> None:
        self._reader = reader

    def check(self, configuration: Configuration, *, replaces: Update | None = None) -> Accepted:
        found = self.findings(configuration, replaces=replaces)
        if found.problems:
            raise ConfigurationError(found.problems)
        assert found.choice is not None
        return Accepted(
            warnings=found.warnings,
            choice=found.choice,
            source_id=found.source_id,
            sink_id=found.sink_id,
            effect=found.effect,
            tables=found.tables,
        )

    def findings(self, configuration: Configuration, *, replaces: Update | None = None) -> Findings:
        unusable = list(_unusable_uris(configuration))
        if unusable:
            return Findings(problems=tuple(map(redacted, unusable)))
        decided = _decided(configuration, replaces)
        with ThreadPoolExecutor(2, "validate") as threads:
            asked = decided.capture if decided else configuration.capture
            positions = replaces.positions() if replaces else []
            source = threads.submit(probe_source, configuration, asked, positions)
            sink = threads.submit(probe_sink, configuration)
        found, target = source.result(), sink.result()
        if replaces is not None:
            found = replace(found, tables=identified(found.tables, replaces.tables))
        if replaces is not None and replaces.begun and not found.problems and not target.problems:
            another = list(_another_deployment(configuration, replaces, found, target))
            if another:
                return Findings(problems=tuple(map(redacted, another)))
        if replaces is not None:
            found = replace(found, tables=_followed(found.tables, replaces))
        at_sink = list(_at_sink(configuration, found, target))
        problems = [*found.problems, *at_sink]
        with self._reader.read() as view:
            changefeeds = view.changefeeds()
        others = {id: known for id, known in changefeeds.readable.items() if id != configuration.id}
        problems += _shared_targets(configuration, found.tables, others)
        merged = list(_merged(configuration, found.tables))
        problems += merged
        problems += _not_replicable(configuration, found.tables)
        problems += series_obstacles(
            configuration,
            found.tables,
            chosen.capture if (chosen := decided or found.choice) is not None else None,
            (found.version, target.version),
            (found.privileges, target.privileges),
        )
        problems += _unusable_hash_keys(configuration)
        problems += column_obstacles(
            configuration,
            found.tables,
            found.version,
            replaces.known.info.configuration if replaces is not None and replaces.begun else None,
            [table.name for table in replaces.tables] if replaces is not None else (),
        )
        problems += _beyond_shards(configuration, decided or found.choice)
        problems += shard_obstacles(configuration, found, target)
        problems += _replicated_letters(configuration, found.tables, others)
        problems += event_sink_obstacles(
            configuration,
            found.tables,
            found.version,
            chosen.capture if chosen is not None else None,
            replaces.known.info.configuration if replaces is not None else None,
            reached=not target.problems,
        )
        if replaces is None:
            problems += _older_target(found.version, target.version)
        else:
            problems += _unfinished_ddls(configuration, replaces)
            problems += _new_names(configuration, replaces) if not merged else []
        warnings: list[str] = []
        if found.read and target.privileges is not None and not found.identity.same(target.identity):
            more_problems, warnings = _tables(configuration, found.tables, target.privileges, replaces)
            problems += more_problems
            warnings += column_warnings(configuration, found.tables)
        warnings += [*event_sink_warnings(configuration), *_users_of_routed_databases(configuration, found.tables)]
        warnings += _late_for_the_oplog(configuration, found.oplog_span)
        warnings += _not_compared(id for id in changefeeds.unreadable if id != configuration.id)
        if target.identity_lacks:
            warnings.append(
                f"sink: {target.identity_lacks}. Without it no update can prove that a changed connection string leads to the same deployment"
            )
        choice = found.choice and (decided or found.choice)
        return Findings(
            problems=tuple(map(redacted, problems)),
            warnings=tuple(warnings),
            choice=choice,
            source_id=found.identity.id or "",
            sink_id=target.identity.id or "",
            effect=_effect(configuration, choice, replaces, found.tables) if replaces and choice else UpdateEffect(),
            tables=found.tables,
            looks_at=_visible(configuration, found.tables, target.privileges),
        )


def _followed(tables: Sequence[TableSchema], replaces: Update) -> tuple[TableSchema, ...]:
    """A table that has the name of a known one, and an unknown id, came after the checkpoint: the known one was dropped, renamed, moved or
    resharded. The changefeed will follow that DDL. To its update the table is the known one; or nothing, if that is here by another name.
    """
    known = [table for table in replaces.tables if table.id not in replaces.without_name]
    present, ids, names = (
        {table.id for table in tables},
        {table.id for table in known},
        {each.name: each.id for each in known},
    )
    found = []
    for table in tables:
        if table.id in ids or table.name not in names:
            found.append(table)
        elif names[table.name] not in present:
            found.append(replace(table, id=names[table.name]))
    return tuple(found)


def _visible(
    configuration: Configuration, tables: Sequence[TableSchema], privileges: Privileges | None
) -> frozenset[TableName]:
    names = {_target(configuration, table.name) for table in tables} if privileges is not None else set()
    return frozenset(name for name in names if privileges is not None and privileges.may_look_at(name))


def _effect(
    configuration: Configuration, choice: CaptureChoice, replaces: Update, found: Sequence[TableSchema]
) -> UpdateEffect:
    return effect(
        replaces.known.info,
        configuration,
        choice.capture,
        replaces.reroute,
        replaces.places(configuration),
        found,
        known=replaces.tables,
        without_name=replaces.without_name,
        begun=replaces.begun,
    )


def _another_deployment(
    configuration: Configuration, replaces: Update, found: SourceFindings, target: SinkFindings
) -> Iterator[str]:
    info = replaces.known.info
    before = info.configuration
    source = Side(
        name="source",
        before=before.source,
        now=configuration.source,
        known_id=info.source_id,
        found_id=found.identity.id or "",
        other_known_id=info.sink_id,
        proven=_proven(replaces, found),
        grant=found.identity_lacks,
    )
    sink = Side(
        name="sink",
        before=before.sink,
        now=configuration.sink,
        known_id=info.sink_id,
        found_id=target.identity.id or "",
        other_known_id=info.source_id,
        grant=target.identity_lacks,
    )
    if not source.known_id and source.found_id and not source.same_hosts:
        source = replace(source, known_id=identify_source(before))
    if not sink.known_id and sink.found_id and not sink.same_hosts:
        sink = replace(sink, known_id=identify_sink(before))
    yield from other_deployments(configuration.id, source, sink)


def _proven(replaces: Update, found: SourceFindings) -> bool | None:
    """Two deployments may have an entry of one time by chance (idle ones write a no-op at the beginning of a second), but not a table with one UUID."""
    if found.has_history is None:
        return None
    known = {table.id for table in replaces.tables if table.kind is not TableKind.VIEW}
    there = {table.id for table in found.tables}
    return found.has_history and (not known or bool(known & there))


def _new_names(configuration: Configuration, replaces: Update) -> Iterator[str]:
    """Whether tables can get the names that changed routes give them."""
    status = replaces.known.status
    if status is None or status.checkpoint is None:
        return
    if status.routes is None and configuration.routes != replaces.known.info.configuration.routes:
        yield "routes: the owner has not recorded yet by which routes the tables have their names; try again in a moment"
        return
    places = replaces.places(configuration)
    moving = [place for place in places if place.moves]
    if moving and replaces.reroute is None:
        yield route_change.undecided(moving)
    if replaces.reroute is Reroute.RENAME:
        yield from (f"routes: {problem}" for problem in rename_problems(places))
    if moving:
        yield from (f"routes: {problem}" for problem in view_problems(places, configuration))


def _at_sink(configuration: Configuration, found: SourceFindings, target: SinkFindings) -> Iterator[str]:
    yield from target.problems
    if target.privileges is not None:
        databases = _target_databases(configuration, found.tables)
        yield from missing_at_sink(target.privileges, databases, configuration.dead_letter, users=configuration.users)
    if configuration.users and target.version is not None and target.version < _TAKES_USERS:
        yield (
            f"users: the sink is MongoDB {target.version[0]}.{target.version[1]}; expected 4.4 or later, since users are written as they are stored, "
            "and whether earlier servers find them has not been tried; upgrade it, or write users: false"
        )
    if found.identity.same(target.identity):
        yield "sink: it is the same deployment as the source; Sluice would read its own writes again, name another target"


def _beyond_shards(configuration: Configuration, choice: CaptureChoice | None) -> Iterator[str]:
    """What a capture by the oplogs of shards does not do yet."""
    if choice is None or choice.capture is not Capture.SHARD_OPLOGS:
        return
    if configuration.sink_traits.keeps_messages:
        yield "sink: messages of a sharded source are not written yet: rows of two shards may have one position; name a MongoDB as sink"


def _decided(configuration: Configuration, replaces: Update | None) -> CaptureChoice | None:
    """An earlier decision stays until a user requests another capture."""
    if replaces is None or replaces.known.info.configuration.capture is not configuration.capture:
        return None
    return CaptureChoice(capture=replaces.known.info.capture, reason=replaces.known.info.capture_reason)


def _older_target(source: tuple[int, int] | None, target: tuple[int, int] | None) -> Iterator[str]:
    """Checked for new changefeeds only: if a source is upgraded while its changefeed runs, the changefeed continues and may be updated."""
    if source is not None and target is not None and target < source:
        yield (
            f"sink: it is MongoDB {target[0]}.{target[1]}, older than the source, which is {source[0]}.{source[1]}; options, indexes and "
            "field names that only the newer version supports would be refused during replication: upgrade the target, or name another"
        )


def _unusable_uris(configuration: Configuration) -> Iterator[str]:
    for name, uri in (("source", configuration.source), ("sink", configuration.sink)):
        try:
            plain = expanded(uri)
        except SluiceError as error:
            yield f"{name}: {error}"
        else:
            if name == "sink" and (problem := refused_at_target(plain)) is not None:
                yield f"{name}: {problem}"


def _unusable_hash_keys(configuration: Configuration) -> Iterator[str]:
    for reference in sorted({rule.hash_key for rule in configuration.columns if rule.hash_key is not None}):
        try:
            hash_key(reference)
        except SluiceError as error:
            yield f"columns: {error}"


def _target_databases(configuration: Configuration, tables: Sequence[TableSchema]) -> set[str]:
    """The target databases of the existing tables, and of the patterns without wildcards in the database."""
    later = {
        target for db in configuration.filter.named_databases for target in configuration.routes.target_databases(db)
    }
    return later | {_target(configuration, table.name).db for table in tables}


def _tables(
    configuration: Configuration, tables: Sequence[TableSchema], privileges: Privileges, replaces: Update | None
) -> tuple[list[str], list[str]]:
    """Problems and warnings of the tables at the target. An update copies the tables that it adds; the others are there already."""
    moving = [place for place in replaces.places(configuration) if place.moves] if replaces is not None else []
    begins = {place.table.id for place in moving if replaces and replaces.reroute is Reroute.COPY}
    known = {schema.id for schema in replaces.tables} - replaces.without_name.keys() if replaces is not None else set()
    added = [table for table in tables if table.id not in known or table.id in begins]
    targets = Counter(_target(configuration, table.name) for table in added)
    renamed = _renamed(moving) if replaces and replaces.reroute is Reroute.RENAME else set()
    try:
        found = look_at_tables(configuration, [name for name in {*targets, *renamed} if privileges.may_look_at(name)])
    except SluiceError as error:
        return [f"sink: {error}"], []
    warnings = [*_without_tables(configuration, tables), *_letters_in_reach(configuration)]
    if configuration.start is not Start.INITIAL and replaces is None:
        return list(_series_unmade(configuration, added, found)), [*warnings, *_uncopied(configuration, added, found)]
    copied = [table for table in added if table.kind is not TableKind.VIEW]
    occupied = _occupied(configuration, copied, targets, found)
    in_use = list(_in_use(sorted(name for name in renamed - found.missing if privileges.may_look_at(name))))
    if begins:
        in_use += _kept(sorted(targets.keys() & {place.at for place in moving}))
    if configuration.on_occupied is OnOccupied.REFUSE:
        return [*_refused(occupied), *in_use], warnings
    return in_use, [*warnings, *_taken(configuration, occupied)]


def _renamed(moving: Sequence[Place]) -> set[TableName]:
    """The new names, except those that a rename frees first."""
    return {place.to for place in moving} - {place.at for place in moving}


def _kept(names: Sequence[TableName]) -> Iterator[str]:
    """Whatever `on_occupied` says: a copy leaves the tables of the old names."""
    if names:
        yield (
            f"routes: {_named(names)} would stay at the target as what a table was before, and be the new name of another one; write other names, or "
            "--routes rename"
        )


def _in_use(names: Sequence[TableName]) -> Iterator[str]:
    if names:
        yield (
            f"routes: the target has {_named(names)} already, so no table can be renamed to that; drop or rename it there, or write other names"
        )


def _without_tables(configuration: Configuration, tables: Sequence[TableSchema]) -> Iterator[str]:
    if not tables:
        patterns = _named(configuration.filter.tables)
        yield (
            f"filter.tables: the source has no table that matches {patterns}; the changefeed waits until one is created. Check the names if "
            "there should be one already"
        )


def _late_for_the_oplog(configuration: Configuration, span: timedelta | None) -> Iterator[str]:
    delay = configuration.delay
    if delay is not None and span is not None and span < delay.span:
        yield (
            f"delay: changes wait for {delay} in the source's oplog, which reaches back {span.total_seconds() / 60:.0f} min now; make sure that it lasts "
            "longer than the delay and your longest pause, or the changefeed loses its history"
        )


def _merged(configuration: Configuration, tables: Sequence[TableSchema]) -> Iterator[str]:
    for target, names in configuration.routes.merged(table.name for table in tables).items():
        yield (
            f"routes: {_named(names)} would all be {target} at the target, and no rule asks for that; give them different names, leave one out "
            f"(filter.tables), or write a rule whose `to` is {target}, without a wildcard, for all of them"
        )


def _not_replicable(configuration: Configuration, tables: Sequence[TableSchema]) -> Iterator[str]:
    """A server lets no client insert a document that has the index of Queryable Encryption in it, `__safeContent__`."""
    if not configuration.sink_traits.keeps_documents:
        return
    names = sorted(table.name for table in tables if "encryptedFields" in table.options.decode())
    if names:
        excluded = ", ".join(f'"!{name}"' for name in names[:_MOST_NAMED])
        yield (
            f"filter.tables: Queryable Encryption cannot be replicated, since a target refuses its documents: {_named(names)}; "
            f"leave them out, with {excluded} at the end"
        )


def _occupied(
    configuration: Configuration, copied: Sequence[TableSchema], targets: Mapping[TableName, int], found: TargetTables
) -> list[TableName]:
    """A name that several tables share is not empty for long: it is not looked at, here or before a copy."""
    names = sorted({_target(configuration, table.name) for table in copied} & found.occupied)
    return [name for name in names if targets[name] == 1]


def _refused(occupied: Sequence[TableName]) -> Iterator[str]:
    if occupied:
        yield (
            f"sink: it has documents already in {_named(occupied)}, which an initial copy would fill; drop them there, write on_occupied: drop "
            "or keep, route the tables to other names (routes), or write start: now if the target has the source's data already"
        )


def _taken(configuration: Configuration, occupied: Sequence[TableName]) -> Iterator[str]:
    if occupied:
        kept = configuration.on_occupied is OnOccupied.KEEP
        fate = "stay, and remain if the source does not have them" if kept else "are dropped before the copy"
        yield f"on_occupied: the target has documents in {_named(occupied)}; they {fate}"


def _replicated_letters(
    configuration: Configuration, tables: Sequence[TableSchema], others: Mapping[ChangefeedId, OwnerView]
) -> Iterator[str]:
    """A table that is replicated must have no other rows; a rename or a drop at the source would also take the letters."""
    letters = configuration.dead_letter
    if letters is None:
        return
    found = {_target(configuration, table.name): f"{table.name} of the source" for table in tables}
    for id, known in sorted(others.items()):
        other = known.info.configuration
        if other.sink.hosts & configuration.sink.hosts and not _writes_no_more(known):
            names = [schema.name for schema in tables_of(known).living if other.filter.wants_table(schema.name)]
            found |= {_target(other, name): f"{name} of changefeed {id!r}" for name in names}
    if letters in found:
        yield f"dead_letter: {letters} is where {found[letters]} is replicated to; name a table that no changefeed writes"


def _users_of_routed_databases(configuration: Configuration, tables: Sequence[TableSchema]) -> Iterator[str]:
    moved = sorted({table.name.db for table in tables if _target(configuration, table.name).db != table.name.db})
    if configuration.users and moved:
        yield (
            f"users: tables of {', '.join(moved)} are routed to other databases, while users and roles are replicated as they are: what they may "
            "do in the source's databases, they may do in databases of these names at the target"
        )


def _letters_in_reach(configuration: Configuration) -> Iterator[str]:
    letters = configuration.dead_letter
    if letters is not None and writes(configuration, letters):
        yield (
            f"dead_letter: {letters} is a name that the changefeed would replicate if the source gets such a table, which would stop at the "
            "letters; name a table outside of filter.tables, or leave the name out there"
        )


def _shared_targets(
    configuration: Configuration, tables: Sequence[TableSchema], others: Mapping[ChangefeedId, OwnerView]
) -> Iterator[str]:
    mine = {_target(configuration, table.name): table.name for table in tables}
    for id, known in sorted(others.items()):
        other = known.info.configuration
        if not other.sink.hosts & configuration.sink.hosts or _writes_no_more(known):
            continue
        names = {schema.name for schema in tables_of(known).living}
        if other.source.hosts & configuration.source.hosts:
            names |= {table.name for table in tables}
        theirs = {_target(other, name) for name in names if other.filter.wants_table(name)}
        shared = sorted(mine.keys() & theirs)
        common = shared[0] if shared else common_target(configuration, other)
        if common is not None:
            what = f"writes {_named(shared)}" if shared else f"would write a table such as {common}"
            yield (
                f"routes: changefeed {id!r} {what} of this target too; give one of the two changefeeds other tables (filter.tables) "
                f"or other target names (routes), or remove {id!r}"
            )


def _not_compared(unreadable: Iterable[ChangefeedId]) -> Iterator[str]:
    for id in sorted(unreadable):
        yield (
            f"routes: the records of changefeed {id!r} cannot be read, so nothing says whether it would write tables of this target too, were it "
            f"readable again; remove it if it is not needed (`sluice changefeed query {id}`)"
        )


def _writes_no_more(known: OwnerView) -> bool:
    ended = known.status is not None and known.status.lifecycle.state is State.FINISHED
    return ended or known.info.desired is DesiredState.REMOVED


def _series_unmade(configuration: Configuration, tables: Sequence[TableSchema], found: TargetTables) -> Iterator[str]:
    """A server would make a plain collection of the buckets that come, which nobody can read."""
    missing = sorted(
        table.name for table in tables if table.bucketed and _target(configuration, table.name) in found.missing
    )
    if missing:
        yield (
            f"start: {configuration.start} creates nothing, and the target has no time series for {_named(missing)}; create it there with the "
            "options that it has at the source, write initial, or leave it out (filter.tables)"
        )


def _uncopied(configuration: Configuration, tables: Sequence[TableSchema], found: TargetTables) -> Iterator[str]:
    missing = sorted(table.name for table in tables if _target(configuration, table.name) in found.missing)
    if missing:
        yield (
            f"start: {configuration.start} copies nothing, and the target has no table for {_named(missing)}; their present rows will be "
            "missing there. Copy them to the target first, or write initial"
        )


def _unfinished_ddls(configuration: Configuration, replaces: Update) -> Iterator[str]:
    status = replaces.known.status
    if status is None or status.checkpoint is None or status.follows(configuration):
        return
    position, records = published(status, replaces.known.barrier), replaces.known.records.values()
    blocking = filter_change.in_the_way(configuration.filter, position, records, replaces.without_name.keys())
    if blocking:
        yield filter_change.waits_for(blocking)


def _target(configuration: Configuration, name: TableName) -> TableName:
    return configuration.routes.target(name)


def _named(names: Sequence[TableName | TablePattern]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(map(str, names[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
