"""`Cluster`: nodes with the product's own session, mirror, membership, owner, processor and pipeline, on a simulated network.

Everything outside the product is simulated: etcd, the source, the target, and Spark, which runs tasks in worker processes that may outlive
their node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import owner.etcd_view
import processor.processor
from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.documents.document import REFERENCE, Document
from changefeed.errors import CoordinationFull, FencedError, PipelineUnavailable, RetryableError
from changefeed.records.node import NodeId, NodeRecord, Role
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, DesiredState, MoveRequest
from coordination.decoded import Decoded
from coordination.etcd.protocol import Change, EtcdConfig, KeyValue, Op, Put
from coordination.layout import Layout, child, decode, encode
from coordination.mirror import Mirror
from coordination.session import open_session
from coordination.view import Replica
from node.membership import HealthPublisher, Membership, owner_candidate
from owner.decision.capture_change import obstacle
from processor.job_runs import JobSetup
from processor.lanes.lane_plan import LaneLimits
from processor.lanes.windows import WindowLimits
from processor.spark.pipeline import Pipeline
from processor.spark.runner import Group
from processor.spark.spark_watch import SparkWatch
from processor.spark.stay_plan import StayLimits
from processor.spark.stays import Stays
from processor.task.worker_resources import WorkerResources
from tests.memory_etcd import MemoryEtcd
from tests.simulation.clockwork import substitutes
from tests.simulation.clockwork.machine import Machine, Process, Thread
from tests.simulation.clockwork.network import EtcdLine, Network
from tests.simulation.clockwork.telephone import Exchange, SimulatedSwitchboard
from tests.simulation.judgement.agreement import DATABASES
from tests.simulation.messages.broker import ModelBroker
from tests.simulation.messages.store import ModelStore
from tests.simulation.source.server import SourceServer
from tests.simulation.source.sharded.cluster import ClusterSource
from tests.simulation.target.server import TargetServer

TTL = timedelta(seconds=4)
BUDGET = timedelta(seconds=4)
LOOK_EVERY = timedelta(seconds=1)
LAYOUT = Layout("simulated")
FEED = ChangefeedId("feed")
_WINDOWS = WindowLimits(slice_seconds=1)
_STAYS = 0.7
"""The part of the runs in which lanes have staying tasks."""
_STAY_LIMITS = StayLimits(follows=1.0, idle=2.0, longest=8.0, without=3.0)
_LANES = LaneLimits(copy_follows_after=-1, copy_divides_after=0)


class ObservedEtcd(MemoryEtcd):
    """Reports each revision as it is written, before any client can see it."""

    observer: Callable[[Sequence[Change]], None] = staticmethod(lambda changes: None)

    def advance(self, now: timedelta) -> None:
        """Called at every change of time, so it must be cheap. There are few leases, and usually none has expired."""
        self._now = now
        if any(lease.expires_at <= now for lease in self._leases.values()):
            super().advance(now)

    def _write(self, ops: Sequence[Op]) -> None:
        before = self.revision
        super()._write(ops)
        if self.revision > before:
            self.observer(self._history[-1].changes)


class Cluster:
    def __init__(self, machine: Machine, *, source_version: tuple[int, int] | None) -> None:
        """`source_version`: of a replica set. None: the source is a sharded cluster."""
        self.machine = machine
        self.network = Network(machine)
        self.etcd = ObservedEtcd()
        self.source: SourceServer | ClusterSource = (
            SourceServer(machine, version=source_version)
            if source_version is not None
            else ClusterSource(machine, DATABASES)
        )
        self.target = TargetServer(machine, self.network)
        self.store = ModelStore()
        """Where a sink of files has them."""
        self.broker = ModelBroker()
        self.broker.refuses = lambda topic: topic.rpartition(".")[2] in self.target.refuses_rows_of
        self.nodes: dict[str, Node] = {}
        self.resources_by_process: dict[Process, WorkerResources] = {}
        self.exchange = Exchange(self.network)
        self.stays = machine.random.random() < _STAYS
        self.judge: Any = None
        self.decoder = Decoder(self.etcd)
        self.broken_sparks: set[str] = set()
        """The nodes whose Spark runs no jobs."""
        self.reached: Callable[[str], None] = lambda point: None
        """Called when a process reaches one of the product's failpoints."""
        self.capture_may_change = False
        self._desired = DesiredState.RUNNING
        machine.on_time = lambda now: self.etcd.advance(timedelta(seconds=now))

    def line(self) -> EtcdLine:
        return EtcdLine(self.etcd, self.network, self.process)

    @property
    def process(self) -> Process:
        current = self.machine.current
        assert current is not None
        return current.process

    def start(self, name: str, roles: frozenset[Role]) -> None:
        self.nodes[name] = Node(self, name, roles)

    def ask_to_move(self, random: Random) -> None:
        """Requests to move a random table to a random node that etcd knows."""
        nodes = [kv.key for kv in self.etcd.range(LAYOUT.nodes).items]
        tables = sorted(self.source.by_id)
        if nodes and tables and self.etcd.get(LAYOUT.status(FEED)):
            request = MoveRequest(node=NodeId(child(random.choice(nodes), LAYOUT.nodes)))
            self.put(LAYOUT.move(FEED, self.judge.known_as(random.choice(tables))), encode(request))

    def put(self, key: str, value: bytes) -> None:
        """Writes as a user would, who tries again while etcd is full."""
        try:
            self.etcd.txn((), (Put(key, value),))
        except CoordinationFull:
            self.machine.after(1.0, partial(self.put, key, value))

    def create(self, key: str, value: bytes) -> None:
        """As `put`, but never over what is there: an attempt that was refused may have been carried out, and the user may have gone on."""
        if self.etcd.get(key) is not None:
            return
        try:
            self.etcd.txn((), (Put(key, value),))
        except CoordinationFull:
            self.machine.after(1.0, partial(self.create, key, value))

    def ask_for(self, desired: DesiredState) -> None:
        """Pauses or resumes as a user would. While etcd is full, it tries again with the state that is desired by then."""
        self._desired = desired
        self._ask()

    def _ask(self) -> None:
        found = self.etcd.get(LAYOUT.info(FEED))
        info = decode(ChangefeedInfo, found) if found is not None else None
        if info is None or info.desired is self._desired:
            return
        self.machine.note("user", f"asks for the changefeed to be {self._desired}")
        wanted = replace(info, desired=self._desired, version=info.version + 1)
        try:
            self.etcd.txn((), (Put(LAYOUT.info(FEED), encode(wanted)),))
        except CoordinationFull:
            self.machine.after(1.0, self._ask)

    def change_capture(self) -> None:
        """Changes the capture as a user of a paused changefeed would. It is refused if the positions do not allow it."""
        replica = Replica(self.etcd.connect())
        replica.reset(self.etcd.range(LAYOUT.root))
        known = owner.etcd_view.read(Decoded(LAYOUT), replica.view(), LAYOUT, FEED)
        standing = known.standing() if known is not None else None
        if known is None or known.status is None or standing is None:
            return
        if known.status.info_version != known.info.version or obstacle(standing) is not None:
            self.machine.count("user: another capture is refused")
            return
        other = Capture.CHANGE_STREAM if known.info.capture is Capture.OPLOG else Capture.OPLOG
        self.machine.count(f"user: capture changed to {other}")
        self.machine.note("user", f"has it read by {other} from {standing.at} on")
        changed = replace(known.info, capture=other, version=known.info.version + 1)
        try:
            self.etcd.txn((), (Put(LAYOUT.info(FEED), encode(changed)),))
        except CoordinationFull:
            self.machine.count("user: another capture is refused, etcd is full")

    def widen(self, configuration: Mapping[str, Any]) -> None:
        """Updates options as a user would, whether the changefeed runs or not."""
        found = self.etcd.get(LAYOUT.info(FEED))
        if found is None:  # etcd was full when it was created
            self.machine.after(1.0, partial(self.widen, configuration))
            return
        info = decode(ChangefeedInfo, found)
        self.machine.note("user", f"asks for {configuration['filter']}")
        present = info.configuration.model_dump(mode="json", exclude_unset=True)
        wanted = Configuration.parse({**present, **configuration})
        try:
            self.etcd.txn(
                (), (Put(LAYOUT.info(FEED), encode(replace(info, configuration=wanted, version=info.version + 1))),)
            )
        except CoordinationFull:
            self.machine.after(1.0, partial(self.widen, configuration))

    @property
    def worker_resources(self) -> WorkerResources:
        """The resources of the calling worker process."""
        return self.resources_by_process.setdefault(self.process, WorkerResources())


