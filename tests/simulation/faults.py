"""`Faults`: the faults of one run. The seed chooses which kinds, how often, and when. At the end of the run all faults are over.

A crash or a freeze happens between two actions of a process, while a request or its answer is on its way. Freezes last up to several
leases, so that a process may wake up after others have taken over from it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from changefeed.cluster_time import ClusterTime
from changefeed.records.requests import DesiredState
from tests.simulation.clockwork.machine import Process
from tests.simulation.cluster import TTL, Cluster, Node
from tests.simulation.user import User
from tests.simulation.workload import COLLECTIONS

_ELECTIONS_GO_ON, _REFUSALS_GO_ON = 10.0, 20.0
"""Seconds after all other faults are over. Most DDL is done then."""
_LEASE = TTL.total_seconds()
_REFUSED_KINDS = (*[frozenset[str]()] * 6, {"createIndexes"}, {"collMod"}, {"createIndexes", "dropIndexes", "collMod"})
"""Of commands, by a target that lacks an option, all the time. A user skips these, or tries them again in vain."""


class Faults:
    def __init__(self, cluster: Cluster, random: Random, end: float, user: User) -> None:
        self._cluster = cluster
        self._user = user
        self._machine = cluster.machine
        self._random = random
        self._passed_by = Random(f"ranges that are passed by {cluster.machine.seed}")
        self._end = end
        self._over = False
        self._kinds: list[Callable[[], None]] = [
            self._crash_node,
            self._crash_node,
            self._crash_worker,
            self._freeze_node,
            self._freeze_worker,
            self._lose_worker,
            self._spark_breaks,
            self._node_is_walled_off,
            self._cut_off,
            self._etcd_outage,
            self._source_outage,
            self._target_outage,
            self._new_leader,
            self._new_leader,
            self._new_leader_of_target,
            self._majority_of_target_stands_still,
            self._majority_of_source_stands_still,
            self._source_rolls_back,
            self._history_is_truncated,
            self._history_is_lost,
            self._etcd_is_full,
            self._target_refuses_ddl,
            self._target_refuses_rows,
            self._rows_break_their_task,
            self._table_is_stopped,
            self._target_is_touched,
            self._compact,
            self._stop_node,
            self._move_table,
            self._pause,
        ]
        self._chosen = random.sample(self._kinds, random.randint(1, 6))
        self._set_weather()
        self._at_failpoints = random.choice((0.0, 0.02, 0.1, 0.3))
        cluster.reached = self._reached
        cluster.target.reached = self._reached_target
        cluster.target.refuses_kinds = Random(f"refused kinds {self._machine.seed}").choice(_REFUSED_KINDS)
        cluster.network.late_rows = Random(f"late rows' rate {self._machine.seed}").choice((0.0, 0.0, 0.0, 0.01, 0.05))
        cluster.target.slow_ddl = random.choice((0.0, 0.0, 0.5, 8.0))
        cluster.target.slow_rows = random.choice((0.0, 0.0, 0.5, 4.0))
        cluster.source.slow_reads = random.choice((0.0, 0.0, 0.3, 2.0))
        cluster.target.slow_builds = random.choice((0.0, 0.1, 0.5, 8.0))
        cluster.target.majority.lag = random.choice((0.0, 0.001, 0.02, 0.2))
        cluster.source.slow_scan = random.choice((0.0, 0.0, 0.0005, 0.005))
        self._pace = random.choice((0.5, 1.5, 4.0))
        self._later()

    def end(self) -> None:
        """Ends all faults: wakes frozen processes, restarts dead nodes, and clears the weather."""
        self._over = True
        self._cluster.etcd.make_room()
        self._cluster.source.asks_nobody()
        self._cluster.ask_for(DesiredState.RUNNING)
        self._cluster.network.weather.clear()
        self._cluster.network.cut_off.clear()
        self._cluster.network.late_rows = 0.0
        self._cluster.target.slow_ddl = self._cluster.target.slow_rows = self._cluster.target.slow_builds = 0.0
        self._machine.after(_REFUSALS_GO_ON, self._take_all_kinds)
        self._cluster.target.refuses_ddl_of.clear()
        self._cluster.target.refuses_rows_of.clear()
        self._cluster.target.breaks_tasks_with_rows_of.clear()
        self._cluster.target.majority.hold(0.0)
        self._cluster.source.hold_majority(0.0)
        self._cluster.source.slow_reads = self._cluster.source.slow_scan = 0.0
        self._elections_go_on()
        self._mend_nodes()
        for node in list(self._cluster.nodes.values()):
            if node.process.frozen:
                self._machine.thaw(node.process)
            if not node.alive or node.stopping:
                self._restart(node)

    def _take_all_kinds(self) -> None:
        self._cluster.target.refuses_kinds = frozenset()

    def _elections_go_on(self) -> None:
        """Elections go on for a while after the other faults, since much work is done then, and an election must not disturb it."""
        for kind, elect in (
            (self._new_leader, self._cluster.source.elect),
            (self._new_leader_of_target, self._cluster.target.elect),
        ):
            for _ in range(3 if kind in self._chosen else 0):
                self._machine.after(self._random.random() * _ELECTIONS_GO_ON, elect)

    def _set_weather(self) -> None:
        weather, random = self._cluster.network.weather, self._random
        for name in weather.__dataclass_fields__:
            if random.random() < 0.3:
                setattr(weather, name, random.choice((0.005, 0.03, 0.15)))

    def _later(self) -> None:
        self._machine.after(self._random.random() * 2 * self._pace, self._strike)

    def _strike(self) -> None:
        if self._over or self._machine.now > self._end:
            return
        chosen = self._random.choice(self._chosen)
        self._machine.count(f"fault: {chosen.__name__.strip('_').replace('_', ' ')}")
        chosen()
        self._later()

    # accidents of processes

    def _node(self) -> Node | None:
        living = [node for node in self._cluster.nodes.values() if node.alive and not node.process.frozen]
        return self._random.choice(living) if living else None

    def _worker(self) -> Process | None:
        living = [worker for node in self._cluster.nodes.values() for worker in node.spark.workers()]
        living = [worker for worker in living if not worker.frozen]
        return self._random.choice(living) if living else None

    def _reached(self, point: str) -> None:
        """A process has reached a failpoint, where an accident does most harm: causes one there or soon after it."""
        current = self._machine.current
        if self._over or current is None or self._random.random() >= self._at_failpoints:
            return
        node = next((node for node in self._cluster.nodes.values() if node.process is current.process), None)
        if node is not None and node.process.accident is None:
            crash = self._random.random() < 0.6
            self._machine.count(f"fault: {'crash' if crash else 'freeze'} at {point}")
            if crash and self._random.random() < 0.3:
                self._crash(node)
            elif crash:
                node.process.after_steps(self._random.choice((1, 1, 2, 3, 4)), lambda: self._crash(node))
            else:
                self._machine.after(self._random.choice((0.0, 0.005, 0.02)), lambda: self._freeze_machine(node))

    def _reached_target(self, point: str) -> None:
        """The target has started an index build, or has an effect that no majority has."""
        self._reached(point)
        if self._machine.now < self._end + _ELECTIONS_GO_ON and self._random.random() < self._at_failpoints / 2:
            self._machine.count(f"fault: target elects at {point}")
            self._machine.after(self._random.random() * 0.2, self._cluster.target.elect)

    def _soon(self, process: Process, accident: Callable[[], None]) -> None:
        process.after_steps(self._random.choice((1, 2, 3, 5, 8, 13, 40)), accident)

    def _crash_node(self) -> None:
        node = self._node()
        if node is not None:
            self._soon(node.process, lambda: self._crash(node))

    def _crash(self, node: Node) -> None:
        self._machine.note(node.process.name, "CRASHES")
        self._machine.after(self._random.choice((0.1, 1.0, 3 * _LEASE)), lambda: self._restart(node))
        self._machine.kill(node.process)

    def _restart(self, node: Node) -> None:
        if self._cluster.nodes[node.name] is node and (not node.alive or node.stopping):
            if node.alive:
                self._machine.kill(node.process)
            self._machine.note(node.name, "starts again")
            self._cluster.start(node.name, node.roles)

    def _stop_node(self) -> None:
        """Stops a node in good order, as a signal does."""
        node = self._node()
        if node is not None and len(self._cluster.nodes) > 1:
            self._machine.note(node.process.name, "is asked to stop")
            node.stopping = True
            self._machine.after(self._random.choice((1.0, 6.0)), lambda: self._restart(node))

    def _freeze_node(self) -> None:
        node = self._node()
        if node is not None:
            with_workers = self._random.random() < 0.5
            self._soon(node.process, lambda: self._freeze_machine(node) if with_workers else self._freeze(node.process))

    def _freeze_machine(self, node: Node) -> None:
        """Freezes all processes of a machine, as when a virtual machine is moved. They wake together, in the middle of their work."""
        if not node.alive or node.process.frozen:
            return
        seconds = self._seconds_frozen()
        for process in (node.process, *node.spark.workers()):
            self._freeze(process, seconds)

    def _seconds_frozen(self) -> float:
        return self._random.choice((0.5, _LEASE, 2 * _LEASE, 4 * _LEASE))

    def _freeze(self, process: Process, seconds: float = 0.0) -> None:
        seconds = seconds or self._seconds_frozen()
        self._machine.note(process.name, f"FREEZES for {seconds:g} s")
        self._machine.freeze(process)
        if seconds > _LEASE:
            self._machine.count("fault: freeze for longer than a lease")
        self._machine.after(seconds, lambda: self._wake(process))

    def _wake(self, process: Process) -> None:
        if process.alive and process.frozen:
            self._machine.note(process.name, "wakes")
            self._machine.thaw(process)

    def _crash_worker(self) -> None:
        worker = self._worker()
        if worker is not None:
            self._soon(worker, lambda: self._machine.kill(worker))

    def _freeze_worker(self) -> None:
        worker = self._worker()
        if worker is not None:
            self._soon(worker, lambda: self._freeze(worker))

    def _lose_worker(self) -> None:
        """The node loses a worker, which goes on."""
        for node in self._cluster.nodes.values():
            if node.alive and node.spark.lose_one(self._random):
                self._machine.note(node.process.name, "loses sight of a worker")
                return

    # nodes that live, and cannot work

    def _spark_breaks(self) -> None:
        node, broken = self._node(), self._cluster.broken_sparks
        if node is not None:
            self._machine.note(node.name, "its Spark breaks")
            node.spark.break_down()
            self._mended_later(lambda: broken.discard(node.name))

    def _node_is_walled_off(self) -> None:
        """Its workers do not reach the source or the target any more."""
        node, unreachable = self._node(), self._cluster.network.unreachable
        if node is not None:
            wall = node.name, self._random.choice(("the source", "the target"))
            self._machine.note(node.name, f"does not reach {wall[1]} any more")
            unreachable.add(wall)
            self._mended_later(lambda: unreachable.discard(wall))

    def _mended_later(self, mend: Callable[[], None]) -> None:
        def unless_over() -> None:
            if not self._over:
                mend()

        self._machine.after(self._random.choice((1.0, 6.0, 20.0)), unless_over)

    def _mend_nodes(self) -> None:
        """Where there are others, one node may stay as it is for good: they have to do without it."""
        broken, unreachable = self._cluster.broken_sparks, self._cluster.network.unreachable
        broken.clear()
        unreachable.clear()
        names = sorted(self._cluster.nodes)
        if len(names) == 1:
            return
        if self._spark_breaks in self._chosen and self._random.random() < 0.5:
            self._machine.count("one node's Spark stays broken for good")
            self._cluster.nodes[self._random.choice(names)].spark.break_down()
        elif self._node_is_walled_off in self._chosen and self._random.random() < 0.5:
            self._machine.count("one node stays walled off for good")
            unreachable.add((self._random.choice(names), self._random.choice(("the source", "the target"))))

    # accidents of services

    def _cut_off(self) -> None:
        node, cut_off = self._node(), self._cluster.network.cut_off
        if node is not None:
            processes = {node.process} | (set(node.spark.workers()) if self._random.random() < 0.5 else set())
            self._machine.note(node.process.name, "is cut off from etcd")
            cut_off |= processes
            self._machine.after(
                self._random.choice((0.5, _LEASE, 3 * _LEASE)), lambda: cut_off.difference_update(processes)
            )

    def _etcd_outage(self) -> None:
        self._cluster.network.etcd_down.until = self._machine.now + self._random.choice((0.3, 2.0, 2 * _LEASE))
        self._machine.note("etcd", "does not answer for a while")

    def _source_outage(self) -> None:
        self._cluster.network.source_down.until = self._machine.now + self._random.choice((0.3, 3.0, 15.0))

    def _target_outage(self) -> None:
        self._cluster.network.target_down.until = self._machine.now + self._random.choice((0.3, 3.0, 15.0))
        self._machine.note("target", "does not answer for a while")

    def _new_leader(self) -> None:
        self._cluster.source.elect()

    def _new_leader_of_target(self) -> None:
        """There is no primary for a while; the new primary may lack what no majority has."""
        self._cluster.network.target_down.until = self._machine.now + self._random.choice((0.05, 0.5, 3.0))
        self._cluster.target.elect()

    def _majority_of_source_stands_still(self) -> None:
        self._cluster.source.hold_majority(self._machine.now + self._random.choice((0.3, 3.0, 15.0)))

    def _source_rolls_back(self) -> None:
        """New writes reach no majority, and another member is elected."""
        until = self._machine.now + self._random.choice((0.3, 1.0, 3.0))
        self._cluster.source.hold_majority(until)
        self._machine.after(self._random.random() * (until - self._machine.now), self._cluster.source.elect)

    def _history_is_truncated(self) -> None:
        """Truncates the entries that are no longer needed, except the last one: it proves that there is no gap."""
        source, needed = self._cluster.source, self._cluster.judge.needed
        if needed is not None:
            source.forget_what_is_not_needed(needed)

    def _history_is_lost(self) -> None:
        """A range that is read soon begins before the oplog does, from the start or once reading has begun."""
        source, passed_by = self._cluster.source.one_oplog(), iter(range(self._passed_by.choice((0, 1, 3, 10))))

        def forget(start_ts: ClusterTime) -> None:
            index = source.index_of(start_ts)
            if self._over or index >= source.visible - 1 or next(passed_by, None) is not None:
                return
            source.asks_nobody()
            kept = source.oplog[min(index + self._random.choice((1, 1, 3, 10)), source.visible - 1)]
            self._machine.note("source", f"its oplog begins at {kept.ts} now")
            self._machine.count("fault: a range is truncated as it is read")
            source.forget_before(kept.ts)

        source.asked = forget

    def _target_is_touched(self) -> None:
        self._cluster.judge.damage(self._random)

    def _target_refuses_ddl(self) -> None:
        self._refuse(self._cluster.target.refuses_ddl_of, "DDL")

    def _target_refuses_rows(self) -> None:
        self._refuse(self._cluster.target.refuses_rows_of, "rows")

    def _rows_break_their_task(self) -> None:
        self._refuse(self._cluster.target.breaks_tasks_with_rows_of, "to be written to without a bug: rows")

    def _refuse(self, refused: set[str], what: str) -> None:
        """What concerns one collection, for a while."""
        collection = self._random.choice(COLLECTIONS)
        refused.add(collection)
        self._machine.note("target", f"refuses {what} of {collection} for a while")
        self._machine.after(self._random.choice((0.3, 3.0, 15.0)), lambda: refused.discard(collection))

    def _table_is_stopped(self) -> None:
        self._user.stop_one()

    def _etcd_is_full(self) -> None:
        etcd = self._cluster.etcd
        self._machine.note("etcd", "is full for a while")
        etcd.fill_up(at_once=self._random.random() < 0.5)
        self._machine.after(self._random.choice((0.3, 2.0, 2 * _LEASE)), etcd.make_room)

    def _majority_of_target_stands_still(self) -> None:
        self._machine.note("target", "its majority stands still for a while")
        self._cluster.target.majority.hold(self._machine.now + self._random.choice((0.3, 3.0, 15.0)))

    def _compact(self) -> None:
        etcd = self._cluster.etcd
        etcd.compact(max(1, etcd.revision - self._random.choice((0, 1, 20))))

    def _pause(self) -> None:
        self._cluster.ask_for(DesiredState.PAUSED)
        seconds = self._random.choice((0.1, 1.0, 6.0))
        if self._cluster.capture_may_change:
            self._machine.after(seconds * 0.9, self._cluster.change_capture)
        self._machine.after(seconds, lambda: self._cluster.ask_for(DesiredState.RUNNING))

    def _move_table(self) -> None:
        """Requests a move, as an operator would."""
        self._cluster.ask_to_move(self._random)
