"""The owner's decision against a scripted world: a source, a target, processors and etcd as plain values.

Hypothesis chooses the order of all steps: the events at the source, the progress of the watch and the processors, the moments
when jobs finish, and the action after which the owner dies. After every step:

    I1  a table's rows and DDLs reach the target in stream order
    I5  each DDL reaches the target once
    I7  at the end, with all processes alive, everything has been replicated that does not wait for a user; and then, everything

The target refuses rows and DDLs, and users stop and resume tables. A table that the source drops while it is stopped ends as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import cast

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import Filter
from changefeed.config.tables.routes import Routes
from changefeed.documents.document import Document
from changefeed.errors import DdlRefused, RowRejected
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, DdlState, Observation
from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedInfo, TableVerb
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.table import TableId, TableName, TableSchema
from owner.ddl import barrier
from owner.ddl.execution import Applied, Apply, DdlProgress, Failed, Observe, Observed, RecordExecuting, Refuse, Running
from owner.ddl.scope import DdlClassifier
from owner.ddl.stragglers import StoredStraggler, known_tables, wait
from owner.decision.decide import OwnerAction, PublishBarrier, PublishStatus, RecordDdls, ReleaseDdls, decide
from owner.decision.state import ChangefeedState
from owner.tables.progress import TableProgress
from owner.tables.wishes import Forget, Mark, Resume, TableWishes
from schema_store.versions import SchemaVersions
from tests.invariants import check_barrier, check_status

NOW = datetime(2026, 11, 21, tzinfo=UTC)
START = Position(ClusterTime(100, 1))
_MOST_ROUNDS = 30
OUTSIDE = "private"
NAMES = ["a", "b", "c", OUTSIDE]


CLASSIFIER = DdlClassifier(
    filter=Filter.model_validate({"tables": ["*.*", f"!*.{OUTSIDE}"]}), routes=Routes(()), background_indexes=True
)


@dataclass
class Source:
    """The source's events, in order. Some events share a cluster time and differ only in their token."""

    clock: int = 1
    ddls: list[DdlEvent] = field(default_factory=list)
    rows: list[tuple[Position, TableId]] = field(default_factory=list)
    names: dict[str, TableId] = field(default_factory=dict)
    created: int = 0
    resolved: Position = START
    """The watch's promise: no more events happen below it."""

    def ddl(self, type: DdlType, name: str, *, same_time: bool = False, **more: object) -> DdlEvent:
        event = DdlEvent(
            position=self.place(same_time),
            type=type,
            db="shop",
            table=TableName("shop", name),
            **more,  # type: ignore[arg-type]  # test-side keywords
        )
        self.ddls.append(event)
        return event

    def place(self, same_time: bool) -> Position:
        last = max((event.position for event in self.ddls), default=START)
        last = max([last, *(position for position, _ in self.rows[-1:])])
        self.clock += 1
        if same_time and last.token and last >= self.resolved:
            return Position(last.ts, f"{self.clock:08X}")
        return Position(ClusterTime(100, self.clock), f"{self.clock:08X}")

    @property
    def end(self) -> Position:
        return Position(ClusterTime(100, self.clock + 1))


@dataclass
class Etcd:
    status: ChangefeedStatus
    barrier: Barrier | None = None
    records: dict[Position, DdlRecord] = field(default_factory=dict)
    checkpoints: dict[TableId, Position] = field(default_factory=dict)
    failed: dict[TableId, ErrorReport] = field(default_factory=dict)
    stragglers: dict[TableId, StoredStraggler] = field(default_factory=dict)
    obeyed: dict[TableId, int] = field(default_factory=dict)
    requests: dict[TableId, TableVerb] = field(default_factory=dict)
    revision: int = 0

    def versions(self) -> SchemaVersions:
        done = [record.event for record in self.records.values() if not record.open]
        return SchemaVersions().apply_all(done)


@dataclass
class Target:
    rows: set[tuple[Position, TableId]] = field(default_factory=set)
    ddls: list[Position] = field(default_factory=list)