class Node:
    """A server process, and the workers that Spark starts for it."""

    def __init__(self, cluster: Cluster, name: str, roles: frozenset[Role]) -> None:
        self.cluster = cluster
        self.name = name
        self.roles = roles
        self.stopping = False
        self.watch: SparkWatch | None = None
        self.process = cluster.machine.process(name)
        self.spark = Spark(cluster, self)
        self.process.on_death.append(self.spark.orphaned)
        cluster.machine.spawn(self.process, "main", self._run)

    @property
    def alive(self) -> bool:
        return self.process.alive

    def _run(self) -> None:
        """Runs the node like `NodeProcess`."""
        etcd = self.cluster.line()
        mirror = Mirror(etcd, LAYOUT.root, apart=LAYOUT.apart, end=LAYOUT.unmirrored)
        mirror.start()
        watch = self.watch = SparkWatch(self.spark.probe)
        watch.start()
        stays = Stays(self.spark, _STAY_LIMITS, monotonic=substitutes.monotonic) if self.cluster.stays else None  # type: ignore[arg-type]
        while not self.stopping:
            try:
                session, store = open_session(
                    etcd, LAYOUT, name=self.name, describe=self._describe, ttl=TTL, monotonic=substitutes.monotonic
                )
            except (RetryableError, FencedError):
                substitutes.sleep(0.5)
                continue
            replicating = None
            if Role.PROCESSOR in self.roles:
                jobs = Pipeline(self.spark, _WINDOWS, watch, stays)  # type: ignore[arg-type]  # stands in for Spark
                setup = JobSetup(jobs=jobs, windows=_WINDOWS, lanes=_LANES)
                replicating = processor.processor.Processor(session, store, mirror, LAYOUT, EtcdConfig(), setup)
            membership = Membership(
                session,
                mirror,
                HealthPublisher(etcd, LAYOUT.node(session.node), lambda: watch.health),
                candidate=partial(owner_candidate, session, etcd, mirror, LAYOUT) if Role.OWNER in self.roles else None,
                processor=replicating,
                elected=lambda: None,
            )
            with membership:
                while membership.alive and not self.stopping:
                    membership.tick()
                    substitutes.sleep(0.3)
        if stays is not None:
            stays.close()
        watch.stop()
        mirror.stop()

    def _describe(self, node: NodeId) -> NodeRecord:
        return NodeRecord(
            id=node,
            name=self.name,
            admin_address="x:1",
            roles=self.roles,
            version="1",
            started_at=datetime(2026, 11, 21, tzinfo=UTC),
            health=self.watch.health if self.watch is not None else None,
        )


