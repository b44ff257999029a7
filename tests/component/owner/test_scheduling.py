"""Tables are spread over processors, and move when a processor dies, drains, or is the target of a move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedId
from devstack.scripted_processor import ScriptedProcessor
from tests.component.owner.conftest import Cluster

TABLES = 8


@contextmanager
def spread(cluster: Cluster, database: str) -> Iterator[tuple[ChangefeedId, ScriptedProcessor, ScriptedProcessor]]:
    """Eight tables are spread evenly over two processors."""
    for number in range(TABLES):
        cluster.source[database].create_collection(f"t{number}")
    cluster.start_owner("o1", margin=0.5)
    with cluster.processor("p1", ttl=2.0) as first, cluster.processor("p2", ttl=2.0) as second:
        feed = cluster.create("f", database)
        cluster.until(lambda: sorted(loads(cluster, feed).values()) == [TABLES // 2, TABLES // 2], "an even spread")
        yield feed, first, second


def loads(cluster: Cluster, feed: ChangefeedId) -> Counter[str]:
    return Counter(cluster.assigned(feed).values())


def test_tables_of_a_dead_processor_go_to_the_other(cluster: Cluster, database: str) -> None:
    with spread(cluster, database) as (feed, first, second):
        first.kill()
        cluster.until(lambda: loads(cluster, feed) == {second.node: TABLES}, "all tables with the other")
        cluster.until(lambda: not cluster.reports_of(feed, first.node), "what the dead one left to be forgotten")


def test_a_drained_processor_gives_up_all_its_tables(cluster: Cluster, database: str) -> None:
    with spread(cluster, database) as (feed, first, second):
        cluster.drain(first.node)
        cluster.until(lambda: loads(cluster, feed) == {second.node: TABLES}, "all tables with the other")
        cluster.until(lambda: not first.places(feed), "the drained one to let go")


def test_a_table_goes_where_it_is_asked_for_and_the_request_is_deleted(cluster: Cluster, database: str) -> None:
    with spread(cluster, database) as (feed, first, second):
        table = next(table for table, node in cluster.assigned(feed).items() if node == first.node)
        cluster.move(feed, table, second.node)
        cluster.until(lambda: cluster.assigned(feed).get(table) == second.node)
        cluster.until(lambda: not cluster.moves(feed))


def test_a_request_for_a_node_that_is_not_there_is_deleted(cluster: Cluster, database: str) -> None:
    with spread(cluster, database) as (feed, _, _):
        before = cluster.assigned(feed)
        cluster.move(feed, next(iter(before)), NodeId("p9-1"))
        cluster.until(lambda: not cluster.moves(feed))
        assert cluster.assigned(feed) == before
