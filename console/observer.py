"""`Observer`: what the pages show, read from the node's mirror, and the hour behind it.

Nothing here asks etcd. Pages that are open at the same time share what was read and drawn, and it is read again when `pace` has passed: a
second, unless that would cost more than a small share of a core.

    cost of all open pages    20 ms    100 ms    400 ms
    again after                1 s      5 s      10 s
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import structlog

from admin.cluster_reader import ChangefeedTables, ClusterReader, UnreadableChangefeed, tables_of
from admin.services import changefeed_messages, table_messages
from admin.services.changefeed_messages import text, without_configuration
from admin.services.node_service import node_messages
from admin.services.table_messages import TablePlace
from admin.services.troubles import troubles
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.errors import SluiceError
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.table import TableId
from console.drawings import HOUR
from console.frame import WebPage
from console.picture import TABLES_A_PAGE, ClusterPicture, FeedFigures, FeedPicture, Lane, TablePage, TableQuery, Task
from console.words import urgency
from owner.etcd_view import OwnerView
from owner.source_watch import OplogLeft

_log = structlog.get_logger()

_SAMPLE_SECONDS = 20.0
_USUAL_SHARE, _LARGEST_SHARE = 0.015, 0.04
_SHORTEST, _USUAL = 1.0, 5.0
_OPEN_FOR = 15.0
"""A page that nobody asked for as long is not open any more."""
_MOST_LANES, _NAMED = 12, 3


def pace(cost: float) -> float:
    """Seconds between two reads that cost so many together."""
    return max(_SHORTEST, min(cost / _USUAL_SHARE, _USUAL), cost / _LARGEST_SHARE)


@dataclass(slots=True)
class _Known:
    """Of a changefeed, from one read to the next."""

    lags: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=int(HOUR / _SAMPLE_SECONDS)))
    applied: tuple[float, int] | None = None
    rate: float | None = None
    tables: ChangefeedTables | None = None
    configuration: tuple[ChangefeedInfo, str] | None = None


@dataclass(slots=True)
class _Drawn:
    page: WebPage
    cost: float
    at: float


class Observer:
    """Runs between `start` and `stop`. Many threads share it."""

    def __init__(self, reader: ClusterReader, oplog_left: Callable[[], Mapping[ChangefeedId, OplogLeft]]) -> None:
        self._reader = reader
        self._oplog_left = oplog_left
        self._lock = threading.Lock()
        self._known: dict[ChangefeedId, _Known] = {}
        self._drawn: dict[object, _Drawn] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="console history", daemon=True)

    @property
    def cluster(self) -> str:
        return self._reader.layout.cluster

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """May be called twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def forget(self) -> None:
        """The next pages are drawn anew: a user has just changed something."""
        with self._lock:
            self._drawn.clear()

    def drawn(self, key: object, draw: Callable[[], WebPage]) -> WebPage:
        """The page of this key, drawn again if it is due."""
        with self._lock:
            now = time.monotonic()
            self._drawn = {
                each: known for each, known in self._drawn.items() if now - known.at < _OPEN_FOR or each == key
            }
            before = self._drawn.get(key)
            if before is not None and now - before.at < pace(sum(each.cost for each in self._drawn.values())):
                return before.page
            began = time.thread_time()
            page = draw()
            self._drawn[key] = _Drawn(page, time.thread_time() - began, now)
            return page

    def overview(self) -> ClusterPicture:
        now = datetime.now(UTC)
        with self._reader.read() as view:
            feeds = view.changefeeds()
            nodes = list(node_messages(view, self._reader.serving, now))
            owner = view.owner.node if view.owner else ""
        shown = {id: self._message(id, known, now) for id, known in feeds.readable.items()}
        shown |= {
            id: changefeed_messages.unreadable_changefeed(id, error, now) for id, error in feeds.unreadable.items()
        }
        return ClusterPicture(
            at=now,
            owner=owner,
            serving=self._reader.serving.node() or "",
            nodes=nodes,
            feeds=[shown[id] for id in sorted(shown)],
            figures={id: self._figures(id) for id in shown},
        )

    def node_name(self, id: str) -> str:
        with self._reader.read(reports=False) as view:
            return next((stored.record.name for node, stored in view.nodes.items() if node == id), id)

    def subject(self, id: ChangefeedId, subject: str) -> tuple[str, list[str]]:
        """What a user calls a table or a DDL of the changefeed, and the nodes that take tables."""
        with self._reader.read() as view:
            known = view.changefeed(id)
            nodes = [str(node) for node, stored in view.nodes.items() if stored.record.takes_tables]
        with self._lock:
            found = self._tables(id, known)
        names = {table.id: table.name for table in changefeed_messages.stopped_tables(known, found)}
        names |= {schema.id: str(schema.name) for schema in found.living if schema.id == subject}
        return names.get(subject, subject), nodes

    def feed(self, id: ChangefeedId, query: TableQuery, tasks: Sequence[Task] = ()) -> FeedPicture:
        """Raises if there is no such changefeed."""
        now = datetime.now(UTC)
        try:
            with self._reader.read() as view:
                known, names = view.changefeed(id), {node: stored.record.name for node, stored in view.nodes.items()}
        except UnreadableChangefeed as error:
            feed = changefeed_messages.unreadable_changefeed(id, error, now)
            nothing = TablePage(query=query, states={}, matching=0, tables=())
            return FeedPicture(at=now, feed=feed, tables=nothing)
        feed = self._message(id, known, now)
        feed.configuration = self._configuration(id, known)
        found = self._tables(id, known)
        places = sorted(
            table_messages.places(known, found, now=now), key=lambda each: (urgency(each.state), each.schema.name)
        )
        ddls = list(table_messages.ddls(known, found))
        counts = Counter({node: len(assigned.record.tables) for node, assigned in known.assignments.items()})
        return FeedPicture(
            at=now,
            feed=feed,
            figures=self._figures(id),
            barrier=text(known.barrier.position if known.barrier else None),
            lanes=_lanes(known, places, ddls),
            ddls=ddls,
            tables=_page(known, found, places, query, now),
            nodes=[(node, count) for node, count in sorted(counts.items())],
            names={str(node): name for node, name in names.items()},
            tasks=tasks,
        )

    def _message(self, id: ChangefeedId, known: OwnerView, now: datetime) -> pb.Changefeed:
        message = without_configuration(
            id, known, self._tables(id, known), now=now, unwritable=self._reader.serving.unwritable()
        )
        self._counted(self._of(id), now.timestamp(), message.rows.applied)
        return message

    def _tables(self, id: ChangefeedId, known: OwnerView) -> ChangefeedTables:
        mine = self._of(id)
        found = tables_of(known, mine.tables)
        if found.bases:
            mine.tables = found
        return found

    def _configuration(self, id: ChangefeedId, known: OwnerView) -> str:
        mine = self._of(id)
        if mine.configuration is None or mine.configuration[0] is not known.info:
            mine.configuration = known.info, changefeed_messages.configuration_text(known)
        return mine.configuration[1]

    def _of(self, id: ChangefeedId) -> _Known:
        return self._known.setdefault(id, _Known())

    @staticmethod
    def _counted(mine: _Known, now: float, applied: int) -> None:
        """Rows a second, between reads that are seconds apart."""
        before = mine.applied
        if before is None or applied < before[1] or now - before[0] > 10 * _USUAL:
            mine.applied, mine.rate = (now, applied), None
        elif now - before[0] >= 2 * _SHORTEST:
            mine.applied, mine.rate = (now, applied), (applied - before[1]) / (now - before[0])

    def _figures(self, id: ChangefeedId) -> FeedFigures:
        mine, left = self._of(id), self._oplog_left().get(id)
        known = FeedFigures(lags=tuple(mine.lags), rows_rate=mine.rate)
        return replace(known, oplog_left=left.left, oplog_scarce=left.scarce) if left is not None else known

    def sample(self) -> None:
        """Keeps the present lags for the hour's line, and reads what the first page needs: of many tables that takes seconds."""
        with self._reader.read(reports=False) as view:
            feeds = view.changefeeds().readable
        now = datetime.now(UTC)
        with self._lock:
            self._known = {id: known for id, known in self._known.items() if id in feeds}
        for id, known in feeds.items():
            lag = known.status.lag(now) if known.status else None
            with self._lock:
                self._tables(id, known)
                if lag is not None:
                    self._of(id).lags.append((now.timestamp(), lag.total_seconds()))

    def _sample(self) -> None:
        """From the node's start on, not when somebody looks."""
        while not self._stopping.is_set():
            pause = _SAMPLE_SECONDS
            try:
                self.sample()
            except SluiceError:
                pause = _SHORTEST  # the line has a gap, and the page's bar says why
            except Exception:  # noqa: BLE001 - the edge of a thread; logged with its traceback
                _log.exception("console_history_failed")
            self._stopping.wait(pause)


