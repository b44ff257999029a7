"""What happens to tables at the source: row events and DDL events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from changefeed.documents.document import EMPTY, Document
from changefeed.position import Position
from changefeed.table import TableId, TableName


class RowType(StrEnum):
    """Values are the change stream's `operationType`s."""

    INSERT = "insert"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"


class DdlType(StrEnum):
    """Values are the change stream's `operationType`s; the last ones are Sluice's own (`OWN_DDL`)."""

    CREATE = "create"
    CREATE_INDEXES = "createIndexes"
    DROP_INDEXES = "dropIndexes"
    MODIFY = "modify"
    DROP = "drop"
    RENAME = "rename"
    DROP_DATABASE = "dropDatabase"
    SHARD_COLLECTION = "shardCollection"
    RESHARD_COLLECTION = "reshardCollection"
    REFINE_SHARD_KEY = "refineCollectionShardKey"
    NEW_UUID = "newUuid"
    """The rows of a table of a sharded cluster have another UUID from here on. Neither rows nor definition change. Change streams never show it."""
    UNKNOWN = "unknown"
    """An oplog command that Sluice does not know: the tables it concerns cannot go on. Change streams never show it."""
    LEAVE = "leave"
    """A table ends for the changefeed by a user's command. The source and the target are as before."""
    ENTER = "enter"
    """A table begins by a user's command, with a copy."""
    EXCHANGE = "exchange"
    """The copy that was made beside the target's table takes its place."""


OWN_DDL = frozenset({DdlType.LEAVE, DdlType.ENTER, DdlType.EXCHANGE})
"""Recorded by the owner at positions of its own choice. The source never shows them."""

SHOWN_BY_STREAMS = frozenset(DdlType) - OWN_DDL - {DdlType.UNKNOWN, DdlType.NEW_UUID}


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlEvent:
    """One DDL of the source. Both captures give the same value for it.

    `table` is set for all but dropDatabase. `id` is the collection's UUID where the source gives it (not for views, nor in
    change streams without expanded events). A rename has `renamed_to`, and `drop_target` if it replaced a collection of that
    name. `description` has the shape of the change stream's `operationDescription`:

        create            the collection's original options, with idIndex; a view's viewOn and pipeline
        createIndexes     {indexes: [full specification, ...]}. While it is not recorded, `presumed` may name those of them that its table
                          has unless its schema says otherwise
        dropIndexes       {indexes: [full specification, ...]}
        modify            the collMod fields
        newUuid           {uuid}, in hex; `id` is the one before
        shardCollection   {shardKey, unique, numInitialChunks...}
        enter             {options, indexes, shardKey} of the table, and {beside: {name, standsAt}}
    """

    position: Position
    type: DdlType
    db: str
    table: TableName | None = None
    id: TableId | None = None
    renamed_to: TableName | None = None
    drop_target: TableId | None = None
    description: Document = EMPTY
    wall_ms: int | None = None

    def __str__(self) -> str:
        subject = f"{self.table or self.db}" + (f" to {self.renamed_to}" if self.renamed_to else "")
        return f"{self.type} {subject} at {self.position}"
