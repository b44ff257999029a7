"""The shell of one changefeed that rests: what it tells a sink of messages, and when it believes that nothing of it is written any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from queue import Queue
from types import SimpleNamespace
from typing import cast

import pytest

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.errors import FencedError, HistoryLost
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import Lifecycle, State
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, DdlState, Observation, Scope
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport, Role
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, DesiredState, TableRequest, TableVerb
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.table import TableId, TableName, TableSchema
from coordination.decoded import Decoded
from coordination.etcd.protocol import Put
from coordination.fenced import FencedStore
from coordination.layout import Layout, decode, encode
from coordination.mirror import Mirror
from coordination.parts import assignment_puts
from owner.changefeed_owner import ChangefeedOwner
from owner.connections import Connections, OwnerTerm
from owner.ddl.feed import Taken
from owner.ddl.jobs import InFlightDdl
from owner.source_watch import OplogLeft
from sink.receipt import CommitCounts
from sink.sink import Permit
from source.oplog.window import OplogWindow
from tests.described import described
from tests.memory_etcd import MemoryEtcd
from tests.until import until

LAYOUT, FEED, NODE, NOW = Layout("test"), ChangefeedId("f"), NodeId("n1"), datetime(2026, 11, 21, tzinfo=UTC)
A, B = TableId("a" * 32), TableId("b" * 32)
_LONG = timedelta(hours=1)


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


class Marks:
    def __init__(self) -> None:
        self.made: Queue[tuple[Position, Mapping[TableId, Position], list[TableName]]] = Queue()

    def mark(
        self, at: Position, behind: Mapping[TableId, Position], tables: Iterable[TableName], _: CommitCounts
    ) -> None:
        self.made.put((at, behind, sorted(tables)))


class Target:
    """Where a drop succeeds. It says what etcd had of it then."""

    def __init__(self, server: MemoryEtcd) -> None:
        self._server = server
        self.applied: Queue[DdlState] = Queue()

    def observe(self, names: Iterable[TableName]) -> Observation:
        return Observation(tables=dict.fromkeys(names))

    def apply(self, _ddl: object, _before: object, record: DdlRecord) -> str:
        found = self._server.get(LAYOUT.ddl(FEED, record.position))
        assert found is not None
        self.applied.put(decode(DdlRecord, found).state)
        return ""

    def close(self) -> None: ...


class Owner:
    """Over an in-memory etcd, with a changefeed in this state. Nothing is read of its source."""

    def __init__(self) -> None:
        self.server = MemoryEtcd()
        self.marks = Marks()
        self.target = Target(self.server)
        self.woken = threading.Event()
        self.moved_on = threading.Event()
        """The source was told to."""
        self.subscribe: Callable[..., SimpleNamespace] = _nothing
        self.oplog: OplogWindow | None = None
        """To the source's DDL, at the first tick."""
        lease = self.server.grant(_LONG).id
        self.epoch = self.server.txn([], [Put(LAYOUT.owner(1), b"me", lease)]).revision
        self._mirror = Mirror(self.server.connect(), LAYOUT.root)
        self._owners: list[ChangefeedOwner] = []
        self.permits: list[Permit] = []
        self._configuration = Configuration.parse(
            {
                "id": FEED,
                "source": "mongodb://a",
                "sink": "kafka://b:9092/p",
                "routes": [{"from": "shop.*", "to": "dr.*"}],
            }
        )

    def has(self, key: str, record: object) -> int:
        return self.server.txn([], [Put(key, encode(record))]).revision

    def rests(self, state: State, *, still: bool = False) -> None:
        self.is_(state, DesiredState.REMOVED if state is State.REMOVED else DesiredState.PAUSED, still=still)

    def is_(self, state: State, desired: DesiredState, *, still: bool = False) -> None:
        """Its barrier was written before its state. The resolved position is further than anything downstream."""
        info = ChangefeedInfo(configuration=self._configuration, desired=desired, created_at=NOW, capture=Capture.OPLOG)
        status = ChangefeedStatus(
            lifecycle=Lifecycle(state=state, since_at=NOW),
            start=at(50),
            checkpoint=at(100),
            resolved=at(200),
            info_version=info.version,
            epoch=self.epoch,
            capture=Capture.OPLOG,
            still=still,
        )
        for id, name in ((A, "a"), (B, "b")):
            self.has(LAYOUT.schema(FEED, id), TableSchema(id=id, name=TableName("shop", name), valid_from=at(50)))
        self.has(LAYOUT.barrier(FEED), Barrier(epoch=self.epoch, position=at(200)))
        self.has(LAYOUT.info(FEED), info)
        self.has(LAYOUT.status(FEED), status)

    def node_has_tables(self, *, lives: bool) -> None:
        if lives:
            self.has(LAYOUT.node(NODE), described("n1", Role.PROCESSOR)(NODE))
        given = Assignment(tables={A: AssignedTable(start=at(50))})
        self.server.txn([], assignment_puts(LAYOUT.assignment(FEED, NODE), Assignment(), given))

    def reported(self, *, run: int, barrier_rev: int) -> None:
        revs = [item.mod_rev for item in self.server.range(LAYOUT.assignment(FEED, NODE)).items]
        report = PositionReport(run=run, barrier_rev=barrier_rev, assignment_rev=max(revs), checkpoint=at(100))
        self.has(LAYOUT.position(FEED, NODE), report)

    @property
    def keys(self) -> set[str]:
        return {item.key for item in self.server.range(LAYOUT.changefeed(FEED)).items}

    @property
    def barrier_rev(self) -> int:
        found = self.server.get(LAYOUT.barrier(FEED))
        assert found is not None
        return found.mod_rev

    @property
    def removed(self) -> bool:
        return not self.server.range(LAYOUT.changefeed(FEED)).items

    def tick(self, margin: timedelta = timedelta()) -> None:
        if not self._owners:
            self._owners.append(self._owner(margin))
        while self._mirror.poll(timedelta()):
            pass
        self._owners[0].tick(self._mirror.view())

    @property
    def calm(self) -> bool:
        return self._owners[0].calm

    @property
    def oplog_left(self) -> OplogLeft | None:
        return self._owners[0].oplog_left

    @property
    def lifecycle(self) -> Lifecycle:
        stored = self.server.get(LAYOUT.status(FEED))
        assert stored is not None
        return decode(ChangefeedStatus, stored).lifecycle

    def close(self) -> None:
        for owner in self._owners:
            owner.close()

    def _owner(self, margin: timedelta) -> ChangefeedOwner:
        connections = SimpleNamespace(
            acquire=lambda *_: SimpleNamespace(
                oplog_window=lambda: self.oplog,
                losses=lambda _: None,
                move_on=self.moved_on.set,
                feed=SimpleNamespace(subscribe=self.subscribe),
            ),
            release=lambda *_: None,
            compare=None,
            open_sink=self._open_sink,
        )
        term = OwnerTerm(
            store=FencedStore(self.server.connect(), key=LAYOUT.owner(1), epoch=self.epoch),
            layout=LAYOUT,
            reader=Decoded(LAYOUT),
            permit=lambda: 10.0,
            connections=cast("Connections", connections),  # has what is used of a changefeed that rests
            wake=self.woken.set,
            margin=margin,
            in_flight=InFlightDdl(lambda: 10.0),
        )
        return ChangefeedOwner(FEED, self._configuration, Capture.OPLOG, term, created_rev=1)

    def _open_sink(self, _: Configuration, __: str, permit: Permit) -> SimpleNamespace:
        self.permits.append(permit)
        return SimpleNamespace(
            marks=lambda *_: self.marks,
            ddl=lambda *_: self.target,
            leftovers=lambda *_: None,
            open_letters=lambda before: before,
        )


