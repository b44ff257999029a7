"""`take_in`: which of the events that have arrived are DDLs of this changefeed, and how far these are known. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime

from changefeed.documents.document import Document
from changefeed.errors import InvariantError, SluiceError
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.table import ALL_VIEWS, TableId, TableKind, TableName, TableSchema
from coordination.large_values import LARGE_BYTES, check_room
from owner.ddl.scope import DdlClassifier
from owner.ddl.stragglers import SKIPPABLE, named_tables, nameless
from owner.decision import recopy
from owner.decision.state import ChangefeedState, asked_about, bound_of, published
from schema_store.definition import created, enters
from schema_store.versions import SchemaDraft, SchemaVersions

_MOST_RECORDED = 500
"""Per decision, so that a tick stays short. The other events wait for the next decision."""


@dataclass(slots=True)
class Seen:
    """The result for the arrived events: all events below `resolved` are recorded, or do not concern this changefeed."""

    tip: SchemaVersions
    resolved: Position
    records: list[DdlRecord] = field(default_factory=list)
    waiting: tuple[DdlEvent, ...] = field(default=(), init=False)
    unknown: DdlEvent | None = None
    """Of a table that has to be looked up: the first waiting event, or the one by which a lost table would begin again."""
    answers: frozenset[TableId] = frozenset()
    lacks_place: bool = False
    """A DDL of Sluice's own has no place yet: the source has written nothing past the published barrier."""
    room: int = field(default=0, init=False)
    """Bytes that large definitions may still take in etcd."""
    _draft: SchemaDraft | None = None

    def apply(self, event: DdlEvent) -> None:
        if (size := len(event.description.raw)) > LARGE_BYTES:
            check_room(str(event), size, self.room)
            self.room -= size
        if self._draft is None:
            self._draft = self.tip.draft()
            self.tip = self._draft.versions
        self._draft.apply(event)

    def wait(self, event: DdlEvent, shown: Sequence[DdlEvent]) -> None:
        """`shown`: from the one on of which `event` is a part."""
        self.resolved, self.waiting = event.position, tuple(shown)


def take_in(state: ChangefeedState, classifier: DdlClassifier, now: datetime) -> Seen:
    seen = _own_ddls(state, classifier, now)
    known_below, end = published(state.status, state.barrier), bound_of(state)
    without_name = set(nameless(state.records.values()))
    if seen.unknown is not None:
        seen.resolved, seen.waiting = known_below, tuple(state.arrived)
        return seen
    tables = seen.tip.by_uuid() if state.arrived else {}
    lost = _lost(state, seen.records) if state.arrived else frozenset()
    recorded = _Recorded(state.records.values())
    for index, shown in _one_by_one(state.arrived, seen):
        if shown.position in state.records or shown.position < known_below:
            continue
        event = certain(identified(shown, tables), seen.tip)
        if event is None:
            continue
        if end is not None and event.position >= end:
            seen.wait(event, state.arrived[index:])
            break
        if event.type in SKIPPABLE and (event.id in lost or event.id in without_name or recorded.elsewhere(event)):
            continue
        entering = classifier.enters(event)
        unknown = entering and asked_about(event) not in state.entered
        if unknown or len(seen.records) == _MOST_RECORDED:
            seen.wait(event, state.arrived[index:])
            seen.unknown = event if unknown else None
            break
        answer = state.entered[asked_about(event)] if entering else None
        if isinstance(answer, SluiceError):
            record: DdlRecord | None = classifier.unexplained(event, seen.tip, answer, now)
        else:
            known = event if answer is None else _entered(event, answer, tables)
            record = _record_of(known, seen, classifier, now, without_name)
        if record is not None:
            seen.records.append(record)
            without_name |= named_tables(record) if record.taken else set()
            tables = seen.tip.by_uuid() if event.type is DdlType.NEW_UUID else tables
    return seen


def _own_ddls(state: ChangefeedState, classifier: DdlClassifier, now: datetime) -> Seen:
    """They come before all events that have arrived."""
    seen = Seen(state.tip, state.resolved)
    seen.room = state.room
    if (own := recopy.own_ddls(state, classifier, now)) is not None:
        seen.tip, seen.records, seen.unknown = own.tip(), own.records, own.unknown
        seen.answers, seen.lacks_place = frozenset(own.answers), own.lacks_place
    return seen


def _record_of(
    event: DdlEvent, seen: Seen, classifier: DdlClassifier, now: datetime, without_name: AbstractSet[TableId]
) -> DdlRecord | None:
    """An event that does not fit what is known, or not into etcd, stops the tables that it names, and no others; whatever its description holds."""
    try:
        record = classifier.classify(event, seen.tip, now, without_name)
        if record is not None:
            seen.apply(record.event)
    except SluiceError as error:
        return classifier.unexplained(event, seen.tip, error, now)
    except Exception as error:  # noqa: BLE001  # of a description that nobody foresaw
        return classifier.unexplained(event, seen.tip, InvariantError(f"{event}: {error!r}"), now)
    return record


def _one_by_one(arrived: Iterable[DdlEvent], seen: Seen) -> Iterator[tuple[int, DdlEvent]]:
    """Each with the place of what was shown. The tip grows meanwhile."""
    for index, shown in enumerate(arrived):
        yield from ((index, event) for event in with_ended_views(shown, seen.tip))


