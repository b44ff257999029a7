"""`TableId`, `TableName`, `TableSchema`: the identity of tables, their names, and one version of a table, with its whole definition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from changefeed.cluster_time import as_text
from changefeed.documents.document import EMPTY, Document
from changefeed.position import Position
from sluice_client.position import TableId as TableId  # noqa: PLC0414 - shown again

HEARTBEAT_DATABASE, HEARTBEAT_COLLECTION = "__sluice", "heartbeat"
"""Sluice's own collection at the source: for heartbeats (`source/stream/note.py`), and for notes where the server refuses
`appendOplogNote` (`source/stream/note.py`)."""

SYSTEM_DATABASES = frozenset({"admin", "config", "local", HEARTBEAT_DATABASE})

T = TypeVar("T")

_BESIDE = "sluice.recopy."
BESIDE_NAMES = f"{_BESIDE}*"
"""Those of collections at the target that are being copied anew."""
COPIED_AGAIN = "copied again (`sluice table recopy`)"
COPY_ANEW = "have the table copied anew (`sluice table recopy`)"
"""What a user may do about a table that cannot go on."""
_FIRST = ("v", "key", "name")
ALL_VIEWS = "system.views"
"""Where a server keeps the definitions of a database's views. Its drop drops them all."""
_BUCKETS = "system.buckets."
_VIEW = "view:"
_PASSING = re.compile(
    rf"tmp[A-Za-z0-9]{{5}}\.(convertToCapped\..+|renameCollection)|{re.escape(_BESIDE)}[0-9a-f]{{32}}", re.DOTALL
)


@lru_cache(1024)
def _shared(database: str) -> str:
    """The string that was first given for the name."""
    return database


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """`db.collection`. The collection part may itself hold dots, `$` and any unicode; a database name holds no dot."""

    db: str
    coll: str

    def __post_init__(self) -> None:
        if not self.db or not self.coll or "." in self.db or "\0" in self.db + self.coll:
            raise ValueError(f"{self.db!r}.{self.coll!r} is not a table name; write database.collection")

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Names of 100,000 tables share those of their few databases."""
        db, _, coll = text.partition(".")
        return cls(_shared(db), coll)

    @property
    def system(self) -> bool:
        """Internal to the server or to Sluice. Never replicated by name."""
        return self.db in SYSTEM_DATABASES or self.coll.startswith("system.")

    @property
    def passing(self) -> bool:
        """A temporary collection of `convertToCapped` or of a rename across databases: the server fills it, then renames it to the table.

        Not all change streams show how it is filled. Or it is Sluice's own (`Beside`), in a source that is another changefeed's target.
        """
        return _PASSING.fullmatch(self.coll) is not None

    @property
    def buckets(self) -> TableName:
        """Where a server keeps the measurements of a time series of this name."""
        return TableName(self.db, _BUCKETS + self.coll)

    @property
    def in_buckets(self) -> bool:
        return self.coll.startswith(_BUCKETS) and self.coll != _BUCKETS

    @property
    def logical(self) -> TableName:
        """The time series whose buckets have this name; any other name as it is."""
        return TableName(self.db, self.coll.removeprefix(_BUCKETS)) if self.in_buckets else self

    def __str__(self) -> str:
        return f"{self.db}.{self.coll}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return as_text(cls)


def view_id(name: TableName) -> TableId:
    return TableId(f"{_VIEW}{name}")


def name_of_view(id: TableId) -> TableName:
    return TableName.parse(id.removeprefix(_VIEW))


class TableKind(StrEnum):
    COLLECTION = "collection"
    VIEW = "view"
    TIMESERIES = "timeseries"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Where a table is copied anew, while the target's table of its own name stands still."""

    name: TableName
    """At the target."""
    stands_at: Position
    """The table under its own name has the rows of this position."""


