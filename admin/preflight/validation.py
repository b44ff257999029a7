"""`Validator`: finds all problems of a changefeed before it is accepted, and reports them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from admin.cluster_reader import ClusterReader, tables_of
from admin.preflight.privileges import Privileges, missing_at_sink
from admin.preflight.sink_probe import SinkFindings, TargetTables, look_at_tables, probe_sink
from admin.preflight.source_probe import SourceFindings, probe_source
from changefeed.config.capture_choice import CaptureChoice, node_obstacles
from changefeed.config.configuration import Configuration, OnOccupied, Start
from changefeed.config.overlap import common_target, writes
from changefeed.config.read_preference import refused_at_target
from changefeed.errors import ConfigurationError, SluiceError
from changefeed.lifecycle import State
from changefeed.records import ChangefeedId, DesiredState
from changefeed.table import TableKind, TableName, TableSchema
from credentials.expansion import expanded
from credentials.redaction import redacted
from owner.decision import published
from owner.etcd_view import OwnerView
from owner.tables import filter_change

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Settings that are allowed but are probably mistakes."""
    choice: CaptureChoice | None = None
    """None if no capture is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    warnings: tuple[str, ...]
    choice: CaptureChoice


class Validator:
    def __init__(self, reader: ClusterReader) -> None:
        self._reader = reader

    def check(self, configuration: Configuration, *, replaces: OwnerView | None = None) -> Accepted:
        found = self.findings(configuration, replaces=replaces)
        if found.problems:
            raise ConfigurationError(found.problems)
        assert found.choice is not None
        return Accepted(warnings=found.warnings, choice=found.choice)

    def findings(self, configuration: Configuration, *, replaces: OwnerView | None = None) -> Findings:
        """`replaces`: the changefeed whose configuration an update replaces."""
        unusable = list(_unusable_uris(configuration))
        if unusable:
            return Findings(problems=tuple(map(redacted, unusable)))
        decided = _decided(configuration, replaces)
        with self._reader.read() as view:
            nodes = {
                f"{node.record.name} ({node.record.version})": node.record.captures for node in view.nodes.values()
            }
        with ThreadPoolExecutor(2, "validate") as threads:
            asked = decided.capture if decided else configuration.capture
            source = threads.submit(probe_source, configuration, asked, tuple(node_obstacles(nodes)))
            sink = threads.submit(probe_sink, configuration)
        found, target = source.result(), sink.result()
        at_sink = list(_at_sink(configuration, found, target))
        problems = [*found.problems, *at_sink]
        with self._reader.read() as view:
            others = {id: known for id, known in view.changefeeds().items() if id != configuration.id}
        problems += _shared_targets(configuration, found.tables, others)
        problems += _not_replicable(configuration, found.tables)
        problems += _replicated_letters(configuration, found.tables, others)
        if replaces is None:
            problems += _older_target(found.version, target.version)
        else:
            problems += _unfinished_ddls(configuration, replaces)
        warnings: list[str] = []
        if found.read and target.privileges is not None and not found.identity.same(target.identity):
            more_problems, warnings = _tables(configuration, found.tables, target.privileges, replaces)
            problems += more_problems
        return Findings(
            problems=tuple(map(redacted, problems)),
            warnings=tuple(warnings),
            choice=found.choice and (decided or found.choice),
        )


def _at_sink(configuration: Configuration, found: SourceFindings, target: SinkFindings) -> Iterator[str]:
    yield from target.problems
    if target.privileges is not None:
        databases = _target_databases(configuration, found.tables)
        yield from missing_at_sink(target.privileges, databases, configuration.dead_letter)
    if found.identity.same(target.identity):
        yield "sink: it is the same deployment as the source; Sluice would read its own writes again, name another target"


def _decided(configuration: Configuration, replaces: OwnerView | None) -> CaptureChoice | None:
    """An earlier decision stays until a user requests another capture."""
    if replaces is None or replaces.info.configuration.capture is not configuration.capture:
        return None
    return CaptureChoice(capture=replaces.info.capture, reason=replaces.info.capture_reason)


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


def _target_databases(configuration: Configuration, tables: Sequence[TableSchema]) -> set[str]:
    """The target databases of the existing tables, and of the patterns without wildcards in the database."""
    later = {
        target for db in configuration.filter.named_databases for target in configuration.routes.target_databases(db)
    }
    return later | {_target(configuration, table.name).db for table in tables}


def _tables(
    configuration: Configuration, tables: Sequence[TableSchema], privileges: Privileges, replaces: OwnerView | None
) -> tuple[list[str], list[str]]:
    """Problems and warnings of the tables at the target. An update copies the tables that it adds; the others are there already."""
    known = {schema.id for schema in tables_of(replaces).living} if replaces is not None else set()
    added = [table for table in tables if table.id not in known]
    targets = Counter(_target(configuration, table.name) for table in added)
    try:
        found = look_at_tables(configuration, [name for name in targets if privileges.may_look_at(name)])
    except SluiceError as error:
        return [f"sink: {error}"], []
    warnings = [*_without_tables(configuration, tables), *_letters_in_reach(configuration)]
    if configuration.start is not Start.INITIAL and replaces is None:
        return [], [*warnings, *_uncopied(configuration, added, found)]
    copied = [table for table in added if table.kind is not TableKind.VIEW]
    occupied = _occupied(configuration, copied, targets, found)
    if configuration.on_occupied is OnOccupied.REFUSE:
        return list(_refused(occupied)), warnings
    return [], [*warnings, *_taken(configuration, occupied)]


def _without_tables(configuration: Configuration, tables: Sequence[TableSchema]) -> Iterator[str]:
    if not tables:
        patterns = ", ".join(map(str, configuration.filter.tables))
        yield (
            f"filter.tables: the source has no table that matches {patterns}; the changefeed waits until one is created. Check the names if "
            "there should be one already"
        )


def _not_replicable(configuration: Configuration, tables: Sequence[TableSchema]) -> Iterator[str]:
    """A server lets no client insert a document that has the index of Queryable Encryption in it, `__safeContent__`."""
    if configuration.sink.scheme == "blackhole":
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


def _writes_no_more(known: OwnerView) -> bool:
    ended = known.status is not None and known.status.lifecycle.state is State.FINISHED
    return ended or known.info.desired is DesiredState.REMOVED


def _uncopied(configuration: Configuration, tables: Sequence[TableSchema], found: TargetTables) -> Iterator[str]:
    missing = sorted(table.name for table in tables if _target(configuration, table.name) in found.missing)
    if missing:
        yield (
            f"start: {configuration.start} copies nothing, and the target has no table for {_named(missing)}; their present rows will be "
            "missing there. Copy them to the target first, or write initial"
        )


def _unfinished_ddls(configuration: Configuration, replaces: OwnerView) -> Iterator[str]:
    status = replaces.status
    if status is None or status.checkpoint is None or status.follows(configuration):
        return
    position = published(status, replaces.barrier)
    blocking = filter_change.in_the_way(configuration.filter, position, replaces.records.values())
    if blocking:
        yield filter_change.waits_for(blocking)


def _target(configuration: Configuration, name: TableName) -> TableName:
    return configuration.routes.target(name)


def _named(names: Sequence[TableName]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(map(str, names[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
