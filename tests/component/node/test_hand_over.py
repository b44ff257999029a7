"""A node that stops leaves its tables to others first."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from pathlib import Path

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.lifecycle import Lifecycle, State
from changefeed.position import Position
from changefeed.records.ddl import Barrier
from changefeed.records.node import AssignedTable, Assignment, NodeId, Role
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, DesiredState
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import Delete, EtcdConfig, Put
from coordination.layout import Layout, encode
from coordination.parts import assignment_puts
from tests.component.node.server_process import Server
from tests.described import described
from tests.until import until

FEED, OTHER, NOW = ChangefeedId("f"), NodeId("other"), datetime(2026, 11, 21, tzinfo=UTC)
POSITION = Position(ClusterTime(50, 0))
INFO = ChangefeedInfo(
    configuration=Configuration.parse({"id": FEED, "source": "mongodb://127.0.0.1:1", "sink": "mongodb://127.0.0.1:2"}),
    desired=DesiredState.RUNNING,
    created_at=NOW,
    capture=Capture.OPLOG,
)
STATUS = ChangefeedStatus(
    lifecycle=Lifecycle(state=State.NORMAL, since_at=NOW),
    start=POSITION,
    checkpoint=POSITION,
    resolved=POSITION,
    info_version=INFO.version,
    epoch=1,
    capture=Capture.OPLOG,
)


def test_a_node_stops_when_another_has_its_tables(etcd_endpoint: str, tmp_path: Path) -> None:
    """No node is the owner: the test gives the table away, once it is asked to."""
    with (
        EtcdClient(EtcdConfig(endpoints=(etcd_endpoint,))) as etcd,
        Server(etcd_endpoint, tmp_path / "log", roles="processor") as server,
    ):
        layout = Layout(server.cluster)
        (node,) = (NodeId(item.key.rpartition("/")[2]) for item in etcd.range(layout.nodes).items)
        assigned = layout.assignment(FEED, node)
        etcd.txn([], [Put(layout.node(OTHER), encode(described("other", Role.PROCESSOR)(OTHER)))])
        etcd.txn([], [Put(layout.info(FEED), encode(INFO)), Put(layout.status(FEED), encode(STATUS))])
        etcd.txn([], [Put(layout.barrier(FEED), encode(Barrier(epoch=1, position=POSITION)))])
        given = Assignment(tables={TableId("a" * 32): AssignedTable(start=POSITION)})
        etcd.txn([], assignment_puts(assigned, Assignment(), given))
        until(lambda: etcd.get(layout.position(FEED, node)) is not None, "its first report")
        server.signal(signal.SIGTERM)
        until(lambda: "node_hands_over" in server.log, "the request to drain it")
        assert server.get("/readyz") == (503, "the node is stopping\n")
        etcd.txn([], [Delete(item.key) for item in etcd.range(assigned).items])
        assert server.wait() == 0
        assert "node_kept_tables" not in server.log
