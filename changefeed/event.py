"""What happens to tables at the source: row events, with the tally of their results, and DDL events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
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
    """Values are the change stream's `operationType`s; the last ones are Sluice's `own`."""

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
    """What Sluice does not know or cannot follow: the tables that it concerns cannot go on. Change streams never show it."""
    LEAVE = "leave"
    """A table ends for the changefeed by a user's command. The source and the target are as before."""
    ENTER = "enter"
    """A table begins by a user's command, with a copy."""
    EXCHANGE = "exchange"
    """The copy that was made beside the target's table takes its place."""

    @property
    def own(self) -> bool:
        """Whether the owner records it, at a position of its own choice. The source never shows it, so it is shown once."""
        return self in _OWN


_OWN = frozenset({DdlType.LEAVE, DdlType.ENTER, DdlType.EXCHANGE})

SHARDING = frozenset({DdlType.SHARD_COLLECTION, DdlType.RESHARD_COLLECTION, DdlType.REFINE_SHARD_KEY})

SHOWN_BY_STREAMS = frozenset(DdlType) - _OWN - {DdlType.UNKNOWN, DdlType.NEW_UUID}
"""Users can name these, too."""

NOT_FOLLOWED = "notFollowed"
"""The only field of an unknown DDL's description if the reason is no command: the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlEvent:
    """One DDL of the source. Both captures give the same value for it.

    `table` is set for all but dropDatabase. `id` is the collection's UUID where the source gives it (not for views). A rename has
    `renamed_to`, and `drop_target` if it replaced a collection of that name. `description` has the shape of the change stream's `operationDescription`:

        create            the collection's original options, with idIndex; a view's viewOn and pipeline
        createIndexes     {indexes: [full specification, ...]}. While it is not recorded, `presumed` may name those of them that its table
                          has unless its schema says otherwise
        dropIndexes       {indexes: [full specification, ...]}
        modify            the collMod fields
        newUuid           {uuid}, in hex; `id` is the one before
        shardCollection   {shardKey, unique, numInitialChunks...}; so reshardCollection and refineCollectionShardKey, by change streams with
                          oldShardKey
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


@dataclass(slots=True, kw_only=True)
class RowTally:
    applied: Counter[RowType] = field(default_factory=Counter)
    """Events as the source showed them, before folding."""
    bytes: int = 0
    duplicates: int = 0
    """Inserts whose document existed already and was replaced."""
    skipped: int = 0
    """Replayed changes that did not fit a newer document."""
    repaired: int = 0
    """Rows that had diverged and were written as they are at the source."""
    rejected: int = 0
    """Rows that the sink refused; they are in the dead-letter collection."""
    retries: int = 0
    """Commands, or requests to a store, that were sent again."""
    messages: int = 0
    """What a sink of messages has durably."""
    message_bytes: int = 0
    """As they are stored or sent, compressed where the sink compresses."""
    confirm_seconds: float = 0.0
    """How long the slowest task waited at its end until the sink had all of its messages."""

    def add(self, other: RowTally) -> None:
        self.applied.update(other.applied)
        self.bytes += other.bytes
        self.duplicates += other.duplicates
        self.skipped += other.skipped
        self.repaired += other.repaired
        self.rejected += other.rejected
        self.retries += other.retries
        self.messages += other.messages
        self.message_bytes += other.message_bytes
        self.confirm_seconds = max(self.confirm_seconds, other.confirm_seconds)
