"""The tables of a changefeed, as users see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from admin.cluster_reader import ClusterReader, tables_of
from admin.services import table_messages
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.lifecycle import ErrorReport, Lifecycle, State
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, DdlState
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.table import TableId, TableKind, TableName, TableSchema
from coordination.etcd.protocol import Put
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from coordination.parts import assignment_puts
from owner.decision import recopy
from tests.memory_etcd import MemoryEtcd

ID, TABLE = ChangefeedId("orders"), TableId("ab" * 16)
LAYOUT, NOW = Layout("test"), datetime(2026, 11, 26, tzinfo=UTC)


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 1))


def seen(*records: DdlRecord) -> list[TableName]:
    with cluster(records).read() as view:
        return [schema.name for schema in tables_of(view.changefeed(ID)).living]


def cluster(
    records: Iterable[DdlRecord] = (), more: Mapping[str, object] = MappingProxyType({}), puts: Sequence[Put] = ()
) -> ClusterReader:
    etcd = MemoryEtcd()
    configuration = Configuration.parse({"id": ID, "source": "mongodb://a", "sink": "mongodb://b"})
    written: dict[str, object] = {
        LAYOUT.info(ID): ChangefeedInfo(configuration=configuration, created_at=NOW),
        LAYOUT.status(ID): ChangefeedStatus(start=at(1), checkpoint=at(10), run=1, info_version=1, epoch=1),
        LAYOUT.schema(ID, TABLE): _TABLE,
        **{LAYOUT.ddl(ID, record.position): record for record in records},
        **more,
    }
    for key, record in written.items():
        etcd.txn([], [Put(key, encode(record))])
    if puts:
        etcd.txn([], list(puts))
    mirror = Mirror(etcd.connect(), LAYOUT.root)
    while mirror.poll(timedelta(0)):
        pass
    return ClusterReader(mirror, LAYOUT)


_TABLE = TableSchema(id=TABLE, name=TableName("shop", "orders"), valid_from=at(1))


def test_a_table_that_is_copied_anew_is_there_at_each_of_its_steps() -> None:
    leave, enter = recopy.begun(_TABLE, TableName("shop", "orders"), (at(11), at(12)), at(10), NOW)
    left, entered = (replace(record, state=DdlState.SKIPPED) for record in (leave, enter))
    assert seen() == seen(leave, enter) == seen(left, enter) == seen(left, entered) == [_TABLE.name]


def test_tables_are_told_in_short_as_they_are_told_at_length() -> None:
    names = ("following", "stopped", "behind", "failing", "leaving", "no node", "view")
    ids = {name: TableId(f"{number:032x}") for number, name in enumerate(names)}
    node, error = NodeId("n1"), ErrorReport(code="x", message="x", retryable=True, at=NOW)
    running = Lifecycle(state=State.NORMAL)
    assigned = Assignment(
        tables={ids[name]: AssignedTable(start=at(1)) for name in names if name not in ("no node", "view")},
        leaving=frozenset({ids["leaving"]}),
    )
    report = PositionReport(
        run=1,
        barrier_rev=1,
        assignment_rev=1_000,
        checkpoint=at(100),
        retried={ids["failing"]: error},
        exceptions={ids["behind"]: at(20)},
    )
    written: dict[str, object] = {
        LAYOUT.status(ID): ChangefeedStatus(
            lifecycle=running, start=at(1), checkpoint=at(10), run=1, info_version=1, epoch=1
        ),
        LAYOUT.barrier(ID): Barrier(epoch=1, position=at(100)),
        LAYOUT.straggler(ID, ids["stopped"]): Straggler(at=at(5), stopped=True, since=NOW),
        LAYOUT.position(ID, node): report,
    }
    for name, id in ids.items():
        kind = TableKind.VIEW if name == "view" else TableKind.COLLECTION
        written[LAYOUT.schema(ID, id)] = TableSchema(id=id, name=TableName("shop", name), valid_from=at(1), kind=kind)
    puts = assignment_puts(LAYOUT.assignment(ID, node), Assignment(), assigned)
    with cluster(more=written, puts=puts).read() as view:
        known = view.changefeed(ID)
    found = tables_of(known)
    short = {str(each.schema.name): each.state for each in table_messages.places(known, found, now=NOW)}
    assert short == {each.name: each.state for each in table_messages.tables(known, found, now=NOW)}
    assert short["shop.stopped"] == "stopped"
    assert len(set(short.values())) >= 5, short


def test_tables_that_have_not_changed_are_not_visited_again() -> None:
    reader = cluster()
    with reader.read() as view:
        known = view.changefeed(ID)
    before = tables_of(known)
    again = tables_of(known, before)
    assert again.living is before.living
    assert again.progress.tables is before.progress.tables
    assert {id: again.of(id) for id in known.bases} == {id: before.of(id) for id in known.bases}
