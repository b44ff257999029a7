"""How far an owner tells a sink of messages that everything is: as far as etcd says, and with the tables that are behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from queue import Queue
from types import SimpleNamespace
from typing import Any

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.lifecycle import Lifecycle, State
from changefeed.position import Position
from changefeed.records import Barrier, ChangefeedId, ChangefeedInfo, ChangefeedStatus, DesiredState, Straggler
from changefeed.table import TableId, TableName, TableSchema
from coordination.decoded import Decoded
from coordination.etcd.memory import MemoryEtcd
from coordination.etcd.protocol import Put
from coordination.fenced import FencedStore
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from owner.changefeed_owner import ChangefeedOwner
from owner.ddl.in_flight import InFlightDdl
from owner.term import OwnerTerm

LAYOUT, FEED, NOW = Layout("test"), ChangefeedId("f"), datetime(2026, 11, 21, tzinfo=UTC)
A, B = TableId("a" * 32), TableId("b" * 32)
_ROUTES = [{"from": "shop.*", "to": "dr.*"}]


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


class Marks:
    def __init__(self) -> None:
        self.made: Queue[tuple[Position, Mapping[TableId, Position], list[TableName]]] = Queue()

    def mark(self, at: Position, behind: Mapping[TableId, Position], tables: Iterable[TableName]) -> None:
        self.made.put((at, behind, sorted(tables)))


def test_a_mark_is_the_checkpoint_in_etcd_with_the_stragglers_behind_it() -> None:
    """Of a paused changefeed, whose source nobody reads: the resolved position and the barrier are further than anything downstream."""
    server, marks = MemoryEtcd(), Marks()
    lease = server.grant(timedelta(seconds=10)).id
    epoch = server.txn([], [Put(LAYOUT.owner(1), b"me", lease)]).revision
    configuration = Configuration.parse(
        {"id": FEED, "source": "mongodb://a", "sink": "kafka://b:9092/p", "routes": _ROUTES}
    )
    info = ChangefeedInfo(
        configuration=configuration, desired=DesiredState.PAUSED, created_at=NOW, capture=Capture.OPLOG
    )
    status = ChangefeedStatus(
        lifecycle=Lifecycle(state=State.STOPPED, since_at=NOW),
        start=at(50),
        checkpoint=at(100),
        resolved=at(200),
        info_version=info.version,
        epoch=epoch,
        capture=Capture.OPLOG,
        still=True,
    )
    records: dict[str, Any] = {
        LAYOUT.info(FEED): info,
        LAYOUT.status(FEED): status,
        LAYOUT.barrier(FEED): Barrier(epoch=epoch, position=at(200)),
        LAYOUT.straggler(FEED, B): Straggler(at=at(70), stopped=True, since=NOW),
    }
    for id, name in ((A, "a"), (B, "b")):
        schema = TableSchema(id=id, name=TableName("shop", name), valid_from=at(50))
        records[LAYOUT.schema(FEED, id)] = schema
    server.txn([], [Put(key, encode(record)) for key, record in records.items()])
    clusters = SimpleNamespace(
        acquire=lambda *_: SimpleNamespace(oplog_window=lambda: None),
        release=lambda *_: None,
        open_marks=lambda *_: marks,
        open_sweeper=lambda *_: None,
        open_letters=lambda _, before: before,
        claim_sink=lambda *_: None,
    )
    term = OwnerTerm(
        store=FencedStore(server.connect(), key=LAYOUT.owner(1), epoch=epoch),
        layout=LAYOUT,
        reader=Decoded(LAYOUT),
        clusters=clusters,  # has what is used of a changefeed that rests
        wake=lambda: None,
        margin=timedelta(),
        in_flight=InFlightDdl(lambda: 10.0),
    )
    mirror = Mirror(server.connect(), LAYOUT.root)
    mirror.poll(timedelta())
    owner = ChangefeedOwner(FEED, configuration, Capture.OPLOG, term, created_rev=1)
    try:
        owner.tick(mirror.view())
        assert marks.made.get(timeout=60) == (
            at(100),
            {B: at(70)},
            [TableName("dr", "a"), TableName("dr", "b")],
        )
    finally:
        owner.close()
