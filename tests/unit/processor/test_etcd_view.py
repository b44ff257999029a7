"""What a node reads of a changefeed, and what makes it look again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.records.ddl import Barrier
from changefeed.records.node import AssignedTable, Assignment, NodeId
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId
from coordination.decoded import Decoded
from coordination.etcd.protocol import Put
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from coordination.parts import assignment_puts
from coordination.view import KeyGroup, View
from processor import etcd_view
from tests.memory_etcd import MemoryEtcd

LAYOUT, ID, NODE, AT = Layout("test"), ChangefeedId("f"), NodeId("n1"), Position(ClusterTime(100, 0))


class ReadView(View):
    """Remembers what was read of it."""

    read: set[str]

    @classmethod
    def of(cls, view: View) -> ReadView:
        found = cls(view.revision, view.groups, view.etcd)
        object.__setattr__(found, "read", set())
        return found

    def group(self, group: str) -> KeyGroup:
        self.read.add(group)
        return super().group(group)


def test_a_node_looks_again_at_whatever_it_reads_of_its_changefeed() -> None:
    """A group that is left out is seen with the next barrier only, which may never come."""
    etcd = MemoryEtcd()
    fields: dict[str, Any] = {"id": ID, "source": "mongodb://a", "sink": "mongodb://b", "apply_limit": "1000/s"}
    records = {
        LAYOUT.info(ID): ChangefeedInfo(configuration=Configuration.parse(fields), created_at=datetime.now(UTC)),
        LAYOUT.status(ID): ChangefeedStatus(checkpoint=AT, resolved=AT, info_version=1, epoch=1),
        LAYOUT.barrier(ID): Barrier(epoch=1, position=AT),
    }
    etcd.txn([], [Put(key, encode(record)) for key, record in records.items()])
    given = Assignment(tables={TableId("ab" * 16): AssignedTable(start=AT)})
    etcd.txn([], assignment_puts(LAYOUT.assignment(ID, NODE), Assignment(), given))
    mirror = Mirror(etcd.connect(), LAYOUT.root)
    while mirror.poll(timedelta()):
        pass
    view = ReadView.of(mirror.view())
    found = etcd_view.read(Decoded(LAYOUT), view, LAYOUT, ID, NODE)
    assert found is not None
    assert found.orders.assignment == given
    assert view.read <= set(etcd_view.groups(LAYOUT, ID, NODE)), "it reads what it does not look at again"
