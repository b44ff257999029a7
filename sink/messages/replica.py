"""`MongoReplica`: makes a MongoDB what the messages of a changefeed say, in their order, with the writer and the DDL applier of a MongoDB sink.

Rows are written in batches, and before each DDL. While a table is copied, a change may not fit, and its indexes wait until the copy is over.

What is about to be done is saved before it is done (`replica_place.py`). A replica that goes on reads the tables' names from the messages
before its mark, and then the whole round again: it passes over what is written, writes again the rows that may be written, in one run, so
that unique values find their rows, and applies a DDL that was begun to what the target looked like before it.

A copy may be found complete only when a round is read again. Its end then waits until the target is as far as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pymongo.write_concern import WriteConcern

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import DdlRefused, InvariantError, RowRejected, TargetOccupied
from changefeed.event import DdlType, RowType
from changefeed.records.ddl import Observation
from changefeed.table import TableId, TableName, is_meant, modified_index
from sink.ddl import (
    CreateIndexes,
    CreateTable,
    DownstreamDdl,
    DropIndexes,
    DropTables,
    ModifyTable,
    RenameTable,
    ShardTable,
    names_of,
)
from sink.messages.replica_place import Begun, ReplicaPlace, StoredPlace, step_of
from sink.messages.row_message import update_description
from sink.mongodb.connection import Client
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from sink.mongodb.rows.row_writer import MongoRowWriter
from sink.mongodb.rows.write_run import WriteRun
from sink.mongodb.target_errors import translated
from sink.row import RowChange, TargetTable
from sluice_client.feed_reader import Copied, CopyBegins, DdlMessage, FeedReader, Rank, Round, Shown, StoredMessage

_ROWS, _BYTES = 2_000, 16 << 20
_FOREVER = 3600.0
_MAJORITY = WriteConcern(w="majority")
_EMPTY = "sluice.empty"
"""Of a table's database: what takes the table's place."""
_TYPES: Mapping[str, RowType] = {
    "i": RowType.INSERT,
    "u": RowType.UPDATE,
    "R": RowType.REPLACE,
    "d": RowType.DELETE,
    "r": RowType.REPLACE,
}


class MongoReplica:
    """`close` closes the client, too."""

    def __init__(self, client: Client, reader: FeedReader, feed: str, life: str) -> None:
        self._client = client
        self._reader = reader
        self._writer = MongoRowWriter(client, permit=lambda: _FOREVER)
        self._ddl = MongoDdlApplier(client, permit=lambda: _FOREVER)
        self._stored = StoredPlace(client, feed, life)
        self._names: dict[TableId, TableName] = {}
        self._copying: set[TableId] = set()
        self._indexes: dict[TableId, tuple[Document, ...]] = {}
        """Those that wait for the end of a copy."""
        self._rows: list[Shown] = []
        self._bytes = 0
        self._again: WriteRun | None = None
        """Open while rows are written that may have been written before."""
        self._late: list[Shown] = []
        """Ends of copies that wait."""

    def begin(self, *, from_start: bool = False) -> bool:
        """Goes on where an earlier reader ended; False if there was none. `from_start`: the target has none of the tables."""
        self._stored.take(from_start=from_start)
        place = self._stored.place
        self._copying = set(place.copying)
        for shown in self._reader.skim(place.mark, place.reading):
            self._pass_over(shown)
        if place.round is not None:
            self._again = self._run()
            self._follow(place.round)
        return place != ReplicaPlace()

    def follow(self) -> bool:
        """Everything up to the newest watermark is durable when it returns. False if there was nothing new."""
        round = self._reader.look()
        if round is not None:
            self._stored.save(mark=round.before, now=round.now, reading=self._reader.bookmark)
            self._follow(round)
        return round is not None

    def close(self) -> None:
        self._client.close()

    def _follow(self, round: Round) -> None:
        for shown in self._reader.read(round):
            if self._again is None or not self._is_known(shown):
                self._take(shown)
        self._catch_up()
        self._flush()
        self._stored.save(ddl=None)
        self._finish_copies()
        self._stored.save(mark=round.now, now=None, step=None, rows=None)

    def _is_known(self, shown: Shown) -> bool:
        """A row that may have been written is written again."""
        place = self._stored.place
        passed, reached = place.passed(shown), place.reached(shown)
        match shown.content:
            case Copied(table) if passed or reached:
                if table in self._copying:
                    self._late.append(shown)
            case StoredMessage() if passed:
                if shown.rank is Rank.EMPTIED:
                    self._late_of_none(shown.table)
                if shown.rank is not Rank.ROW:
                    self._pass_over(shown)
            case StoredMessage() if reached and shown.rank is Rank.ROW:
                self._add(shown)
            case CopyBegins() if passed:
                self._late_of_none(shown.table)  # the place says whether this copy is complete
            case _:
                self._catch_up()
                return False
        return True

    def _pass_over(self, shown: Shown) -> None:
        """It is done. Which copies are not complete, the place says: a table that ends here may have come back, and be copied."""
        self._planned(shown)
        self._copying = set(self._stored.place.copying)

    def _late_of_none(self, table: str) -> None:
        """Another copy of the table begins: the end of the one before says nothing about it."""
        self._late = [shown for shown in self._late if shown.table != table]

    def _catch_up(self) -> None:
        """The target is as far as an earlier reader brought it."""
        if self._again is not None:
            self._flush()
            _settle(self._again)
            self._again = None
            self._finish_copies()

    def _take(self, shown: Shown) -> None:
        if shown.rank is Rank.ROW:
            self._add(shown)
        else:
            self._flush()
            if isinstance(shown.content, Copied):
                self._late.append(shown)
            else:
                self._do(shown)
            self._finish_copies()

    def _finish_copies(self) -> None:
        """The DDL that was begun comes first: another one would take its place in what is saved."""
        late, self._late = self._late, []
        begun = self._stored.place.ddl
        late.sort(key=lambda each: begun is None or step_of(each) != begun.step)
        for shown in late:
            begun = self._stored.place.ddl
            if begun is None or begun.step == step_of(shown):
                self._do(shown)
            else:
                self._late.append(shown)

    def _add(self, shown: Shown) -> None:
        assert isinstance(shown.content, StoredMessage)
        self._rows.append(shown)
        self._bytes += len(shown.content.raw)
        if len(self._rows) >= _ROWS or self._bytes >= _BYTES:
            self._flush()

    def _flush(self) -> None:
        shown, self._rows, self._bytes = self._rows, [], 0
        if not shown:
            return
        rows = [_change(each.content.fields) for each in shown if isinstance(each.content, StoredMessage)]
        if self._again is not None:
            self._again.prepare(rows, replay=True)()
            return
        self._stored.save(rows=(shown[0].at, shown[-1].at))
        run = self._run()
        run.prepare(rows, replay=any(row.table.id in self._copying for row in rows))()
        _settle(run)

    def _run(self) -> WriteRun:
        return self._writer.begin(lambda table: table in self._copying)

    def _do(self, shown: Shown) -> None:
        """A DDL, or what else is not a row."""
        step, begun = step_of(shown), self._stored.place.ddl
        for number, ddl in enumerate(self._planned(shown)):
            if begun is not None and begun.step == step and number <= begun.number:
                if number == begun.number:
                    self._apply(ddl, begun.before)
                continue
            before = self._ddl.observe(names_of(ddl))
            _refuse_occupied(ddl, before)
            self._stored.save(ddl=Begun(step, number, before))
            self._apply(ddl, before)
        if shown.rank is Rank.EMPTIED and isinstance(shown.content, StoredMessage):
            fields = shown.content.fields
            if fields.get("anew"):
                self._copying.discard(TableId(shown.table))
            else:
                self._empty(TableName.parse(fields["ns"]))
        place = self._stored.place
        ahead = not place.passed(shown) and not place.reached(shown)
        further = {"step": step, "rows": None} if ahead else {}
        self._stored.save(ddl=None, copying=frozenset(self._copying), **further)

    def _apply(self, ddl: DownstreamDdl, before: Observation) -> None:
        try:
            self._ddl.apply(ddl, before)
        except DdlRefused:
            self._stored.save(ddl=None)
            raise

    def _empty(self, name: TableName) -> None:
        """Servers before 5.0 delete nothing from a capped table: an empty one takes its place. Its indexes wait."""
        database = self._client.get_database(name.db, write_concern=_MAJORITY)
        with translated(f"emptying {name}"):
            options = next(database.list_collections(filter={"name": name.coll}), {}).get("options", {})
            if not options.get("capped"):
                database[name.coll].delete_many({})
                return
            database.drop_collection(_EMPTY)
            database.command({"create": _EMPTY, **options, "writeConcern": _MAJORITY.document})
            database[_EMPTY].rename(name.coll, dropTarget=True)

    def _planned(self, shown: Shown) -> tuple[DownstreamDdl, ...]:
        """What is to be done. The replica's own knowledge is afterwards as if it was done."""
        match shown.content:
            case CopyBegins(table):
                self._copying.add(table)
                return ()
            case Copied(table):
                if table not in self._copying:
                    return ()
                self._copying.discard(table)
                return self._waiting_indexes(table)
            case StoredMessage():
                return self._planned_ddl(shown.content.fields, TableId(shown.table))

    def _planned_ddl(self, fields: dict[str, Any], table: TableId) -> tuple[DownstreamDdl, ...]:
        match fields["op"], fields.get("type"):
            case "b", _:
                name, schema = TableName.parse(fields["ns"]), fields["schema"]
                self._names[table], self._indexes[table] = name, tuple(map(Document.of, schema["indexes"]))
                create = CreateTable(name=name, options=Document.of(schema["options"]))
                return (create, *(() if table in self._copying else self._waiting_indexes(table)))
            case _, DdlMessage.EMPTIED:
                return self._ended(table) if fields.get("anew") else ()
            case _, "dropDatabase":
                names = [self._forget(TableId(id)) for id in fields["ids"]]
                return (DropTables(names=tuple(name for name in names if name is not None)),)
            case _, "createIndexes" | "dropIndexes" | "modify" if table in self._indexes:
                return self._of_waiting_indexes(fields, table)
            case _:
                self._rename(fields, table)
                return (_ddl(fields),)

    def _of_waiting_indexes(self, fields: dict[str, Any], table: TableId) -> tuple[DownstreamDdl, ...]:
        """Some are not built yet, and will be as this DDL leaves them. What it says of anything else is done at once."""
        name, spec = TableName.parse(fields["ns"]), dict(fields["spec"])
        waiting = {_called(index): index for index in self._indexes[table]}
        ddl: DownstreamDdl | None = None
        match fields["type"]:
            case "createIndexes":
                made = {_called(index): index for index in map(Document.of, spec["indexes"])}
                waiting |= {called: index for called, index in made.items() if called not in waiting}
            case "dropIndexes":
                if built := tuple(sorted(set(spec["indexes"]) - waiting.keys())):
                    ddl = DropIndexes(name=name, indexes=built)
                waiting = {called: index for called, index in waiting.items() if called not in spec["indexes"]}
            case _:
                for called, index in waiting.items():
                    if "index" in spec and is_meant(index.decode(), spec["index"]):
                        waiting[called] = modified_index(index, spec.pop("index"))
                ddl = ModifyTable(name=name, changes=Document.of(spec)) if spec else None
        self._indexes[table] = tuple(waiting.values())
        return () if ddl is None else (ddl,)

    def _rename(self, fields: dict[str, Any], table: TableId) -> None:
        match fields["type"]:
            case "create":
                self._names[table] = TableName.parse(fields["ns"])
            case "rename":
                self._names[table] = TableName.parse(fields["to"])
                self._forget(TableId(fields["dropped"] or ""))
            case "drop":
                self._forget(table)

    def _ended(self, table: TableId) -> tuple[DownstreamDdl, ...]:
        """It begins again, and whether that copy is complete is known already where this is read again."""
        self._indexes.pop(table, None)
        former = self._names.pop(table, None)
        return (DropTables(names=(former,)),) if former is not None else ()

    def _forget(self, table: TableId) -> TableName | None:
        self._copying.discard(table)
        self._indexes.pop(table, None)
        return self._names.pop(table, None)

    def _waiting_indexes(self, table: TableId) -> tuple[DownstreamDdl, ...]:
        indexes = self._indexes.pop(table, ())
        return (CreateIndexes(name=self._names[table], indexes=indexes),) if indexes and table in self._names else ()