def beside_name(table: TableId, target: TableName) -> TableName:
    """In the same database, so that the copy can take the table's place by a rename."""
    return TableName(target.db, f"{_BESIDE}{table}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """Documents and bytes, without indexes and uncompressed."""

    documents: int = 0
    bytes: int = 0

    def __add__(self, other: TableSize) -> TableSize:
        return TableSize(documents=self.documents + other.documents, bytes=self.bytes + other.bytes)

    def at_least(self, other: TableSize) -> TableSize:
        return TableSize(documents=max(self.documents, other.documents), bytes=max(self.bytes, other.bytes))

    def part(self, share: float) -> TableSize:
        return TableSize(documents=round(self.documents * share), bytes=round(self.bytes * share))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """One version of a table, valid from `valid_from` until the table's next DDL.

    `options` are the collection's, as listCollections shows them. `indexes` are full specifications as listIndexes shows them, without
    `ns` but with the index on `_id`, in the order of their creation.
    """

    id: TableId
    name: TableName
    kind: TableKind = TableKind.COLLECTION
    options: Document = EMPTY
    indexes: tuple[Document, ...] = ()
    shard_key: Document | None = None
    uuids: tuple[TableId, ...] = ()
    """Those that its rows have had besides `id`, the first one. A sharded cluster gives a table another one when it moves or reshards it."""
    valid_from: Position
    beside: Beside | None = None
    """None: its rows are under the name that the routes give it."""
    copied: bool = field(default=False, compare=False)
    """Whether it begins with a copy. It stays so: the copy's record says whether it is done."""
    size: TableSize | None = field(default=None, compare=False)
    """Of a table that begins with a copy: its size when its changefeed began. Only a base in etcd has it."""

    @property
    def bucketed(self) -> bool:
        """A time series whose rows are its buckets. One that is known as a view has no rows that could be followed."""
        return self.kind is TableKind.TIMESERIES and not self.id.startswith(_VIEW)

    @property
    def own_target(self) -> bool:
        """Whether its rows go into a table that is made for them alone, while the target's table of its name stands still."""
        return self.beside is not None

    def downstream(self, route: Callable[[TableName], T]) -> TableName | T:
        """Where its rows are at the target: under the name that the routes give, or in a copy beside that table."""
        return self.beside.name if self.beside is not None else route(self.name)

    def rows_at(self, name: TableName) -> TableName:
        """Where the rows of this table are in a deployment where it has this name."""
        return name.buckets if self.bucketed else name


def defined(said: Document, id: TableId, name: TableName, at: Position) -> TableSchema:
    """A table that a rename brought into the filter, or that begins by a user's command: the event there says its whole definition."""
    fields = said.decode()
    beside = fields.get("beside")
    return TableSchema(
        id=id,
        name=name,
        kind=kind_of(fields["options"]),
        options=Document.of(fields["options"]),
        indexes=tuple(specification(index) for index in fields["indexes"]),
        shard_key=Document.of(fields["shardKey"]) if fields.get("shardKey") else None,
        uuids=tuple(TableId(uuid) for uuid in fields.get("uuids", ())),
        valid_from=at,
        copied=True,
        beside=Beside(name=TableName.parse(beside["name"]), stands_at=Position.parse(beside["standsAt"]))
        if beside
        else None,
    )


def definition_of(table: TableSchema, beside: Beside | None = None) -> Document:
    """As the description of an event has it that brings the table in."""
    said: dict[str, Any] = {"options": table.options.decode(), "indexes": [index.decode() for index in table.indexes]}
    if table.shard_key is not None:
        said["shardKey"] = table.shard_key.decode()
    if table.uuids:
        said["uuids"] = list(table.uuids)
    if beside is not None:
        said["beside"] = {"name": str(beside.name), "standsAt": str(beside.stands_at)}
    return Document.of(said)


def kind_of(options: Mapping[str, Any]) -> TableKind:
    if "timeseries" in options:
        return TableKind.TIMESERIES
    return TableKind.VIEW if "viewOn" in options else TableKind.COLLECTION


def specification(index: Mapping[str, Any]) -> Document:
    """`v`, `key` and `name` first, then the options by name, so that equal indexes are equal bytes.

    Servers before 4.4 repeat the namespace in each specification; a rename would make it wrong.
    """
    names = [name for name in _FIRST if name in index]
    names += sorted(name for name in index if name not in _FIRST and name != "ns")
    return Document.of({name: index[name] for name in names})


def is_meant(index: Mapping[str, Any], change: Mapping[str, Any]) -> bool:
    """Whether a change of an index by collMod, which names it or its key, is one of this index."""
    if "name" in change:
        return bool(index["name"] == change["name"])
    return list(index["key"].items()) == list(change["keyPattern"].items())


def modified_index(index: Document, change: Mapping[str, Any]) -> Document:
    """As listIndexes shows it afterwards: what is switched off is not shown."""
    fields = index.decode()
    for field_, value in change.items():
        match field_:
            case "name" | "keyPattern":
                pass
            case "unique":
                fields["unique"] = value
                fields.pop("prepareUnique", None)
            case "forceNonUnique":
                fields.pop("unique", None)
            case "hidden" | "prepareUnique" if not value:
                fields.pop(field_, None)
            case _:
                fields[field_] = value
    return specification(fields)


def identified(tables: Iterable[TableSchema], known: Iterable[TableSchema]) -> tuple[TableSchema, ...]:
    """Tables of a catalog, with the ids by which a changefeed knows them: the catalog of a sharded cluster has the UUIDs of now."""
    by_uuid = {uuid: table for table in known for uuid in table.uuids}
    return tuple(
        replace(table, id=same.id, uuids=same.uuids) if (same := by_uuid.get(table.id)) is not None else table
        for table in tables
    )
