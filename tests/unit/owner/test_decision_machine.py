"""The owner's decision against a scripted world: a source, a target, processors and etcd as plain values.

Hypothesis chooses the order of all steps: the events at the source, the progress of the watch and the processors, the moments
when jobs finish, and the action after which the owner dies. After every step:

    I1  a table's rows and DDLs reach the target in stream order
    I5  each DDL reaches the target once
    I7  at the end, with all processes alive, everything has been replicated
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import Disposition
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records import (
    Barrier,
    ChangefeedInfo,
    ChangefeedStatus,
    DdlRecord,
    Observation,
)
from changefeed.table import TableId, TableName, TableSchema
from owner.ddl import barrier
from owner.ddl.scope import DdlClassifier
from owner.ddl.steps import Applied, Apply, DdlProgress, Observe, Observed, RecordExecuting, Running
from owner.decision import (
    ChangefeedState,
    OwnerAction,
    PublishBarrier,
    PublishStatus,
    RecordDdls,
    ReleaseDdls,
    check_invariants,
    decide,
)
from schema_store.versions import SchemaVersions

NOW = datetime(2026, 11, 21, tzinfo=UTC)
START = Position(ClusterTime(100, 1))
OUTSIDE = "private"
NAMES = ["a", "b", "c", OUTSIDE]


class Everything:
    """A filter that accepts all names but one."""

    def wants_table(self, name: TableName) -> bool:
        return name.coll != OUTSIDE

    def ddl(self, event: DdlEvent) -> Disposition | None:
        inside = [name for name in (event.table, event.renamed_to) if name is not None and name.coll != OUTSIDE]
        return Disposition.APPLY if inside or event.type is DdlType.DROP_DATABASE else None


class SameName:
    def origins(self, target: TableName) -> frozenset[TableName]:
        return frozenset({target})

    def target(self, name: TableName) -> TableName:
        return name


CLASSIFIER = DdlClassifier(filter=Everything(), routes=SameName(), background_indexes=True)


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

    @property
    def least(self) -> Position | None:
        births = [schema.valid_from for schema in self._unassigned()]
        return min([*self.etcd.checkpoints.values(), *births], default=None)

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
            reports=(),
            checkpoints=Known(self.etcd),
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
            case ReleaseDdls(records, published):
                self.etcd.records |= {record.position: record for record in records}
                self.etcd.barrier = published
                for record in records:
                    self.executions.pop(record.position, None)
                self.end_dropped_tables()
            case RecordExecuting(record):
                self.etcd.records[record.position] = record
                self.executions.pop(record.position, None)
            case PublishStatus(status):
                check_invariants(self.etcd.status, status)
                self.etcd.status = status
            case Observe(record) | Apply(record):
                self.jobs[record.position] = action
                self.executions[record.position] = Running()

    def end_dropped_tables(self) -> None:
        living = {schema.id for schema in self.etcd.versions().tables_at(Position(ClusterTime(2**32 - 1, 0)))}
        self.etcd.checkpoints = {id: at for id, at in self.etcd.checkpoints.items() if id in living}

    @precondition(lambda self: self.jobs)
    @rule(choice=st.randoms(use_true_random=False), heard=st.booleans())
    def worker_finishes(self, choice: Random, heard: bool) -> None:
        self.finish(choice.choice(sorted(self.jobs)))
        if not heard:
            self.elect()

    def finish(self, position: Position) -> None:
        job = self.jobs.pop(position)
        if isinstance(job, Apply):
            self.apply(job.record)
        self.executions[position] = Applied("") if isinstance(job, Apply) else Observed(Observation(tables={}))

    def apply(self, record: DdlRecord) -> None:
        if record.position in self.target.ddls:
            return
        for table in record.scope.tables:
            applied = {position for position, id in self.target.rows if id == table}
            due = {position for position, id in self.source.rows if id == table and position < record.position}
            assert due <= applied, f"I1: {record.event} before rows {due - applied}"
            early = {position for position in applied if position >= record.position}
            assert record.background or not early, f"I1: rows {early} before {record.event}"
        earlier = [other for other in self.etcd.records.values() if other.position < record.position]
        for other in earlier:
            if other.scope.meets(record.scope):
                assert other.position in self.target.ddls, f"I5: {record.event} before {other.event}"
        self.target.ddls.append(record.position)

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
            dict(self.executions),
        )

    # invariants

    @invariant()
    def gates_hold(self) -> None:
        if self.etcd.barrier is not None:
            gate = barrier.decide(self.etcd.barrier.position, self.etcd.records.values(), self.etcd.checkpoints.get)
            barrier.check_invariants(gate, self.etcd.records.values(), self.etcd.checkpoints.get)

    @invariant()
    def the_checkpoint_passes_no_table_and_no_open_ddl(self) -> None:
        checkpoint = self.etcd.status.checkpoint
        assert checkpoint is not None
        least = Known(self.etcd).least
        assert least is None or checkpoint <= least
        assert all(checkpoint <= record.position for record in self.etcd.records.values() if record.open)

    @invariant()
    def each_ddl_once(self) -> None:
        assert len(self.target.ddls) == len(set(self.target.ddls)), "I5: a DDL was applied twice"

    def teardown(self) -> None:
        if not hasattr(self, "source"):
            return
        self.watched = self.source.end

        def settled() -> bool:
            before = self.everything()
            self.tick(None)
            self.assign()
            for table in list(self.etcd.checkpoints):
                self.advance(table, whole=True)
            for position in list(self.jobs):
                self.finish(position)
            return before == self.everything()

        for _ in range(20 + 6 * len(self.source.ddls)):
            if settled():
                break
        inside = {id for event in self.source.ddls if (id := event.id) and event.table and event.table.coll != OUTSIDE}
        assert self.target.rows == {(at, id) for at, id in self.source.rows if id in inside}, "I7: rows are missing"
        due = {event.position for event in self.source.ddls if event.id in inside}
        assert due <= set(self.target.ddls), "I5: a DDL was lost"
        assert not [record for record in self.etcd.records.values() if record.open], "I7: a DDL is stuck"
        assert self.etcd.status.checkpoint == self.source.end, "I7: the checkpoint did not reach the end"


World.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
TestWorld = World.TestCase