def _nothing(*_: object) -> SimpleNamespace:
    """A subscription to a source where nothing happens after what is resolved."""
    taken = Taken(events=(), resolved=at(200), sighting=None, error=None)
    return SimpleNamespace(take=lambda: taken, close=lambda: None)


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner()
    yield owner
    owner.close()


def test_a_mark_is_the_checkpoint_in_etcd_with_the_stragglers_behind_it(owner: Owner) -> None:
    owner.rests(State.STOPPED)
    owner.has(LAYOUT.straggler(FEED, B), Straggler(at=at(70), stopped=True, since=NOW))
    owner.tick()
    names = [TableName("dr", "a"), TableName("dr", "b")]
    assert owner.marks.made.get(timeout=60) == (at(100), {B: at(70)}, names)


def test_what_an_owner_of_a_changefeed_has_left_running_writes_nothing_beside_the_next_one(owner: Owner) -> None:
    owner.rests(State.STOPPED)
    owner.tick()
    [permit] = owner.permits
    assert permit() == 10
    owner.close()
    with pytest.raises(FencedError):
        permit()


def test_a_changefeed_is_removed_when_its_node_says_that_it_has_stopped(owner: Owner) -> None:
    """Under a barrier from after its last state: an earlier report may be from before its last start."""
    owner.rests(State.REMOVED)
    owner.node_has_tables(lives=True)
    owner.reported(run=0, barrier_rev=owner.barrier_rev)
    before = owner.barrier_rev
    owner.tick()
    assert owner.barrier_rev > before, "the same barrier was written again, after the state"
    owner.tick()
    assert not owner.removed
    owner.reported(run=1, barrier_rev=owner.barrier_rev)
    owner.tick()
    assert not owner.removed
    owner.reported(run=0, barrier_rev=owner.barrier_rev)
    owner.tick()
    assert owner.removed


