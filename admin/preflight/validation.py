"""`Validator`: finds all problems of a changefeed before it is accepted, and reports them together."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from admin.cluster_reader import ClusterReader
from admin.preflight import name_checks, sink_checks, source_checks, update_checks
from admin.preflight.looked import Check, Looked, Update
from admin.preflight.sink_probe import identify_sink, look_at_tables, probe_sink
from admin.preflight.source_probe import probe_source
from admin.preflight.update_checks import another_deployment, decided, effect_of, followed
from admin.preflight.update_effect import UpdateEffect
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.config.capture_choice import CaptureChoice
from changefeed.config.configuration import Configuration
from changefeed.config.shared_place import shared_topic
from changefeed.config.uri import refused_at_target
from changefeed.errors import ConfigurationError, SluiceError
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableName, TableSchema, identified
from credentials.redaction import redacted
from credentials.secrets import expanded

_PROBLEMS: tuple[Check, ...] = (
    *source_checks.PROBLEMS,
    *sink_checks.PROBLEMS,
    *name_checks.PROBLEMS,
    *update_checks.PROBLEMS,
)
_WARNINGS: tuple[Check, ...] = (*source_checks.WARNINGS, *sink_checks.WARNINGS, *name_checks.WARNINGS)


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

    def accepted(self) -> CaptureChoice:
        """Raises the problems, if there are any."""
        if self.problems or self.choice is None:
            raise ConfigurationError(self.problems)
        return self.choice

    def message(self) -> pb.Plan:
        return pb.Plan(
            problems=self.problems,
            warnings=self.warnings,
            capture=self.choice.capture if self.choice else "",
            capture_reason=self.choice.reason if self.choice else "",
            options=self.effect.options,
            tables=self.effect.tables,
            notes=self.effect.notes,
        )


class Validator:
    def __init__(self, reader: ClusterReader) -> None:
        self._reader = reader

    def findings(
        self, configuration: Configuration, *, replaces: Update | None = None, reverses: ChangefeedId | None = None
    ) -> Findings:
        """`reverses`: the changefeed whose way back it is."""
        unusable = list(_unusable_uris(configuration))
        if unusable:
            return _refused(unusable)
        looked = replace(self._looked(configuration, replaces), reverses=reverses is not None)
        if replaces is not None and replaces.begun and not looked.source.problems and not looked.sink.problems:
            another = list(another_deployment(configuration, replaces, looked.source, looked.sink))
            if another:
                return _refused(another)
        if replaces is not None:
            looked = replace(looked, source=replace(looked.source, tables=followed(looked.tables, replaces)))
        looked, unseen = _with_tables_of_the_target(looked)
        source, sink = looked.source, looked.sink
        return Findings(
            problems=tuple(redacted(problem) for problem in (*_found(_PROBLEMS, looked), *unseen)),
            warnings=tuple(_found(_WARNINGS, looked)),
            choice=source.choice and looked.choice,
            source_id=source.identity.id or "",
            sink_id=sink.identity.id or "",
            effect=effect_of(looked),
            tables=source.tables,
            looks_at=looked.may_look_at(looked.target(table) for table in source.tables),
        )

    def _looked(self, configuration: Configuration, replaces: Update | None) -> Looked:
        earlier = decided(configuration, replaces)
        with ThreadPoolExecutor(2, "validate") as threads:
            asked = earlier.capture if earlier else configuration.capture
            positions = replaces.positions() if replaces else []
            source = threads.submit(probe_source, configuration, asked, positions)
            sink = threads.submit(probe_sink, configuration)
        found = source.result()
        if replaces is not None:
            found = replace(found, tables=identified(found.tables, replaces.tables))
        with self._reader.read() as view:
            changefeeds = view.changefeeds()
        others = {id: known for id, known in changefeeds.readable.items() if id != configuration.id}
        return Looked(
            configuration=configuration,
            source=found,
            sink=sink.result(),
            choice=earlier or found.choice,
            replaces=replaces,
            before=replaces.known.info.configuration if replaces is not None else None,
            others=others,
            brokers={
                id: identify_sink(known.info.configuration)
                for id, known in others.items()
                if shared_topic(configuration.sink, known.info.configuration.sink) is not None
            },
            unreadable=frozenset(id for id in changefeeds.unreadable if id != configuration.id),
        )


def _with_tables_of_the_target(looked: Looked) -> tuple[Looked, list[str]]:
    """Also returns why they cannot be seen, if that is a problem."""
    source, sink = looked.source, looked.sink
    if not source.read or sink.privileges is None or source.identity.same(sink.identity):
        return looked, []
    names = looked.may_look_at({looked.target(table) for table in looked.added} | looked.renamed)
    try:
        return replace(looked, at_target=look_at_tables(looked.configuration, names)), []
    except SluiceError as error:
        return looked, [f"sink: {error}"]


def _unusable_uris(configuration: Configuration) -> Iterator[str]:
    for name, uri in (("source", configuration.source), ("sink", configuration.sink)):
        try:
            plain = expanded(uri)
        except SluiceError as error:
            yield f"{name}: {error}"
        else:
            if name == "sink" and (problem := refused_at_target(plain)) is not None:
                yield f"{name}: {problem}"


def _found(checks: tuple[Check, ...], looked: Looked) -> list[str]:
    return [each for check in checks for each in check(looked)]


def _refused(problems: list[str]) -> Findings:
    return Findings(problems=tuple(map(redacted, problems)))
