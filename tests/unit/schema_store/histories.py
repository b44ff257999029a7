"""Random DDL histories, and a model that replays them from scratch."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import EMPTY, Document
from changefeed.event import SHOWN_BY_STREAMS, DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema, view_id
from schema_store.versions import SchemaVersions

NAMES = tuple(TableName(db, coll) for db in ("crm", "shop") for coll in ("a", "b", "tmp"))
INDEXES = ("x", "y")


@dataclass
class Known:
    """The model's data of one existing table."""

    name: TableName
    size: int = 0
    indexes: list[str] = field(default_factory=list)
    shard_key: str = ""


class Model:
    """The tables that exist after some events, without positions."""

    def __init__(self, bases: tuple[TableSchema, ...], events: list[DdlEvent]) -> None:
        self.tables = {base.id: Known(base.name, indexes=["_id_"]) for base in bases}
        for event in events:
            self._apply(event)

    def named(self, name: TableName) -> TableId | None:
        return next((table for table, known in self.tables.items() if known.name == name), None)

    def _apply(self, event: DdlEvent) -> None:
        if event.type is DdlType.DROP_DATABASE:
            self.tables = {table: known for table, known in self.tables.items() if known.name.db != event.db}
            return
        assert event.table is not None
        said = event.description.decode()
        if event.type is DdlType.CREATE:
            view = "viewOn" in said
            table = view_id(event.table) if view else event.id
            assert table is not None
            self.tables[table] = Known(event.table, said.get("size", 0), [] if view else ["_id_"])
            return
        table = self.named(event.table)
        assert table is not None
        known = self.tables[table]
        match event.type:
            case DdlType.DROP:
                del self.tables[table]
            case DdlType.RENAME:
                assert event.renamed_to is not None
                replaced = self.named(event.renamed_to)
                if replaced is not None:
                    del self.tables[replaced]
                known.name = event.renamed_to
            case DdlType.CREATE_INDEXES:
                named = [index["name"] for index in said["indexes"]]
                known.indexes = list(dict.fromkeys(known.indexes + named))
            case DdlType.DROP_INDEXES:
                known.indexes = [name for name in known.indexes if name not in [i["name"] for i in said["indexes"]]]
            case DdlType.MODIFY:
                known.size = said["cappedSize"]
            case _:
                known.shard_key = next(iter(said["shardKey"]))


def seen(schema: TableSchema) -> Known:
    return Known(
        schema.name,
        schema.options.decode().get("size", 0),
        [index.decode()["name"] for index in schema.indexes],
        next(iter(schema.shard_key.decode())) if schema.shard_key else "",
    )


def index_named(name: str) -> dict[str, object]:
    return {"v": 2, "key": {name: 1}, "name": name}


@dataclass(frozen=True)
class History:
    bases: tuple[TableSchema, ...]
    events: tuple[DdlEvent, ...]

    def positions(self) -> list[Position]:
        """The position of each event, and one just before it: nothing changes between them."""
        return [Position(ClusterTime(1, 1))] + [
            place for event in self.events for place in (Position(event.position.ts, "00"), event.position)
        ]

    def until(self, position: Position) -> Model:
        return Model(self.bases, [event for event in self.events if event.position <= position])


@st.composite
def histories(draw: st.DrawFn) -> History:
    start = Position(ClusterTime(1, 0))
    based = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    bases = tuple(
        TableSchema(id=TableId(f"base{n}"), name=name, indexes=(Document.of(index_named("_id_")),), valid_from=start)
        for n, name in enumerate(based)
    )
    events: list[DdlEvent] = []
    seconds = 1
    for number in range(draw(st.integers(0, 14))):
        seconds += draw(st.integers(0, 1))
        position = Position(ClusterTime(seconds, 5), f"{number + 1:04X}")
        event = draw(_event(Model(bases, events), position, number))
        if event is not None:
            events.append(event)
    return History(bases, tuple(events))


@st.composite
def _event(draw: st.DrawFn, model: Model, position: Position, number: int) -> DdlEvent | None:
    kind = draw(st.sampled_from([*sorted(SHOWN_BY_STREAMS), DdlType.CREATE, DdlType.RENAME]))
    name = draw(st.sampled_from(NAMES))
    table = model.named(name)
    if kind is DdlType.DROP_DATABASE:
        return DdlEvent(position=position, type=kind, db=name.db)
    if (kind is DdlType.CREATE) == (table is not None):
        return None
    view = draw(st.booleans()) if kind is DdlType.CREATE else str(table).startswith("view:")
    if view and kind not in (DdlType.CREATE, DdlType.DROP, DdlType.MODIFY):
        return None
    by_name = view or (kind is not DdlType.CREATE and draw(st.booleans()))
    identity = None if by_name else (table or TableId(f"new{number}"))
    description: dict[str, object] = {}
    renamed_to = drop_target = None
    match kind:
        case DdlType.CREATE:
            description = {"viewOn": "x", "pipeline": []} if view else {"capped": True, "size": number}
        case DdlType.RENAME:
            renamed_to = draw(st.sampled_from([other for other in NAMES if other != name]))
            drop_target = draw(st.sampled_from([None, model.named(renamed_to)]))
        case DdlType.CREATE_INDEXES | DdlType.DROP_INDEXES:
            chosen = draw(st.lists(st.sampled_from(INDEXES), min_size=1))
            description = {"indexes": [index_named(index) for index in chosen]}
        case DdlType.MODIFY:
            description = {"cappedSize": number}
        case DdlType.DROP:
            pass
        case _:
            description = {"shardKey": {f"key{number}": 1}}
    return DdlEvent(
        position=position,
        type=kind,
        db=name.db,
        table=name,
        id=identity,
        renamed_to=renamed_to,
        drop_target=drop_target,
        description=Document.of(description) if description else EMPTY,
    )


def assert_agrees(versions: SchemaVersions, history: History, positions: list[Position]) -> None:
    ids = {table for position in positions for table in history.until(position).tables} | {TableId("base0")}
    for position in positions:
        model = history.until(position)
        for table in ids:
            schema = versions.at(table, position)
            assert (seen(schema) if schema else None) == model.tables.get(table)
        for name in NAMES:
            named = versions.by_name(name, position)
            assert (named.id if named else None) == model.named(name)
        assert {schema.id for schema in versions.tables_at(position)} == set(model.tables)
        for db in ("crm", "shop"):
            inside = {table for table, known in model.tables.items() if known.name.db == db}
            assert {schema.id for schema in versions.in_database(db, position)} == inside


def answers(versions: SchemaVersions, history: History, positions: list[Position]) -> list[object]:
    """Everything that versions can be asked, at these positions."""
    ids = sorted({TableId(f"base{n}") for n in range(4)} | {event.id for event in history.events if event.id})
    ids += [view_id(name) for name in NAMES]
    everywhere = [
        [
            [(versions.at(table, position), versions.before(table, position)) for table in ids],
            [versions.by_name(name, position) for name in NAMES],
            versions.tables_at(position),
            [versions.in_database(db, position) for db in ("crm", "shop")],
        ]
        for position in positions
    ]
    latest = [versions.latest(table) for table in ids]
    living = [schema for _, schema in versions.living()]
    return [everywhere, latest, living, versions.interrupted(ids)]
