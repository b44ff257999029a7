"""Positions at which source and target are known to be equal, as the owner records them, and what was compared at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptedTable:
    """A table that may differ at a sync point, by its names on both sides: one in the middle of a rename has two on each."""

    source: tuple[TableName, ...]
    target: tuple[TableName, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPart:
    """How much was compared, at one point or in a whole pass."""

    tables: int = 0
    """Those whose last document was reached."""
    documents: int = 0
    bytes: int = 0
    """Read from both sides."""
    different: int = 0
    """Documents, and definitions of tables."""
    reordered: int = 0
    """Documents whose fields have another order, and nothing else."""
    left_out: int = 0
    """Tables that could not be compared."""

    def __add__(self, more: ComparedPart) -> ComparedPart:
        return ComparedPart(**{each.name: getattr(self, each.name) + getattr(more, each.name) for each in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPoint:
    """The source as of `source` and the target as of `target` are equal, but for the excepted tables."""

    source: ClusterTime
    target: ClusterTime
    excepted: tuple[ExceptedTable, ...] = ()
    made_at: datetime
    """On the owner's clock."""
    verified: ComparedPart | None = None
    """What was compared there. Only the target's record has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPoints:
    """Those of one changefeed. The target has the record of each; the newest is written there after it stands here."""

    newest: SyncPoint | None = None
    made: int = 0
    whole: int = 0
    """Of these, the points that except no table."""
    missed: int = 0
    """Points for which the changefeed was held, and which were given up."""
    missed_because: str = ""
    """Of the newest one."""
    held_seconds: float = 0.0
    """How long it was held in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A user wants a point at the next whole second. The owner deletes it when that is made or given up."""

    asked_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDifference:
    """`key`, of a document: its `_id` as Extended JSON. `source`, `target`: the digests of what each side has, empty where it has nothing."""

    table: TableName
    """At the target."""
    kind: str
    key: str = ""
    source: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPlace:
    """Where a pass through all documents goes on."""

    table: TableName
    """At the target."""
    key: str = ""
    """The `_id` that comes next, as BSON in base64. Empty: the table's first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """What a comparison at one point has found."""

    part: ComparedPart
    place: PassPlace | None
    """None: the pass is through."""
    due_bytes: int
    """What a whole pass is to read; 0, if the part was not its first."""
    differences: tuple[FoundDifference, ...] = ()
    left_out: Mapping[TableName, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPass:
    """All documents, compared in parts. `ended_at` None: it goes on."""

    number: int
    began_at: datetime
    ended_at: datetime | None = None
    due_bytes: int
    done: ComparedPart = ComparedPart()
    first_at: ClusterTime | None = None
    """The point, in the source's time, at which it found its first difference."""
    first_in: TableName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What continuous verification has found of one changefeed."""

    at: ClusterTime | None = None
    """The newest point, in the source's time, at which a part was compared."""
    place: PassPlace | None = None
    """None: the next part begins a pass."""
    present: VerifyPass | None = None
    """The newest pass."""
    last: VerifyPass | None = None
    """The newest one that has ended before it."""

    @property
    def different(self) -> int:
        """What the newest whole pass has found, and the one that goes on: it is over when a whole pass finds nothing."""
        return max((each.done.different for each in (self.present, self.last) if each is not None), default=0)

    def after(self, at: ClusterTime, compared: PartResult, now: datetime) -> Verified:
        present, last = self.present, self.last
        if present is None or self.place is None:
            number = 1 if present is None else present.number + 1
            present, last = VerifyPass(number=number, began_at=now, due_bytes=compared.due_bytes), present
        found = compared.differences[0].table if compared.part.different else None
        if found is not None and present.first_in is None:
            present = replace(present, first_at=at, first_in=found)
        ended_at = now if compared.place is None else None
        done = present.done + compared.part
        if ended_at is not None and done.left_out and done.left_out == done.tables:
            return replace(self, at=at)  # nothing could be compared: the next point tries it again
        present = replace(present, done=done, ended_at=ended_at)
        return Verified(at=at, place=compared.place, present=present, last=last)
