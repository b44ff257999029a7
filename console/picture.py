"""`ClusterPicture`, `FeedPicture`: what the pages show, as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb

TABLES_A_PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFigures:
    """What this node has measured of a changefeed. `lags`: Unix seconds and seconds, of the last hour."""

    lags: Sequence[tuple[float, float]] = ()
    rows_rate: float | None = None
    oplog_left: timedelta | None = None
    oplog_scarce: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPicture:
    at: datetime
    owner: str
    """Empty while there is none."""
    serving: str
    """The node that serves the page."""
    nodes: Sequence[pb.Node]
    feeds: Sequence[pb.Changefeed]
    figures: Mapping[str, FeedFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Tables of one node that are at one position."""

    node: str
    position: str
    tables: int
    barrier: str
    some: Sequence[str] = ()
    """The names of a few."""
    trouble: str = ""
    ddl: str = ""
    """The DDL that holds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """Which tables a user wants to see."""

    text: str = ""
    state: str = ""
    page: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePage:
    """`states` counts all tables by their states, `matching` those that a user wants to see; `tables` are one page of these."""

    query: TableQuery
    states: Mapping[str, int]
    matching: int
    tables: Sequence[pb.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A verification or a cut-over that was started on this node's page. `ended_at`: None while it runs."""

    verb: str
    started_at: datetime
    said: str
    ended_at: datetime | None = None
    failed: bool = False
    lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPicture:
    at: datetime
    feed: pb.Changefeed
    tables: TablePage
    figures: FeedFigures = field(default_factory=FeedFigures)
    barrier: str = ""
    lanes: Sequence[Lane] = ()
    ddls: Sequence[pb.Ddl] = ()
    """The newest at the end."""
    nodes: Sequence[tuple[str, int]] = ()
    """Each node with the number of its tables."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Of the nodes, by their ids."""
    tasks: Sequence[Task] = ()