class _Broadcast:
    def __init__(self, value: object) -> None:
        self._value = value
        self._destroyed = False

    @property
    def value(self) -> object:
        assert not self._destroyed, "a job reads a broadcast that its driver has destroyed"
        return self._value

    def destroy(self, *, blocking: bool) -> None:
        self._destroyed = True


class _Task:
    def __init__(self, group: Group, worker: Process, answer: substitutes.Future) -> None:
        self.group = group
        self.worker = worker
        self.answer = answer


class Spark:
    """Replaces `SparkRunner`. Each task runs in a worker process, and each process runs one task at a time."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self._cluster = cluster
        self._node = node
        self._busy: list[_Task] = []
        self._idle: list[Process] = []
        self._workers = 0

    def broadcast(self, value: object) -> _Broadcast:
        return _Broadcast(value)

    def probe(self) -> None:
        self.run_one(Group("sluice", "probe"), lambda: None)

    def run_one(self, group: Group, task: Callable[[], Any]) -> Any:
        return self._begin(group, task).result()

    def executors(self) -> int:
        return 1

    def divides(self) -> bool:
        return True

    def slots(self) -> int:
        return 3

    def switchboard(self) -> SimulatedSwitchboard:
        return self._cluster.exchange.switchboard()

    def run_shuffled(
        self,
        group: Group,
        items: Sequence[Any],
        read: Callable[[Any], Iterator[tuple[Any, Any]]],
        buckets: int,
        apply: Callable[[Iterable[Any]], Any],
        divide: Callable[[Iterable[Any]], Iterable[Any]] | None = None,
    ) -> list[Any]:
        reading = [self._begin(group, partial(_all_of, read, item)) for item in items]
        parts = _partitions(reading, buckets)
        if divide is not None:
            self._cluster.machine.count("window with divided tables")
            parts = _partitions([self._begin(group, partial(_all_of, divide, part)) for part in parts], buckets)
        applying = [self._begin(group, partial(apply, iter(part))) for part in parts]
        return [part.result() for part in applying]

    def cancel(self, group: Group) -> None:
        """The job ends. Its workers are killed, or go on although their answers are not read."""
        machine = self._cluster.machine
        for task in [task for task in self._busy if task.group == group]:
            _settle(task.answer, PipelineUnavailable("cancelled"))
            if machine.random.random() < 0.5:
                machine.after(machine.random.random() * 0.1, partial(machine.kill, task.worker))

    def break_down(self) -> None:
        """The JVM dies, and none starts. The workers go on: they notice it sooner or later."""
        self._cluster.broken_sparks.add(self._node.name)
        for task in list(self._busy):
            _settle(task.answer, PipelineUnavailable("the JVM has died"))
        self.orphaned()
        self._idle.clear()

    def lose_one(self, random: Random) -> bool:
        """Loses a task, as when Spark loses an executor: the job fails, and its worker goes on."""
        pending = [task for task in self._busy if not task.answer.done()]
        if pending:
            _settle(random.choice(pending).answer, PipelineUnavailable("the executor is lost"))
        return bool(pending)

    def workers(self) -> list[Process]:
        return [task.worker for task in self._busy if task.worker.alive]

    def orphaned(self) -> None:
        """The node is dead. Its workers notice it sooner or later."""
        machine = self._cluster.machine
        for worker in [*self.workers(), *self._idle]:
            machine.after(machine.random.choice((0.0, 0.05, 5.0, 30.0)), partial(machine.kill, worker))

    def _begin(self, group: Group, call: Callable[[], Any]) -> substitutes.Future:
        machine = self._cluster.machine
        if self._node.name in self._cluster.broken_sparks:
            machine.sleep(0.3)
            raise PipelineUnavailable("the JVM does not start")
        worker = self._worker()
        answer = substitutes.Future()
        task = _Task(group, worker, answer)
        self._busy.append(task)

        def ended() -> None:
            if task in self._busy:
                self._busy.remove(task)
            _settle(answer, PipelineUnavailable("the worker was lost"))

        def body() -> None:
            try:
                result = call()
            except Exception as error:  # noqa: BLE001  # the edge of a task
                _settle(answer, error)
            else:
                if not answer.done():
                    answer.set_result(result)
            self._busy.remove(task)
            worker.on_death.remove(ended)
            self._idle.append(worker)

        worker.on_death.append(ended)
        machine.spawn(worker, f"task of {group}", body)
        return answer

    def _worker(self) -> Process:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive and not worker.frozen:
                return worker
        self._workers += 1
        return self._cluster.machine.process(f"{self._node.name}/w{self._workers}")


def _partitions(tasks: Iterable[substitutes.Future], buckets: int) -> list[list[Any]]:
    """The records by bucket and sorted, like a shuffle."""
    records = sorted((record for task in tasks for record in task.result()), key=lambda record: record[0])
    return [[record for record in records if record[0][0] % buckets == number] for number in range(buckets)]


def _all_of(read: Callable[[Any], Iterable[Any]], item: Any) -> list[Any]:
    return list(read(item))


def _settle(answer: substitutes.Future, error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def node_of(thread: Thread) -> str:
    return thread.process.name.partition("/")[0]


class Decoder:
    """Decodes each value once, since values never change and every node reads each of them. What a value refers to is read each time."""

    def __init__(self, etcd: MemoryEtcd) -> None:
        self._etcd = etcd
        self._known: dict[tuple[type, bytes], Any] = {}

    def __call__(self, kind: type[Any], kv: KeyValue, large: Callable[[str], Document] | None = None) -> Any:
        if f'"{REFERENCE}"'.encode() in kv.value:
            return decode(kind, kv, large or self._large)
        found = self._known.get((kind, kv.value))
        if found is None:
            found = self._known[kind, kv.value] = decode(kind, kv)
        return found

    def _large(self, name: str) -> Document:
        return Document(b"".join(kv.value for kv in self._etcd.range(f"{LAYOUT.large(FEED)}{name}/").items))