def _lanes(known: OwnerView, places: list[TablePlace], ddls: list[pb.Ddl]) -> list[Lane]:
    """Those in trouble and those that a DDL holds first, then those furthest behind."""
    held = known.barrier.held if known.barrier else {}
    waiting = {
        table for table, trouble in troubles(known.stragglers, known.records.values()).items() if trouble.waits_for_user
    }
    told = {ddl.position: f"{ddl.type} {ddl.table}" for ddl in ddls}
    groups: dict[tuple[str, str, str, str], list[TablePlace]] = {}
    for each in places:
        if each.at is not None:
            table: TableId = each.schema.id
            stop, trouble = text(held.get(table)), each.state if table in waiting else ""
            groups.setdefault((each.node or "", text(each.at), stop, trouble), []).append(each)
    lanes = [
        Lane(
            node=node,
            position=position,
            tables=len(group),
            barrier=stop,
            some=[str(each.schema.name) for each in group[:_NAMED]],
            trouble=trouble,
            ddl=told.get(stop, ""),
        )
        for (node, position, stop, trouble), group in groups.items()
    ]
    return sorted(lanes, key=lambda lane: (not lane.trouble, not lane.ddl, lane.position))[:_MOST_LANES]


def _page(
    known: OwnerView, found: ChangefeedTables, places: list[TablePlace], query: TableQuery, now: datetime
) -> TablePage:
    matching = list(_matching(places, query))
    last = max(1, -(-len(matching) // TABLES_A_PAGE))
    first = (min(max(query.page, 1), last) - 1) * TABLES_A_PAGE
    shown = tuple(each.schema for each in matching[first : first + TABLES_A_PAGE])
    return TablePage(
        query=query,
        states=Counter(each.state for each in places),
        matching=len(matching),
        tables=sorted(
            table_messages.tables(known, replace(found, living=shown), now=now), key=lambda each: urgency(each.state)
        ),
    )


def _matching(places: list[TablePlace], query: TableQuery) -> Iterator[TablePlace]:
    """`text` is a part of a name."""
    part = query.text.casefold()
    for each in places:
        if query.state in ("", each.state) and (not part or part in str(each.schema.name).casefold()):
            yield each