@dataclass(frozen=True)
class Known:
    etcd: Etcd

    def of(self, table: TableId) -> Position | None:
        return self.etcd.checkpoints.get(table)

    def least(self, but: AbstractSet[TableId] = frozenset()) -> Position | None:
        places = {schema.id: schema.valid_from for schema in self._unassigned()} | self.etcd.checkpoints
        return min((place for table, place in places.items() if table not in but), default=None)

    def obeys(self, table: TableId, stop_rev: int) -> bool:
        return table not in self.etcd.checkpoints or self.etcd.obeyed.get(table, 0) >= stop_rev

    def failed(self, run: int) -> Iterable[tuple[TableId, NodeId, ErrorReport]]:
        return [(table, NodeId("n1"), error) for table, error in self.etcd.failed.items()]

    def retried(self, run: int) -> Iterable[tuple[TableId, NodeId, ErrorReport]]:
        return []

    def _unassigned(self) -> list[TableSchema]:
        return [
            schema
            for schema in self.etcd.versions().tables_at(Position(ClusterTime(2**32 - 1, 0)))
            if schema.id not in self.etcd.checkpoints
        ]


class World(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.source = Source()
        self.target = Target()
        configuration = Configuration.parse({"id": "f", "source": "mongodb://s", "sink": "mongodb://t"})
        self.info = ChangefeedInfo(configuration=configuration, created_at=NOW)
        self.etcd = Etcd(ChangefeedStatus(checkpoint=START, resolved=START, run=1, info_version=1, epoch=1))
        self.epoch = 1
        self.excused: set[Position] = set()
        """DDLs that the checkpoint passed while they waited for a user."""
        self.given_up: set[TableId] = set()
        """Tables that ended while they were stopped: what rows they have does not matter."""
        self.elect()

    def elect(self) -> None:
        """A new owner knows only what etcd contains."""
        self.epoch += 1
        self.executions: dict[Position, DdlProgress] = {}
        self.jobs: dict[Position, Observe | Apply] = {}
        events = [record.event for record in self.etcd.records.values()]
        self.tip = SchemaVersions().apply_all(events)
        published = self.etcd.barrier.position if self.etcd.barrier else START
        self.watched = max(published, self.etcd.status.resolved or START)
        self.seen_from = self.watched

    # events at the source

    @rule(name=st.sampled_from(NAMES), same_time=st.booleans())
    def create(self, name: str, same_time: bool) -> None:
        if name not in self.source.names:
            self.source.created += 1
            id = TableId(f"{self.source.created:032x}")
            self.source.names[name] = id
            self.source.ddl(DdlType.CREATE, name, id=id, same_time=same_time)

    @rule(name=st.sampled_from(NAMES), same_time=st.booleans())
    def drop(self, name: str, same_time: bool) -> None:
        if name in self.source.names:
            self.source.ddl(DdlType.DROP, name, id=self.source.names.pop(name), same_time=same_time)

    @rule(old=st.sampled_from(NAMES[:3]), new=st.sampled_from(NAMES[:3]), same_time=st.booleans())
    def rename(self, old: str, new: str, same_time: bool) -> None:
        if old in self.source.names and old != new:
            replaced = self.source.names.pop(new, None)
            id = self.source.names.pop(old)
            self.source.names[new] = id
            to = TableName("shop", new)
            self.source.ddl(DdlType.RENAME, old, id=id, renamed_to=to, drop_target=replaced, same_time=same_time)

    @rule(name=st.sampled_from(NAMES), unique=st.booleans(), index=st.integers(0, 2))
    def create_index(self, name: str, unique: bool, index: int) -> None:
        if name in self.source.names:
            specification = {"v": 2, "key": {f"f{index}": 1}, "name": f"f{index}"} | (
                {"unique": True} if unique else {}
            )
            description = Document.of({"indexes": [specification]})
            self.source.ddl(DdlType.CREATE_INDEXES, name, id=self.source.names[name], description=description)

    @rule()
    def drop_database(self) -> None:
        for name in list(self.source.names):
            self.drop(name, same_time=False)
        event = DdlEvent(position=self.source.place(False), type=DdlType.DROP_DATABASE, db="shop")
        self.source.ddls.append(event)

    @rule(name=st.sampled_from(NAMES), same_time=st.booleans())
    def write(self, name: str, same_time: bool) -> None:
        if name in self.source.names:
            self.source.rows.append((self.source.place(same_time), self.source.names[name]))

    # the owner's inputs and steps

    @rule(whole=st.booleans())
    def watch(self, whole: bool) -> None:
        ahead = [event.position for event in self.source.ddls if event.position > self.watched]
        self.watched = self.source.end if whole or not ahead else Position(ahead[0].ts)
        self.source.resolved = self.watched

    @rule(actions=st.integers(0, 3), shown=st.booleans())
    def owner_dies_in_a_tick(self, actions: int, shown: bool) -> None:
        if shown:
            self.watch(whole=True)
        self.tick(actions)
        self.elect()

    @rule()
    def owner_ticks(self) -> None:
        self.tick(None)

    @rule(rounds=st.integers(1, 6))
    def owner_works(self, rounds: int) -> None:
        """Enough rounds to complete some DDLs, so that the next rules meet DDLs at every stage."""
        for _ in range(rounds):
            self.watch(whole=True)
            self.tick(None)
            for position in list(self.jobs):
                self.finish(position)

    def tick(self, prefix: int | None) -> None:
        arrived = [event for event in self.source.ddls if self.seen_from <= event.position < self.watched]
        state = ChangefeedState(
            epoch=self.epoch,
            info=self.info,
            status=self.etcd.status,
            barrier=self.etcd.barrier,
            records=dict(self.etcd.records),
            node_errors=(),
            wishes=TableWishes(
                stragglers=dict(self.etcd.stragglers),
                requests=dict(self.etcd.requests),
                replicated=self.etcd.checkpoints.keys() | {schema.id for schema in Known(self.etcd)._unassigned()},
            ),
            checkpoints=cast("TableProgress", Known(self.etcd)),
            tip=self.tip,
            arrived=arrived,
            resolved=self.watched,
            executions=dict(self.executions),
        )
        decision = decide(state, CLASSIFIER, now=NOW, monotonic=0.0, random=Random(1))
        for action in decision.actions[:prefix]:
            self.carry_out(action)
        if prefix is None:
            assert isinstance(decision.tip, SchemaVersions)
            self.tip = decision.tip

    def carry_out(self, action: OwnerAction) -> None:
        match action:
            case RecordDdls(records):
                self.etcd.records |= {record.position: record for record in records}
            case PublishBarrier(published):
                self.etcd.barrier = published
            case ReleaseDdls(records, published, stragglers):
                for table, straggler in stragglers.items():
                    self.mark(table, straggler)
                self.etcd.records |= {record.position: record for record in records}
                self.etcd.barrier = published
                for record in records:
                    self.executions.pop(record.position, None)
                    self.copy(record)
                self.end_dropped_tables()
            case RecordExecuting(record) | Refuse(record):
                self.etcd.records[record.position] = record
                self.executions.pop(record.position, None)
            case Mark() | Resume() | Forget():
                self.wish(action)
            case PublishStatus(status):
                check_status(self.etcd.status, status)
                self.etcd.status = status
            case Observe(record) | Apply(record):
                self.jobs[record.position] = action
                self.executions[record.position] = Running()

    def copy(self, record: DdlRecord) -> None:
        """A table that is copied anew has all rows of before. If it was stopped when it left, it went without them."""
        if record.event.type is DdlType.ENTER:
            rows = self.source.rows
            self.target.rows |= {(at, id) for at, id in rows if id == record.event.id and at < record.position}

    def mark(self, table: TableId, straggler: Straggler) -> None:
        self.etcd.revision += 1
        self.etcd.stragglers[table] = StoredStraggler(straggler, self.etcd.revision)

    def stopped(self, table: TableId) -> bool:
        return table in self.etcd.stragglers and self.etcd.stragglers[table].record.stopped

    def wish(self, wished: Mark | Resume | Forget) -> None:
        match wished:
            case Mark(table, straggler, answers):
                self.mark(table, straggler)
                if answers:
                    self.etcd.requests.pop(table, None)
            case Resume(table, goes_on, records):
                if goes_on is not None:
                    self.mark(table, goes_on)
                self.etcd.requests.pop(table, None)
                self.etcd.records |= {record.position: record for record in records}
            case Forget(requests=requests, stragglers=over):
                for table in requests:
                    self.etcd.requests.pop(table, None)
                for table in over:
                    del self.etcd.stragglers[table]

    def end_dropped_tables(self) -> None:
        living = {schema.id for schema in self.etcd.versions().tables_at(Position(ClusterTime(2**32 - 1, 0)))}
        self.etcd.checkpoints = {id: at for id, at in self.etcd.checkpoints.items() if id in living}

    @precondition(lambda self: self.jobs)
    @rule(choice=st.randoms(use_true_random=False), heard=st.booleans())
    def worker_finishes(self, choice: Random, heard: bool) -> None:
        self.finish(choice.choice(sorted(self.jobs)))
        if not heard:
            self.elect()

    @precondition(lambda self: any(isinstance(job, Apply) for job in self.jobs.values()))
    @rule(choice=st.randoms(use_true_random=False))
    def target_refuses_a_ddl(self, choice: Random) -> None:
        position = choice.choice(sorted(at for at, job in self.jobs.items() if isinstance(job, Apply)))
        del self.jobs[position]
        if position not in self.target.ddls:
            self.executions[position] = Failed(DdlRefused("not like this"), NOW, 0.0)
        else:
            self.executions[position] = Applied("")

    @precondition(lambda self: self.etcd.checkpoints)
    @rule(choice=st.randoms(use_true_random=False))
    def target_refuses_a_row(self, choice: Random) -> None:
        table = choice.choice(sorted(self.etcd.checkpoints))
        if not self.stopped(table):
            self.etcd.failed[table] = ErrorReport.of(RowRejected("not like this"), NOW)

    @rule()
    def nodes_obey_stops(self) -> None:
        for table, stored in self.etcd.stragglers.items():
            if stored.record.stopped:
                self.etcd.obeyed[table] = stored.rev
                self.etcd.failed.pop(table, None)

    @precondition(lambda self: self.etcd.checkpoints)
    @rule(choice=st.randoms(use_true_random=False), verb=st.sampled_from(TableVerb))
    def user_asks(self, choice: Random, verb: TableVerb) -> None:
        self.etcd.requests[choice.choice(sorted(self.etcd.checkpoints))] = verb

    def finish(self, position: Position) -> None:
        job = self.jobs.pop(position)
        if isinstance(job, Apply):
            self.apply(job.record)
        self.executions[position] = Applied("") if isinstance(job, Apply) else Observed(Observation(tables={}))

    def apply(self, record: DdlRecord) -> None:
        if record.position in self.target.ddls:
            return
        for table in record.scope.tables:
            if self.stopped(table) and self.etcd.checkpoints.get(table) != record.position:
                assert self.ends_after(table, record.position), f"{record.event} without the rows of {table}"
                assert Known(self.etcd).obeys(table, self.etcd.stragglers[table].rev), (
                    f"{record.event} beside rows of {table}"
                )
                self.given_up.add(table)
                continue
            applied = {position for position, id in self.target.rows if id == table}
            due = {position for position, id in self.source.rows if id == table and position < record.position}
            assert due <= applied, f"I1: {record.event} before rows {due - applied}"
            early = {position for position in applied if position >= record.position}
            assert record.background or not early, f"I1: rows {early} before {record.event}"
        earlier = [other for other in self.etcd.records.values() if other.position < record.position]
        for other in earlier:
            if other.scope.meets(record.scope) and other.state is not DdlState.SKIPPED:
                assert other.position in self.target.ddls, f"I5: {record.event} before {other.event}"
        self.target.ddls.append(record.position)

    def ends_after(self, table: TableId, position: Position) -> bool:
        """Whether the source has dropped the table, or it has left to be copied anew, there or later."""
        left = [record.event for record in self.etcd.records.values() if record.event.type is DdlType.LEAVE]
        return any(
            event.drop_target == table or (event.type in (DdlType.DROP, DdlType.LEAVE) and event.id == table)
            for event in (*self.source.ddls, *left)
            if event.position >= position
        )

    # steps of the processors

    @rule()
    def assign(self) -> None:
        for schema in Known(self.etcd)._unassigned():
            self.etcd.checkpoints[schema.id] = schema.valid_from

    @rule(choice=st.randoms(use_true_random=False), whole=st.booleans())
    def replicate(self, choice: Random, whole: bool) -> None:
        if self.etcd.barrier is None or not self.etcd.checkpoints:
            return
        table = choice.choice(sorted(self.etcd.checkpoints))
        self.advance(table, whole)

    def advance(self, table: TableId, whole: bool) -> None:
        assert self.etcd.barrier is not None
        if self.stopped(table) or table in self.etcd.failed:
            return
        start, end = self.etcd.checkpoints[table], self.etcd.barrier.of(table)
        due = sorted(position for position, id in self.source.rows if id == table and start <= position < end)
        if due and not whole:
            end = due[0]
            due = []
        for position in due:
            self.target.rows.add((position, table))
        self.etcd.checkpoints[table] = max(start, end)

    def everything(self) -> object:
        return (
            list(self.target.ddls),
            set(self.target.rows),
            self.etcd.status,
            self.etcd.barrier,
            dict(self.etcd.records),
            dict(self.etcd.checkpoints),
            dict(self.etcd.stragglers),
            dict(self.etcd.requests),
            dict(self.etcd.obeyed),
            dict(self.executions),
        )

    # invariants

    @invariant()
    def gates_hold(self) -> None:
        if self.etcd.barrier is not None:
            end, records, places = self.etcd.barrier.position, self.etcd.records.values(), self.etcd.checkpoints.get
            standing = wait(self.etcd.stragglers, Known(self.etcd).obeys, records, end, places)
            gate = barrier.decide(end, records, places, standing)
            check_barrier(gate, records, places, standing)

    @invariant()
    def the_checkpoint_passes_no_table_and_no_open_ddl(self) -> None:
        checkpoint = self.etcd.status.checkpoint
        assert checkpoint is not None
        stragglers = self.etcd.stragglers
        for table, place in self.etcd.checkpoints.items():
            assert checkpoint <= place or table in stragglers, f"{table} at {place} is passed, and nothing says so"
            assert table not in stragglers or stragglers[table].record.at <= place, (
                f"{table} at {place} is not that far"
            )
        for schema in Known(self.etcd)._unassigned():
            assert checkpoint <= schema.valid_from or schema.id in stragglers, f"new {schema.id} is passed"
        waiting, _ = self.waiting_for_a_user()
        for record in self.etcd.records.values():
            passed = record.open and record.position < checkpoint
            assert not passed or record.position in waiting | self.excused, f"{record.event} is passed"
            self.excused |= {record.position} if passed else set()

    def waiting_for_a_user(self) -> tuple[set[Position], set[TableId]]:
        """The DDLs and the tables that wait for a user's act or for its consequences: found without the decision's own means."""
        waiting: list[DdlRecord] = []
        stragglers = set(self.etcd.stragglers)
        for record in sorted(self.etcd.records.values(), key=lambda record: record.position):
            if record.open and (
                record.refused is not None
                or any(record.scope.meets(other.scope) for other in waiting)
                or record.scope.tables & stragglers
            ):
                waiting.append(record)
        return {record.position for record in waiting}, stragglers

    @invariant()
    def each_ddl_once(self) -> None:
        assert len(self.target.ddls) == len(set(self.target.ddls)), "I5: a DDL was applied twice"

    def teardown(self) -> None:
        if not hasattr(self, "source"):
            return
        self.settle()
        self.check_who_waits()
        for _ in range(_MOST_ROUNDS):
            if self.waiting_for_a_user() == (set(), set()):
                break
            self.ask_to_resume_everything()
            self.settle()
        self.check_what_arrived()
        assert not [record for record in self.etcd.records.values() if record.open], "I7: a DDL is stuck"
        assert self.etcd.status.checkpoint == self.source.end, "I7: the checkpoint did not reach the end"

    def settle(self) -> None:
        """The source's time goes on meanwhile: DDLs of Sluice's own stand behind all that was seen."""
        for _ in range(_MOST_ROUNDS):
            self.source.clock += 2
            self.watched = self.source.end
            for _ in range(20 + 6 * len(self.source.ddls)):
                if not self.anything_goes_on():
                    break
            if all(record.position < self.watched for record in self.etcd.records.values() if record.open):
                break

    def anything_goes_on(self) -> bool:
        before = self.everything()
        self.tick(None)
        self.nodes_obey_stops()
        self.assign()
        for table in list(self.etcd.checkpoints):
            self.advance(table, whole=True)
        for position in list(self.jobs):
            self.finish(position)
        return before != self.everything()

    def check_who_waits(self) -> None:
        waiting, standing = self.waiting_for_a_user()
        for record in self.etcd.records.values():
            assert not record.open or record.position in waiting, f"I7: {record.event} waits for nobody"
        for table, place in self.etcd.checkpoints.items():
            assert place >= self.watched or table in standing, f"I7: {table} is at {place} and stands still for nobody"

    def ask_to_resume_everything(self) -> None:
        refused = [record for record in self.etcd.records.values() if record.open and record.refused is not None]
        touching = {id for record in refused for id in known_tables(record)}
        self.etcd.requests |= dict.fromkeys({*self.etcd.stragglers, *touching}, TableVerb.RESUME)

    def check_what_arrived(self) -> None:
        inside = {id for event in self.source.ddls if (id := event.id) and event.table and event.table.coll != OUTSIDE}
        inside -= self.given_up
        found = {(at, id) for at, id in self.target.rows if id in inside}
        assert found == {(at, id) for at, id in self.source.rows if id in inside}, "I7: rows are missing"
        due = {event.position for event in self.source.ddls if event.id in inside}
        skipped = [
            record
            for record in self.etcd.records.values()
            if record.state is DdlState.SKIPPED and not record.event.type.own  # these change nothing at the target
        ]
        assert due - {record.position for record in skipped} <= set(self.target.ddls), "I5: a DDL was lost"
        for record in skipped:
            assert record.event.id is not None
            assert self.ends_after(record.event.id, record.position), "a DDL was skipped for nothing"


World.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
TestWorld = World.TestCase


def test_a_table_that_stops_before_it_leaves_to_be_copied_anew_has_all_rows_in_the_end() -> None:
    world = World()
    world.begin()
    world.create(name="a", same_time=False)
    world.owner_works(rounds=5)
    world.assign()
    world.write(name="a", same_time=False)
    world.user_asks(choice=Random(1), verb=TableVerb.RECOPY)
    world.write(name="a", same_time=False)
    world.owner_works(rounds=5)
    assert [record.event.type for record in world.etcd.records.values() if record.open] == [
        DdlType.LEAVE,
        DdlType.ENTER,
    ]
    world.target_refuses_a_row(choice=Random(1))
    world.owner_dies_in_a_tick(actions=2, shown=False)
    world.write(name="a", same_time=False)
    world.teardown()
