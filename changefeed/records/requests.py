"""What users ask for, written by the admin API: a changefeed, and requests about tables and DDLs, which whoever fulfils them deletes."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.records.node import NodeId
from changefeed.table import TableName

ChangefeedId = NewType("ChangefeedId", str)


class DesiredState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    REMOVED = "removed"


class Reroute(StrEnum):
    """How tables come to the names that changed routes give them downstream."""

    RENAME = "rename"
    """The target's tables are renamed."""
    COPY = "copy"
    """The tables are copied anew, to the new names. What has the old names stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What a table of the source says about the expiry of its documents. `index`: the name of its TTL index; empty: the table's own option."""

    table: TableName
    index: str = ""
    after: Document
    """`{expireAfterSeconds: ...}`, whatever number it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """How far a cut-over with a way back has come. Each field is written before what follows from it is done.

    `id`: of the changefeed back. `blocks`: both sides' users write no more until it runs.
    """

    id: ChangefeedId
    blocks: bool = False
    expiries: tuple[Expiry, ...] | None = None
    """Those that are suspended at the source. None: they are not read yet."""
    stopped_ts: ClusterTime | None = None
    """The target's time when nothing of the finished changefeed ran any more."""
    mark_ts: ClusterTime | None = None
    """The target's time at which the changefeed back begins. From here on there is only the way back."""
    foreign: tuple[str, ...] | None = None
    """What others wrote at either side meanwhile, which is in no changefeed. None: not looked for yet."""
    open: bool = False
    """It runs, and the target's users may write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedInfo:
    """What the user asked for. `version` counts the user's changes."""

    configuration: Configuration
    desired: DesiredState = DesiredState.RUNNING
    version: int = 1
    created_at: datetime
    resume_from: Position | None = None
    capture: Capture = Capture.CHANGE_STREAM
    """As decided, never `auto`."""
    capture_reason: str = ""
    """The reason of that decision, as text."""
    leaves_stopped: bool = False
    """It may finish while tables of it are stopped."""
    reroute: Reroute | None = None
    """What the user said to changed routes. None: no table changes its name."""
    source_id: str = ""
    """The id of the replica set or the sharded cluster that it reads. Empty: it could not be read."""
    sink_id: str = ""
    way_back: WayBack | None = None
    """Of a changefeed that was cut over with a way back, or is about to be."""
    reverses: ChangefeedId | None = None
    """The changefeed whose way back this is. Its target may be older than its source."""
    lifts_block: bool = False
    """Whether its target's users write no more until it has finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest:
    """A user's request to move a table to that node. The owner deletes it when the move is done or impossible."""

    node: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """Rows of one table that a verification found different. The table's node writes each as the source has it, then deletes the request."""

    id: str
    keys: tuple[str, ...]
    """The `documentKey`s as BSON, in base64. Few: a verification asks for the next rows when these are done."""
    asked_at: datetime

    @property
    def rows(self) -> list[bytes]:
        return [b64decode(key) for key in self.keys]


class TableVerb(StrEnum):
    STOP = "stop"
    RESUME = "resume"
    RECOPY = "recopy"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """A user's request about one table. The owner deletes it when it has obeyed, or cannot obey."""

    verb: TableVerb


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipRequest:
    """A user's request to go on without a refused DDL. The owner deletes it."""

    position: Position
