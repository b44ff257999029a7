from __future__ import annotations

from bench.scale import Cluster, phases


def test_a_small_cluster_goes_through_all_phases_and_no_table_is_without_a_node() -> None:
    cluster = Cluster.of(nodes=10, tables=300)
    found = {row.name: row for row in phases(cluster)}
    assert found.keys() == {"first assignment", "following, 10 s", "one DDL", "1 nodes die at once"}
    assert cluster.settled
    cluster.tick()
    assert len(cluster.nodes) == 9
    assert sum(len(state.assignment.tables) for state in cluster.nodes.values()) == 300
    following = found["following, 10 s"]
    assert following.owner.txns == following.ticks, "one barrier each"
    assert found["1 nodes die at once"].seconds > 10, "the margin of a dead node is waited for"