def _settle(run: WriteRun) -> None:
    """A row that waits would never come: no later run has its changes."""
    for table, said in run.settle().blocked.items():
        raise RowRejected(
            f"{said}; the table is being copied, and until that is complete two rows may have one value of a unique index, which must not "
            f"be there yet: drop it there, and create it when the copy is complete"
        ).about(table)


def _called(index: Document) -> str:
    name: str = index.decode()["name"]
    return name


def _refuse_occupied(ddl: DownstreamDdl, before: Observation) -> None:
    if isinstance(ddl, CreateTable) and before.tables[ddl.name] is not None:
        raise TargetOccupied(
            f"{ddl.name}: expected a target without this table, found it there; drop it there and run the command again, "
            f"or name another target"
        )


def _change(fields: dict[str, Any]) -> RowChange:
    name = TableName.parse(fields["ns"])
    update, after = fields.get("update"), fields.get("after")
    return RowChange(
        table=TargetTable(id=TableId(fields["id"]), source=name, name=name, ordered=True),
        type=_TYPES[fields["op"]],
        key=fields["key"].raw,
        document=after.raw if after is not None and update is None else None,
        update=update_description(update.raw) if update is not None else None,
        time=ClusterTime(fields["ts"]["t"], fields["ts"]["i"]).to_int(),
        token=fields["pos"].partition(".")[2][6:].encode(),
    )


def _ddl(fields: dict[str, Any]) -> DownstreamDdl:
    kind, name, spec = fields["type"], TableName.parse(fields["ns"]), fields.get("spec", {})
    makers: Mapping[str, Callable[[], DownstreamDdl]] = {
        "create": lambda: CreateTable(name=name, options=Document.of(spec)),
        "createIndexes": lambda: CreateIndexes(name=name, indexes=tuple(map(Document.of, spec["indexes"]))),
        "dropIndexes": lambda: DropIndexes(name=name, indexes=tuple(spec["indexes"])),
        "modify": lambda: ModifyTable(name=name, changes=Document.of(spec)),
        "shard": lambda: ShardTable(name=name, how=DdlType.SHARD_COLLECTION, description=Document.of(spec)),
        "rename": lambda: RenameTable(
            name=name, to=TableName.parse(fields["to"]), replaces=fields["dropped"] is not None
        ),
        "drop": lambda: DropTables(names=(name,)),
    }
    if kind not in makers:
        raise InvariantError(
            f"{kind} of {name} at {fields['pos']}: expected a DDL of the format's first version; use a newer reader"
        )
    return makers[kind]()
