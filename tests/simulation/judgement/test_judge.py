"""`Judge`: what it must refuse, and what it must not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from math import inf

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SinkRefused
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.node import NodeId
from changefeed.records.status import Straggler
from changefeed.table import TableId, TableName
from coordination.etcd.protocol import Change, KeyValue
from coordination.layout import encode
from tests.simulation.clockwork.machine import Machine, Thread, Violation
from tests.simulation.clockwork.substitutes import installed
from tests.simulation.cluster import FEED, LAYOUT, Cluster
from tests.simulation.judgement.agreement import Agreement
from tests.simulation.judgement.judge import Judge
from tests.simulation.source.sharded.cluster import ClusterSource
from tests.simulation.source.tables import Ddl, Row
from tests.simulation.target.server import Collection

INSIDE, OUTSIDE, INSIDE_AGAIN = TableName("crm", "b"), TableName("crm", "x_out"), TableName("crm", "a")
_SECOND_UUID = bytes(range(16))
_SEEN_AT = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine(7)
    with installed(machine):
        yield machine


@pytest.fixture
def thread(machine: Machine) -> Thread:
    return machine.spawn(machine.process("n1"), "owner", lambda: None)


@pytest.fixture
def judge(machine: Machine) -> Judge:
    return Judge(Cluster(machine, source_version=None), Agreement(routed=False))


def _two_uuids(judge: Judge) -> tuple[TableId, TableId]:
    source = judge._source
    assert isinstance(source, ClusterSource)
    table = source.created(source.primary_of(INSIDE.db), INSIDE, {})
    source.superseded(table, _SECOND_UUID)
    return table.id, TableId(_SECOND_UUID.hex())


def _write(judge: Judge, record: DdlRecord) -> None:
    key = LAYOUT.ddl(FEED, record.position)
    judge.written([Change(key=key, now=KeyValue(key=key, value=encode(record), create_rev=1, mod_rev=1))])


def _at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 1))


def _index(life: TableId) -> DdlRecord:
    event = DdlEvent(position=_at(10), type=DdlType.CREATE_INDEXES, db="crm", table=INSIDE, id=life)
    return DdlRecord(event=event, scope=Scope(tables=frozenset({life}), names=frozenset({INSIDE})), seen_at=_SEEN_AT)


def _rename_into_the_filter(life: TableId) -> DdlRecord:
    """Over a table that is dropped at the target."""
    event = DdlEvent(position=_at(20), type=DdlType.RENAME, db="crm", table=OUTSIDE, renamed_to=INSIDE_AGAIN, id=life)
    scope = Scope(apart=frozenset({life}), names=frozenset({INSIDE_AGAIN}))
    return DdlRecord(event=event, scope=scope, state=DdlState.EXECUTING, seen_at=_SEEN_AT)


def test_a_table_that_comes_in_under_another_uuid_waits_for_nothing_of_its_life_before(
    judge: Judge, thread: Thread
) -> None:
    first, second = _two_uuids(judge)
    _write(judge, _index(first))
    _write(judge, _rename_into_the_filter(second))
    judge.ddl(thread, None, INSIDE_AGAIN, "drop")


def test_a_table_that_comes_in_under_its_uuid_waits_for_its_ddls_of_before(judge: Judge, thread: Thread) -> None:
    first, _ = _two_uuids(judge)
    _write(judge, _index(first))
    _write(judge, _rename_into_the_filter(first))
    with pytest.raises(Violation, match=r"I5: rename .* before createIndexes"):
        judge.ddl(thread, None, INSIDE_AGAIN, "drop")


def test_a_build_that_was_refused_when_it_was_sent_again_may_be_built_after_all(judge: Judge, thread: Thread) -> None:
    """Also when it is skipped, as its table is about to be dropped."""
    first, _ = _two_uuids(judge)
    skipped = replace(_index(first), state=DdlState.SKIPPED)
    _write(judge, skipped)
    with pytest.raises(Violation, match="no record of it is executing"):
        judge.ddl(thread, None, INSIDE, "createIndexes g_1", late=True)
    _write(judge, replace(skipped, refused=ErrorReport.of(SinkRefused("no"), _SEEN_AT)))
    with pytest.raises(Violation, match="no record of it is executing"):
        judge.ddl(thread, None, INSIDE, "createIndexes g_1")
    judge.ddl(thread, None, INSIDE, "createIndexes g_1", late=True)


def test_a_build_belongs_to_the_ddl_that_is_executed_and_not_to_one_that_was_refused(
    judge: Judge, thread: Thread
) -> None:
    first, _ = _two_uuids(judge)
    refused = replace(_index(first), state=DdlState.SKIPPED, refused=ErrorReport.of(SinkRefused("no"), _SEEN_AT))
    executing = replace(_index(first), event=replace(refused.event, position=_at(11)), state=DdlState.EXECUTING)
    for record in (refused, executing):
        _write(judge, record)
    judge.ddl(thread, None, INSIDE, "createIndexes g_1", late=True)
    with pytest.raises(Violation, match=f"{re.escape(str(executing.event))} a second time"):
        judge.ddl(thread, None, INSIDE, "createIndexes g_1", late=True)


def test_a_row_that_moves_to_another_shard_may_be_nowhere_for_a_moment(judge: Judge) -> None:
    table, _ = _two_uuids(judge)
    versions: list[tuple[Position, Row | None]] = [(_at(seconds), {"_id": 1, "v": seconds}) for seconds in (10, 20)]
    with pytest.raises(Violation, match=r"I2: .* row 1 of .* is None"):
        judge._check_row(table, 1, versions, None, _at(15))
    judge._source.moved.add((table, 20))
    judge._check_row(table, 1, versions, None, _at(15))
    with pytest.raises(Violation, match=r"I2: .* row 1 of .* is None"):
        judge._check_row(table, 1, versions, None, _at(21))


def test_a_row_of_a_table_that_is_being_dropped_may_be_nowhere_until_the_drop(judge: Judge) -> None:
    """Also at an earlier checkpoint: a copy has read its table later."""
    table, _ = _two_uuids(judge)
    versions: list[tuple[Position, Row | None]] = [(_at(10), {"_id": 1, "v": 10})]
    with pytest.raises(Violation, match=r"I2: .* row 1 of .* is None"):
        judge._check_row(table, 1, versions, None, _at(15))
    judge._source.half_dropped[table] = _at(20)
    judge._check_row(table, 1, versions, None, _at(15))
    judge._check_row(table, 1, versions, None, _at(21))
    with pytest.raises(Violation, match=r"I2: .* row 1 of .* is"):
        judge._check_row(table, 1, versions, {"_id": 1, "v": 9}, _at(15))


def test_what_another_client_changed_in_a_life_that_has_ended_is_not_wrong_any_more(judge: Judge) -> None:
    first, second = _two_uuids(judge)
    judge._damaged |= {(first, 1): _at(10), (second, 2): _at(10)}
    judge._cluster.target.collections[INSIDE] = Collection(_SECOND_UUID, table=second)
    assert judge.damaged == [(first, 2)]


def test_a_row_that_another_client_changed_is_wrong_until_a_write_of_it_is_durable(judge: Judge) -> None:
    """Not only until one is sent, which the target may refuse (seed 9504234)."""
    first, _ = _two_uuids(judge)
    judge._damaged[first, 1] = _at(10)
    majority = judge._cluster.target.majority
    majority.hold(1e9)
    judge.kept(first, 1)
    assert not judge._damaged
    judge._cluster.machine.random.seed(1)
    while not judge._damaged and majority._lacking:
        majority.elect()
    assert judge._damaged == {(first, 1): _at(10)}


def test_a_ddl_that_nobody_recorded_belongs_to_the_life_before_that_of_a_table_that_was_lost(judge: Judge) -> None:
    """Seed 9503653."""
    first, _ = _two_uuids(judge)
    dropped = Ddl(_at(10), DdlType.DROP_INDEXES, frozenset({first}), frozenset({INSIDE}))
    assert not judge._of_another_life(dropped, first)
    event = DdlEvent(position=_at(20), type=DdlType.ENTER, db="crm", table=INSIDE, id=first)
    _write(judge, DdlRecord(event=event, scope=Scope(apart=frozenset({first})), seen_at=_SEEN_AT))
    assert judge._of_another_life(dropped, first)
    _write(judge, replace(_index(first), state=DdlState.PENDING))
    assert not judge._of_another_life(dropped, first), "it is recorded after all"


def test_a_table_that_fails_is_moved_to_one_other_node(judge: Judge) -> None:
    first, _ = _two_uuids(judge)
    key = LAYOUT.straggler(FEED, first)

    def moved_from(node: str | None) -> None:
        straggler = Straggler(at=_at(10), since=_SEEN_AT, moved_from=NodeId(node) if node else None)
        judge.written([Change(key=key, now=KeyValue(key=key, value=encode(straggler), create_rev=1, mod_rev=1))])

    for node in ("n1", "n1", None, "n2"):
        moved_from(node)
    with pytest.raises(Violation, match="fails on n3 and moves, as it did on n2"):
        moved_from("n3")


def test_a_rename_stands_at_the_entry_of_a_shard_that_can_be_read(judge: Judge) -> None:
    """Seed 9860006: the last shard to log it is gone."""
    source = judge._source
    assert isinstance(source, ClusterSource)
    first, _ = _two_uuids(judge)
    here, last = [*source.shards]
    renamed = Ddl(
        _at(20),
        DdlType.RENAME,
        frozenset({first}),
        frozenset({INSIDE, OUTSIDE}),
        to=OUTSIDE,
        by_shard={here: _at(10), last: _at(20)},
    )
    source.ddls.append(renamed)
    event = DdlEvent(position=_at(10), type=DdlType.DROP, db="crm", table=INSIDE, id=first)
    record = DdlRecord(event=event, scope=Scope(tables=frozenset({first})), seen_at=_SEEN_AT)
    _write(judge, record)
    assert source.ddls[-1] == renamed
    source.retired[last] = source.shards.pop(last)
    source.retired[last].down.until = inf
    _write(judge, replace(record, event=replace(event, position=_at(9))))
    assert source.ddls[-1] == renamed
    _write(judge, record)
    assert source.ddls[-1] == replace(renamed, position=_at(10))