def _lost(state: ChangefeedState, new: Iterable[DdlRecord]) -> AbstractSet[TableId]:
    """The tables that go on with a copy alone, which begins with the options and indexes of its time; until one is recorded."""
    begun = {record.event.id for record in (*state.records.values(), *new) if record.open and enters(record.event)}
    return {table for table, stored in state.wishes.stragglers.items() if stored.lost} - begun


def identified(event: DdlEvent, tables: Mapping[TableId, TableId]) -> DdlEvent:
    """With the ids of tables. The source names the UUIDs of that time. `tables`: those of UUIDs that superseded another one."""
    if not tables or not {event.id, event.drop_target} & tables.keys():
        return event
    id, replaced = event.id and tables.get(event.id, event.id), event.drop_target
    return replace(event, id=id, drop_target=replaced and tables.get(replaced, replaced))


def certain(event: DdlEvent, tip: SchemaVersions) -> DdlEvent | None:
    """Of a cluster, a watch may not know whether a resharding has copied an index of the whole table, or has built it where some shards lacked it. The
    schema knows.
    """
    description = event.description.decode() if event.type is DdlType.CREATE_INDEXES else {}
    if "presumed" not in description:
        return event
    schema = tip.at(event.id, event.position) if event.id is not None else None
    has = description["presumed"] if schema is None else [index.decode()["name"] for index in schema.indexes]
    new = [index for index in description["indexes"] if index["name"] not in {*has} & {*description["presumed"]}]
    return replace(event, description=Document.of({"indexes": new})) if new else None


def _entered(event: DdlEvent, definition: Document, tables: Mapping[TableId, TableId]) -> DdlEvent:
    """A table that was in the filter before keeps its other UUIDs: its rows have the last one, and the versions of that time are dropped some day."""
    uuids = [uuid for uuid, table in tables.items() if table == event.id]
    known = Document.of(definition.decode() | {"uuids": uuids}) if uuids else definition
    return replace(event, description=known)


@dataclass(slots=True)
class _Recorded:
    """The records, by their tables once that matters."""

    records: Iterable[DdlRecord]
    by_table: dict[TableId | None, list[DdlEvent]] = field(default_factory=dict)

    def elsewhere(self, event: DdlEvent) -> bool:
        """Of a cluster, a watch that begins between two shards' entries of a change of options shows it at its coordinator's end; another one has
        shown it at the last owner's entry. One that does not know the owners shows indexes at the table's next UUID (docs/why/clusters.md). Options
        are set, and an index is there, so once is enough.
        """
        if event.type not in (DdlType.MODIFY, DdlType.CREATE_INDEXES):
            return False
        for record in self.records if not self.by_table else ():
            self.by_table.setdefault(record.event.id, []).append(record.event)
        of_table = self.by_table.get(event.id, [])
        recorded = frozenset[Document]().union(*(_parts(each) for each in of_table if each.type is event.type))
        return _parts(event) <= recorded and any(each.position > event.position for each in of_table)


def _parts(event: DdlEvent) -> frozenset[Document]:
    """Each index by itself: what one watch shows together, another one may have shown one after another."""
    if event.type is DdlType.CREATE_INDEXES:
        return frozenset(map(Document.of, event.description.decode()["indexes"]))
    return frozenset({event.description})


def with_ended_views(event: DdlEvent, tables: SchemaVersions) -> list[DdlEvent]:
    """Return the event after the drops of views that it implies, or instead of it these drops. The source does not show them one by one.

    `db.system.views.drop()`, which MongoDB's manual advises for broken views, drops all views of a database. The oplog shows one drop, of
    `system.views`. A change stream shows nothing. There a view that is known goes when another table takes its name, which at the source
    it no longer had:

        the oplog     drop shop.system.views @9           drop shop.v @9, drop shop.w @9.0001
        a stream      create shop.v @12, a collection     drop shop.v @12, create shop.v @12.0001

    Each has a place of its own before that of the next event.

    It is the same each time, also when some of them are in `tables` already.
    """
    before = Position(event.position.ts)
    if event.type is DdlType.DROP and event.table is not None and event.table.coll == ALL_VIEWS:
        of_database = tables.in_database(event.db, before)
        views = sorted(schema.name for schema in of_database if schema.kind is TableKind.VIEW)
        return _in_order([_drop(event, view) for view in views])
    name = event.renamed_to or event.table
    if event.type in (DdlType.CREATE, DdlType.RENAME) and name is not None:
        known = tables.by_name(name, before)
        if known is not None and known.kind is TableKind.VIEW and not _repeated(event, known):
            return _in_order([_drop(event, name), event])
    return [event]


def _in_order(events: Iterable[DdlEvent]) -> list[DdlEvent]:
    return [replace(event, position=_place(event.position, number)) for number, event in enumerate(events)]


def _place(at: Position, number: int) -> Position:
    """Each sorts before the place of the next event, since a dot sorts before all digits."""
    return replace(at, token=f"{at.token}.{number:04X}") if number else at


def _drop(event: DdlEvent, view: TableName) -> DdlEvent:
    return DdlEvent(position=event.position, type=DdlType.DROP, db=view.db, table=view, wall_ms=event.wall_ms)


def _repeated(event: DdlEvent, known: TableSchema) -> bool:
    """Whether it creates the view as it is known."""
    if event.type is not DdlType.CREATE:
        return False
    new = created(event, known.id, known.name)
    return new.kind is TableKind.VIEW and new.options == known.options
