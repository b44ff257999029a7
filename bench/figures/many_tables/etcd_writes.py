"""`etcd_writes`: the rate of writes to etcd while a changefeed follows its source; it must not depend on the number of tables."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from bench.result import Figure
from changefeed.config.configuration import Configuration
from changefeed.records.node import NodeId, NodeRecord, Role
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from coordination.decoded import Decoded
from coordination.election import Candidate
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig, Put
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from coordination.session import open_session
from devstack.scripted_processor import ScriptedProcessor
from devstack.stack import DevStack
from owner.connections import Connections
from owner.owner import Owner
from source.connection import Client, connect

_FEW, _MANY = 10, 1_000
_SECONDS = 6.0
_DEADLINE_SECONDS = 120.0


def etcd_writes(stack: DevStack) -> list[Figure]:
    """Runs a real owner and a scripted processor on real etcd and a busy source."""
    with connect(stack.source_uri) as client:
        few, many = (_revisions_a_second(stack, client, tables) for tables in (_FEW, _MANY))
    return [Figure.less_is_better(f"etcd_writes_{_MANY}_tables", many, "writes/s", baseline=few)]


def _revisions_a_second(stack: DevStack, client: Client, tables: int) -> float:
    database = f"bench_{uuid.uuid4().hex[:8]}"
    for number in range(tables):
        client[database].create_collection(f"t{number:04}")
    layout = Layout(database)
    with EtcdClient(EtcdConfig(endpoints=(stack.etcd_endpoint,))) as etcd, _cluster(etcd, layout) as mirror:
        configuration = {
            "id": "bench",
            "source": stack.source_uri,
            "sink": "blackhole://",
            "start": "now",
            "filter": {"tables": [f"{database}.*"]},
        }
        info = ChangefeedInfo(configuration=Configuration.parse(configuration), created_at=datetime.now(UTC))
        etcd.txn((), (Put(layout.info(ChangefeedId("bench")), encode(info)),))
        with _busy(client, database):
            _wait(lambda: _assigned(mirror, layout) == tables)
            before = etcd.range(layout.nodes).revision
            begun_at = time.monotonic()
            time.sleep(_SECONDS)
            written = etcd.range(layout.nodes).revision - before
            seconds = time.monotonic() - begun_at
    client.drop_database(database)
    return written / seconds


@contextmanager
def _cluster(etcd: EtcdClient, layout: Layout) -> Iterator[Mirror]:
    def describe(node: NodeId) -> NodeRecord:
        roles = frozenset({Role.OWNER})
        return NodeRecord(id=node, name="o1", admin_address="", roles=roles, version="0", started_at=datetime.now(UTC))

    session, _ = open_session(etcd, layout, name="o1", describe=describe)
    mirror = Mirror(etcd, layout.root)
    owner = Owner(Candidate(etcd, layout, lease=session.lease, node=session.node), session, mirror, layout, Connections)
    with ExitStack() as ending:
        for start, stop in ((session.start, session.close), (mirror.start, mirror.stop), (owner.start, owner.stop)):
            start()
            ending.callback(stop)
        with ScriptedProcessor(etcd, layout, "p1"):
            yield mirror


@contextmanager
def _busy(client: Client, database: str) -> Iterator[None]:
    """Inserts fifty documents a second, so that the barrier moves at every tick."""
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.02):
            client[database]["t0000"].insert_one({})

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


def _assigned(mirror: Mirror, layout: Layout) -> int:
    assignments = Decoded(layout).assignments(mirror.view(), ChangefeedId("bench"))
    return sum(len(stored.record.tables) for stored in assignments.values())


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the changefeed did not begin in time"
        time.sleep(0.05)
