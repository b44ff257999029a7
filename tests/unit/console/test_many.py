"""Two hundred changefeeds and ten thousand tables: what a page weighs, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from admin.cluster_reader import ClusterReader
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.lifecycle import Lifecycle, State
from changefeed.position import Position
from changefeed.records.ddl import Barrier
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableName, TableSchema
from console.feed_page import feed_page
from console.frame import Visitor, WebPage, document
from console.observer import Observer, pace
from console.overview_page import overview
from console.picture import TableQuery
from coordination.etcd.protocol import Put
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from coordination.parts import assignment_puts, report_txns
from tests.memory_etcd import MemoryEtcd

LAYOUT, NODE, LARGE = Layout("test"), NodeId("n1-1"), ChangefeedId("large")
_MOST_BYTES, _MOST_SECONDS = 300_000, 1.5
_VISITOR = Visitor(name="maria", may_act=True, csrf="c5f")


def at(seconds: float) -> Position:
    return Position(ClusterTime(int(seconds), 1))


class Fleet:
    def __init__(self, feeds: int, tables: int) -> None:
        self.etcd, self.now = MemoryEtcd(), time.time()
        self.sizes = {ChangefeedId(f"feed-{number:03}"): 5 for number in range(feeds - 1)} | {LARGE: tables}
        for id, size in self.sizes.items():
            self._begin(id, size)
        self.mirror = Mirror(self.etcd.connect(), LAYOUT.root)
        self.reader = ClusterReader(self.mirror, LAYOUT)

    def _begin(self, id: ChangefeedId, size: int) -> None:
        configuration = Configuration.parse({"id": id, "source": "mongodb://a", "sink": "mongodb://b"})
        info = ChangefeedInfo(configuration=configuration, created_at=datetime.now(UTC))
        ids = [TableId(f"{hash((id, number)) & (1 << 128) - 1:032x}") for number in range(size)]
        names = (TableName("shop", f"table_{number:05}") for number in range(size))
        schemas = [TableSchema(id=table, name=name, valid_from=at(1)) for table, name in zip(ids, names, strict=True)]
        puts = [Put(LAYOUT.schema(id, schema.id), encode(schema)) for schema in schemas]
        assigned = Assignment(tables={table: AssignedTable(start=at(1)) for table in ids})
        puts += assignment_puts(LAYOUT.assignment(id, NODE), Assignment(), assigned)
        puts += [
            Put(LAYOUT.info(id), encode(info)),
            Put(LAYOUT.barrier(id), encode(Barrier(epoch=1, position=at(self.now)))),
        ]
        for first in range(0, len(puts), 100):
            self.etcd.txn([], puts[first : first + 100])
        self.report(id, self.now)

    def report(self, id: ChangefeedId, now: float) -> None:
        """As an owner and a node do each second."""
        status = ChangefeedStatus(
            lifecycle=Lifecycle(state=State.NORMAL),
            start=at(1),
            checkpoint=at(now - 1),
            resolved=at(now),
            run=1,
            info_version=1,
            epoch=1,
        )
        self.etcd.txn([], [Put(LAYOUT.status(id), encode(status))])
        report = PositionReport(run=1, barrier_rev=1, assignment_rev=1_000_000, checkpoint=at(now - 1))
        for ops in report_txns(LAYOUT.position(id, NODE), None, report):
            self.etcd.txn([], ops)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    made = Fleet(200, 10_000)
    made.mirror.start()
    made.mirror.at_least(1, timedelta(seconds=30), whole=True)
    yield made
    made.mirror.stop()


def test_pages_of_many_are_small_and_cheap_and_so_is_the_first_one(fleet: Fleet) -> None:
    observer = Observer(fleet.reader, dict)
    observer.sample()
    drawings: dict[str, Callable[[], WebPage]] = {
        "cluster": lambda: overview(observer.overview(), may_act=True),
        "changefeed": lambda: feed_page(observer.feed(LARGE, TableQuery()), may_act=True),
        "found": lambda: feed_page(observer.feed(LARGE, TableQuery(text="_0", page=3)), may_act=True),
    }
    for name, draw in drawings.items():
        first, *others = (_cost(draw) for _ in range(4))
        assert min(others) < _MOST_SECONDS, f"{name} costs {others} s of CPU"
        assert first < 4 * min(others), f"the first {name} costs {first:.2f} s of CPU, the others {others}"


def _cost(draw: Callable[[], WebPage]) -> float:
    began = time.thread_time()
    html = document(draw(), _VISITOR, cluster="east", live="/live")
    assert len(html.encode()) < _MOST_BYTES
    return time.thread_time() - began


def test_a_page_is_drawn_less_often_when_many_would_cost_too_much(fleet: Fleet) -> None:
    assert [round(pace(cost), 1) for cost in (0.001, 0.02, 0.05, 0.1, 0.4)] == [1.0, 1.3, 3.3, 5.0, 10.0]
    drawn: list[int] = []
    observer = Observer(fleet.reader, dict)

    def draw() -> WebPage:
        drawn.append(1)
        return overview(observer.overview(), may_act=True)

    pages = {observer.drawn("cluster", draw).at for _ in range(20)}
    assert (len(drawn), len(pages)) == (1, 1)
    observer.forget()
    observer.drawn("cluster", draw)
    assert len(drawn) == 2
