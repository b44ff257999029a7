"""What a new owner, or a node, finds in etcd after each transaction of `ChangefeedWriter`: its predecessor may have ended there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, DdlState, Scope
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport, RowCounts
from changefeed.records.requests import ChangefeedId, TableRequest, TableVerb
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.shards import part_of
from changefeed.table import TableId, TableName, TableSchema
from coordination.etcd.protocol import MAX_TXN_OPS, Committed, Compare, KeyValue, Op, Put, Refused
from coordination.fenced import FencedStore
from coordination.layout import Layout, decode, encode
from owner.etcd_writes import ChangefeedWriter
from owner.tables.scheduler import Assign, ForgetNode, Withdraw, assignments_after
from owner.tables.wishes import Forget, Mark, Resume
from schema_store.store import FoldStep
from tests.joined import join_assignment
from tests.memory_etcd import MemoryClient, MemoryEtcd

ID, LAYOUT, NOW = ChangefeedId("feed"), Layout("test"), datetime(2026, 11, 21, tzinfo=UTC)
N1, N2 = NodeId("n1"), NodeId("n2")
MANY = [TableId(f"{number:032x}") for number in range(3 * MAX_TXN_OPS)]


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


class CountingClient(MemoryClient):
    """Knows the size of its largest transaction."""

    most = 0

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> Committed | Refused:
        self.most = max(self.most, len(ops))
        return super().txn(compares, ops)


class Owner:
    def __init__(self) -> None:
        self.server = MemoryEtcd()
        self.client = CountingClient(self.server)
        key, lease = LAYOUT.owner(1), self.server.grant(timedelta(seconds=10)).id
        epoch = self.server.txn([], [Put(key, b"me", lease)]).revision
        self.writer = ChangefeedWriter(FencedStore(self.client, key=key, epoch=epoch), LAYOUT, ID)
        self.since = epoch

    def has(self, key: str, record: object) -> None:
        """Before anything that a test looks at."""
        self.since = self.server.txn([], [Put(key, encode(record))]).revision

    def asked(self, request: str) -> dict[TableId, int]:
        """The revision of the request about the first table, as the owner has seen it."""
        stored = self.server.get(request)
        assert stored is not None
        return {MANY[0]: stored.mod_rev}

    def found(self) -> Iterator[Found]:
        """What was there after each transaction."""
        for revision in range(self.since, self.server.revision + 1):
            items = self.server.range(LAYOUT.root, at_rev=revision).items
            yield Found({kv.key: kv for kv in items})


@dataclass
class Found:
    keys: Mapping[str, KeyValue]

    def __contains__(self, key: str) -> bool:
        return key in self.keys

    def below(self, group: str) -> list[KeyValue]:
        return [kv for key, kv in self.keys.items() if key.startswith(group)]

    @property
    def homes(self) -> list[TableId]:
        """Each table as often as nodes have it."""
        return sorted(table for node in (N1, N2) for table in self.assignment(node).tables)

    def assignment(self, node: NodeId) -> Assignment:
        return join_assignment(self.below(LAYOUT.assignment(ID, node)))[0]

    def open(self, record: DdlRecord) -> bool:
        return decode(DdlRecord, self.keys[LAYOUT.ddl(ID, record.position)]).open

    @property
    def barrier(self) -> Position:
        return decode(Barrier, self.keys[LAYOUT.barrier(ID)]).position


@pytest.fixture
def owner() -> Owner:
    return Owner()


def status(checkpoint: int) -> ChangefeedStatus:
    return ChangefeedStatus(checkpoint=at(checkpoint), resolved=at(checkpoint), info_version=1, epoch=1)


def barrier(increment: int) -> Barrier:
    return Barrier(epoch=1, position=at(increment))


def table(id: TableId) -> TableSchema:
    return TableSchema(id=id, name=TableName("shop", id), valid_from=at(1))


def ddl(increment: int, state: DdlState = DdlState.PENDING) -> DdlRecord:
    event = DdlEvent(position=at(increment), type=DdlType.DROP, db="shop", table=TableName("shop", "a"), id=MANY[0])
    return DdlRecord(event=event, scope=Scope(tables=frozenset(MANY[:1])), state=state, seen_at=NOW)


def test_a_moved_table_has_one_node_after_each_transaction(owner: Owner) -> None:
    """300 tables are many transactions."""
    given = {table: AssignedTable(start=at(1)) for table in MANY}
    before = {N1: Assignment(tables=given, leaving=frozenset(MANY)), N2: Assignment()}
    owner.writer.schedule({}, before)
    owner.since = owner.server.revision
    moves = [Assign(table, N2, AssignedTable(start=at(7)), taken_from=N1) for table in MANY]
    owner.writer.schedule(before, assignments_after(before, moves))
    found = list(owner.found())
    assert len(found) > len(MANY) // MAX_TXN_OPS
    assert all(state.homes == MANY for state in found)
    assert found[0].assignment(N1) == before[N1]
    assert found[-1].assignment(N2) == Assignment(tables=moved(MANY, 7))


def moved(tables: Sequence[TableId], increment: int) -> dict[TableId, AssignedTable]:
    return {table: AssignedTable(start=at(increment)) for table in tables}


def test_whole_hand_overs_fit_into_each_transaction(owner: Owner) -> None:
    """One part has a single entry, all others have two, which no transaction divides."""
    alone, *others = sorted(MANY, key=part_of)
    before = {N1: Assignment(tables=moved(MANY, 1), leaving=frozenset(others))}
    owner.writer.schedule({}, before)
    moves = [Assign(table, N2, AssignedTable(start=at(7)), taken_from=N1) for table in others]
    owner.client.most, owner.since = 0, owner.server.revision
    owner.writer.schedule(before, assignments_after(before, [Withdraw(alone, N1), *moves]))
    assert owner.client.most <= MAX_TXN_OPS
    assert all(state.homes == MANY for state in owner.found())


def test_a_gate_opens_when_its_ddl_is_durable(owner: Owner) -> None:
    """And the straggler that begins with it is there, too."""
    record, straggler = ddl(5), LAYOUT.straggler(ID, MANY[0])
    owner.has(LAYOUT.ddl(ID, record.position), record)
    owner.has(LAYOUT.barrier(ID), barrier(5))
    done = replace(record, state=DdlState.DONE, done_at=NOW)
    owner.writer.release([done], barrier(9), {MANY[0]: Straggler(at=at(5), since=NOW)})
    states = [(state.barrier > at(5), state.open(record), straggler in state) for state in owner.found()]
    assert states == [(False, True, False), (True, False, True)]


def test_a_ddl_lets_any_number_of_tables_under_its_name_go_on(owner: Owner) -> None:
    record = ddl(5)
    owner.has(LAYOUT.ddl(ID, record.position), record)
    owner.has(LAYOUT.barrier(ID), barrier(5))
    owner.client.most = 0
    standing = dict.fromkeys(MANY, Straggler(at=at(5), since=NOW))
    owner.writer.release([replace(record, state=DdlState.SKIPPED)], barrier(9), standing)
    assert owner.client.most <= MAX_TXN_OPS
    states = [
        (state.open(record), sum(LAYOUT.straggler(ID, table) in state for table in MANY)) for state in owner.found()
    ]
    assert all(marked >= len(MANY) - 1 for is_open, marked in states if not is_open)
    assert states[-1] == (False, len(MANY))


def test_a_request_is_answered_when_all_its_ddls_are_recorded(owner: Owner) -> None:
    request, records = LAYOUT.request(ID, MANY[0]), [ddl(number) for number in range(1, MAX_TXN_OPS + 10)]
    owner.has(request, TableRequest(verb=TableVerb.RECOPY))
    owner.writer.ddls(records, [MANY[0]], owner.asked(request))
    found = list(owner.found())
    assert request not in found[-1]
    for state in found:
        assert request in state or len(state.below(LAYOUT.ddls(ID))) == len(records)


def test_ddls_are_recorded_in_their_order(owner: Owner) -> None:
    records = [ddl(number) for number in range(1, MAX_TXN_OPS + 10)]
    owner.writer.ddls(records)
    for state in owner.found():
        present = [LAYOUT.ddl(ID, record.position) in state for record in records]
        assert present == sorted(present, reverse=True)


def test_a_changefeed_has_a_status_when_all_its_tables_are_known(owner: Owner) -> None:
    """And nothing of what a predecessor wrote, who saw other tables."""
    former = TableId("f" * 32)
    owner.has(LAYOUT.schema(ID, former), table(former))
    owner.has(LAYOUT.ddl(ID, at(1)), ddl(1))
    owner.writer.beginning([table(id) for id in MANY], status(3), barrier(3))
    found = list(owner.found())
    for state in found:
        whole = sorted(kv.key for kv in state.below(LAYOUT.schemas(ID))) == [LAYOUT.schema(ID, id) for id in MANY]
        whole = whole and not state.below(LAYOUT.ddls(ID)) and LAYOUT.barrier(ID) in state
        assert LAYOUT.status(ID) not in state or whole
    assert LAYOUT.status(ID) in found[-1]


def test_the_rows_of_a_node_that_is_forgotten_are_counted_once(owner: Owner) -> None:
    report = PositionReport(
        run=1, barrier_rev=1, assignment_rev=1, checkpoint=at(1), rows=RowCounts(skipped=1, repaired=2, rejected=3)
    )
    owner.has(LAYOUT.rows(ID), RowCounts(skipped=10))
    owner.has(LAYOUT.position(ID, N1), report)
    owner.writer.forget([ForgetNode(N1)], {N1: report}, RowCounts(skipped=10))
    states = [
        (LAYOUT.position(ID, N1) in state, decode(RowCounts, state.keys[LAYOUT.rows(ID)])) for state in owner.found()
    ]
    assert states == [(True, RowCounts(skipped=10)), (False, RowCounts(skipped=11, repaired=2, rejected=3))]


def test_a_ddl_is_folded_with_its_effect(owner: Owner) -> None:
    base, record = table(MANY[0]), ddl(5, DdlState.DONE)
    owner.has(LAYOUT.ddl(ID, record.position), record)
    owner.has(LAYOUT.schema(ID, MANY[1]), table(MANY[1]))
    owner.writer.fold(FoldStep(write=(base,), remove=(MANY[1],), ddls=(record.position,)))
    keys = LAYOUT.ddl(ID, record.position), LAYOUT.schema(ID, MANY[1]), LAYOUT.schema(ID, MANY[0])
    assert [[key in state for key in keys] for state in owner.found()] == [[True, True, False], [False, False, True]]


def test_a_straggler_is_recorded_with_the_answer_to_its_request(owner: Owner) -> None:
    request, straggler = LAYOUT.request(ID, MANY[0]), LAYOUT.straggler(ID, MANY[0])
    owner.has(request, TableRequest(verb=TableVerb.STOP))
    owner.writer.wish(Mark(MANY[0], Straggler(at=at(5), stopped=True, since=NOW), answers=True), owner.asked(request))
    assert [(request in state, straggler in state) for state in owner.found()] == [(True, False), (False, True)]


def test_a_table_goes_on_with_its_ddls_and_the_answer_to_its_request(owner: Owner) -> None:
    request, straggler, record = LAYOUT.request(ID, MANY[0]), LAYOUT.straggler(ID, MANY[0]), ddl(5)
    stopped = Straggler(at=at(5), stopped=True, since=NOW)
    owner.has(straggler, stopped)
    owner.has(request, TableRequest(verb=TableVerb.RESUME))
    owner.writer.wish(Resume(MANY[0], replace(stopped, stopped=False), (record,)), owner.asked(request))
    states = [
        (
            request in state,
            decode(Straggler, state.keys[straggler]).stopped,
            LAYOUT.ddl(ID, record.position) in state,
        )
        for state in owner.found()
    ]
    assert states == [(True, True, False), (True, True, True), (False, False, True)]


@pytest.mark.parametrize("wished", ["mark", "resume", "forget", "copy"])
def test_a_request_that_replaced_the_one_that_is_answered_stays(wished: str, owner: Owner) -> None:
    request, straggler = LAYOUT.request(ID, MANY[0]), LAYOUT.straggler(ID, MANY[0])
    owner.has(request, TableRequest(verb=TableVerb.RESUME))
    seen = owner.asked(request)
    owner.has(request, TableRequest(verb=TableVerb.STOP))
    match wished:
        case "mark":
            owner.writer.wish(Mark(MANY[0], Straggler(at=at(5), stopped=True, since=NOW), answers=True), seen)
        case "resume":
            owner.writer.wish(Resume(MANY[0], None, ()), seen)
        case "forget":
            owner.writer.wish(Forget(requests=frozenset(MANY[:1])), seen)
        case "copy":
            owner.writer.ddls([], MANY[:1], seen)
    *_, now = owner.found()
    assert decode(TableRequest, now.keys[request]).verb is TableVerb.STOP
    assert straggler not in now


def test_a_restart_leaves_nothing_of_the_former_life(owner: Owner) -> None:
    former = TableId("f" * 32)
    groups = (LAYOUT.schema, LAYOUT.copy, LAYOUT.straggler, LAYOUT.request, LAYOUT.repair)
    for group in groups:
        owner.has(group(ID, former), TableRequest(verb=TableVerb.STOP))
    for key in (LAYOUT.ddl(ID, at(1)), LAYOUT.skip(ID, at(1)), LAYOUT.rename(ID, TableName("shop", "a"))):
        owner.has(key, ddl(1))
    for key in (LAYOUT.position(ID, N1), f"{LAYOUT.assignment(ID, N1)}000", LAYOUT.rows(ID), LAYOUT.barrier(ID)):
        owner.has(key, barrier(1))
    owner.has(LAYOUT.info(ID), barrier(1))
    owner.writer.restart(status(3))
    *_, now = owner.found()
    assert sorted(kv.key for kv in now.below(LAYOUT.changefeed(ID))) == [LAYOUT.info(ID), LAYOUT.status(ID)]
    assert not now.below(LAYOUT.positions(ID))


def test_an_opened_gate_is_written_at_once_and_mere_progress_is_not(owner: Owner) -> None:
    held = replace(barrier(5), held={MANY[0]: at(4)})
    owner.writer.barrier(barrier(5), None, flowing=False)
    owner.writer.barrier(barrier(6), barrier(5), flowing=False)
    assert [state.barrier for state in list(owner.found())[1:]] == [at(5)]
    owner.writer.barrier(barrier(7), held, flowing=False)
    assert [state.barrier for state in list(owner.found())[1:]] == [at(5), at(7)]