@pytest.mark.parametrize(("margin", "removed"), [(_LONG, False), (timedelta(), True)])
def test_a_node_that_is_gone_has_stopped_when_its_tasks_cannot_write_any_more(
    margin: timedelta, removed: bool, owner: Owner
) -> None:
    """Whatever it reported last."""
    owner.rests(State.REMOVED)
    owner.node_has_tables(lives=False)
    owner.reported(run=0, barrier_rev=1_000_000)
    for _ in range(3):
        owner.tick(margin)
    assert owner.removed is removed


def test_a_node_that_went_while_the_changefeed_stood_still_has_no_tasks_to_wait_for(owner: Owner) -> None:
    """Nor later, when it does not stand still any more. So a start after all nodes were stopped is quick."""
    owner.rests(State.STOPPED, still=True)
    owner.node_has_tables(lives=False)
    owner.tick(_LONG)
    owner.rests(State.REMOVED)
    for _ in range(3):
        owner.tick(_LONG)
    assert owner.removed


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED, State.PENDING])
def test_a_changefeed_that_does_not_run_still_says_how_long_it_may_go_on_so(state: State, owner: Owner) -> None:
    owner.rests(state)
    owner.oplog = OplogWindow(oldest_ts=at(70).ts, newest_ts=at(190).ts)
    _answered(owner)
    assert owner.oplog_left == OplogLeft(left=timedelta(seconds=30), scarce=False)


def test_a_paused_changefeed_fails_as_soon_as_the_oplog_lacks_what_it_needs_next(owner: Owner) -> None:
    owner.rests(State.STOPPED)
    owner.oplog = OplogWindow(oldest_ts=at(150).ts, newest_ts=at(190).ts)
    _answered(owner)
    assert owner.oplog_left == OplogLeft(left=timedelta(), scarce=True)
    assert owner.lifecycle.state is State.FAILED
    assert owner.lifecycle.error is not None
    assert owner.lifecycle.error.code == HistoryLost.code


def test_a_finished_changefeed_needs_nothing_more_of_the_oplog(owner: Owner) -> None:
    owner.rests(State.FINISHED)
    owner.oplog = OplogWindow(oldest_ts=at(150).ts, newest_ts=at(190).ts)
    for _ in range(3):
        owner.tick()
    assert owner.oplog_left is None
    assert owner.lifecycle.state is State.FINISHED


def _answered(owner: Owner) -> None:
    def knows() -> bool:
        owner.tick()
        return owner.oplog_left is not None

    until(knows, "the oplog's bounds")


def test_ddls_are_folded_into_the_bases_up_to_the_checkpoint(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that begins again at the checkpoint needs the schemas as they were there."""
    monkeypatch.setattr("owner.etcd_writes._HISTORY", 1)
    owner.is_(State.NORMAL, DesiredState.RUNNING)
    for seconds in (90, 110, 120, 130):
        event = DdlEvent(position=at(seconds), type=DdlType.MODIFY, db="shop", table=TableName("shop", "a"), id=A)
        record = DdlRecord(event=event, scope=Scope(tables=frozenset({A})), state=DdlState.DONE, seen_at=NOW)
        owner.has(LAYOUT.ddl(FEED, event.position), record)
    owner.tick()
    left = [LAYOUT.ddl(FEED, at(seconds)) in owner.keys for seconds in (90, 110, 120, 130)]
    assert left == [False, True, True, True]


def test_a_ddl_is_applied_as_soon_as_etcd_has_what_was_observed_and_what_it_held_goes_on_at_once(owner: Owner) -> None:
    """Each tick between two DDLs of one name is one that all later ones wait for."""
    owner.is_(State.NORMAL, DesiredState.RUNNING)
    event = DdlEvent(position=at(100), type=DdlType.DROP, db="shop", table=TableName("shop", "a"), id=A)
    scope = Scope(tables=frozenset({A}), names=frozenset({TableName("dr", "a")}))
    owner.has(LAYOUT.ddl(FEED, event.position), DdlRecord(event=event, scope=scope, seen_at=NOW))
    owner.node_has_tables(lives=True)
    owner.reported(run=1, barrier_rev=owner.barrier_rev)
    for _ in ("observes", "records and applies"):
        owner.woken.clear()
        owner.tick()
        assert owner.woken.wait(60)
    assert owner.target.applied.get(timeout=60) is DdlState.EXECUTING
    owner.woken.clear()
    owner.tick()
    assert owner.woken.is_set(), "it is done"


def test_a_source_where_nothing_happens_is_told_to_move_on_when_a_table_is_to_be_copied_anew(owner: Owner) -> None:
    owner.is_(State.NORMAL, DesiredState.RUNNING)
    owner.tick()
    assert not owner.moved_on.is_set()
    owner.has(LAYOUT.request(FEED, A), TableRequest(verb=TableVerb.RECOPY))
    owner.tick()
    assert owner.moved_on.wait(60)


def test_the_tables_of_a_gone_node_wait_for_other_nodes(owner: Owner) -> None:
    owner.is_(State.NORMAL, DesiredState.RUNNING)
    owner.node_has_tables(lives=False)
    owner.tick()
    assert not owner.calm


def test_reports_may_be_collected_for_longer_while_nothing_waits_for_them(owner: Owner) -> None:
    """Each of them would be a tick of its own, which costs as much as the one that moved the barrier."""
    owner.is_(State.NORMAL, DesiredState.RUNNING)
    owner.node_has_tables(lives=True)
    owner.tick()
    assert owner.calm
    event = DdlEvent(position=at(150), type=DdlType.DROP, db="shop", table=TableName("shop", "a"), id=A)
    scope = Scope(tables=frozenset({A}), names=frozenset({TableName("dr", "a")}))
    owner.has(LAYOUT.ddl(FEED, event.position), DdlRecord(event=event, scope=scope, seen_at=NOW))
    for _ in range(3):
        owner.tick()
        assert not owner.calm


def test_a_sink_of_messages_is_told_an_index_before_any_mark_that_is_past_it(owner: Owner) -> None:
    """A reader never looks again at what is before a mark."""
    owner.is_(State.NORMAL, DesiredState.RUNNING)
    made = Document.of({"indexes": [{"v": 2, "key": {"g": 1}, "name": "g_1"}]})
    name, kind = TableName("shop", "a"), DdlType.CREATE_INDEXES
    event = DdlEvent(position=at(250), type=kind, db="shop", table=name, id=A, description=made)

    def subscribe(*_: object) -> SimpleNamespace:
        shown = [Taken(events=(event,), resolved=at(300), sighting=None, error=None)]
        return SimpleNamespace(take=lambda: shown.pop() if shown else _nothing().take(), close=lambda: None)

    owner.subscribe = subscribe
    owner.tick()
    assert owner.woken.wait(60), "it observes"
    owner.tick()
    stored = owner.server.get(LAYOUT.ddl(FEED, event.position))
    assert stored is not None
    assert not decode(DdlRecord, stored).background
