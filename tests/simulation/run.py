"""`simulate`: runs one seed: a cluster, a workload at its source, the faults, and the judgement.

python -m tests.simulation.run --seed 17            replays one and prints its history
python -m tests.simulation.run --seeds 10000        runs many, in as many processes as there are cores
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from multiprocessing.pool import Pool
from random import Random
from typing import Any

import greenlet

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration, OnDivergence
from changefeed.records.node import Role
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from coordination.layout import encode
from tests.simulation.clockwork.machine import Machine, Violation
from tests.simulation.clockwork.substitutes import installed
from tests.simulation.cluster import LAYOUT, Cluster
from tests.simulation.faults import Faults
from tests.simulation.gathered import GatheredTables
from tests.simulation.judgement.agreement import Agreement
from tests.simulation.judgement.judge import Judge
from tests.simulation.judgement.source_counts import count_source
from tests.simulation.messages.sinks import judge_of, with_messages
from tests.simulation.mode import MESSAGES, SWITCHES, Mode
from tests.simulation.slow_table import SlowTable
from tests.simulation.source.row_keys import KEYS, in_order, keys_of
from tests.simulation.source.server import SourceServer
from tests.simulation.source.sharded.cluster import ClusterSource
from tests.simulation.target.letters import LETTERS
from tests.simulation.unique_rows import UniqueRows
from tests.simulation.user import User
from tests.simulation.wiring import wired
from tests.simulation.workload import COLLECTIONS, FullTables, Workload

_LATE = 0.25
"""The part of the runs in which tables are added to the filter."""
_LEAST_SHARDS = 2
_RETIRES = 0.4
"""The part of the clusters with more shards of which one is removed."""
_LETTERS = 0.4
"""The part of the runs in which rows that the target refuses become dead letters."""
_SETTLING = 200.0
"""Seconds within which the changefeed must have recovered: back-offs and leases end within a minute."""
_TELL_EVERY = 10.0
_ACTS, _DENSE = (20, 60, 150), (60, 150)
"""How often the source's users write in a run. Copies that may remove nothing are short, and much must happen during them."""
_GATHERED_ACTS = 30
_DDL, _DENSE_DDL = (0.05, 0.15, 0.4), (0.15, 0.4)
"""The part of it that is DDL."""
_SLOW_READS = (0.3, 1.0, 2.0)
"""Seconds that a read of the source may take, where copies may remove nothing."""
_LIMITS = ("4 docs/s", "10 docs/s", "30 docs/s")
_SOURCE_VERSIONS = ((6, 0), (8, 0))

Planted = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Outcome:
    seed: int
    mode: Mode
    error: str = ""
    history: list[str] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    """What happened in this run, and how often."""
    actions: int = 0
    simulated: float = 0.0
    took: float = 0.0


def simulate(seed: int, *, planted: Planted = nullcontext, keep_history: bool = False, **mode: Any) -> Outcome:
    """`planted`: bugs to be found. `mode`: the fields of its `Mode`."""
    begun, chosen = time.process_time(), Mode(**mode)
    machine = Machine(seed)
    with _nothing_collected(), installed(machine):
        version = None if chosen.is_sharded(seed) else machine.random.choice(_SOURCE_VERSIONS)
        cluster = Cluster(machine, source_version=version)
        error = ""
        with wired(cluster, batch_changes=chosen.batch_changes(seed)), planted():
            try:
                if chosen.slow:
                    _live_beside_a_slow_table(machine, cluster)
                else:
                    _live(machine, cluster, chosen)
            except Violation as violation:
                error = str(violation)
            except Exception:  # noqa: BLE001  # every error counts as a failure of this seed
                error = traceback.format_exc(limit=-8)
            machine.close()
    return Outcome(
        seed=seed,
        mode=chosen,
        error=error,
        history=machine.history if error or keep_history else [],
        met=machine.met,
        actions=machine.actions,
        simulated=machine.now,
        took=time.process_time() - begun,
    )


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Generators of dead threads act when they are collected. When that is depends on all that was ever allocated in the process, so it is after the run."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def _live(machine: Machine, cluster: Cluster, mode: Mode) -> None:
    random, kept, sink = machine.random, mode.kept, mode.sink_of(machine.seed)
    messages = sink in MESSAGES
    late = Random(f"late tables {machine.seed}")
    """Apart from the other choices, so that seeds without them stay what they are."""
    added = "crm" if (late.random() < _LATE or kept) and not messages else None
    gathered = mode.is_gathered(machine.seed)
    agreement = Agreement(routed=random.random() < 0.5, late=added, kept=kept, gathered=gathered)
    capture, always = _capture(cluster, random, for_life=messages)
    machine.count(f"sink: {sink}")
    machine.count(f"capture: {capture}")
    options = _configuration(machine.seed, random, agreement, always, letters=mode.refusing)
    if messages:
        options = with_messages(options, sink, random, images=capture is Capture.CHANGE_STREAM)
    configuration = Configuration.parse(
        {**options, **_waits(random, mode), **_points(machine.seed, mode), **_begins(mode)}
    )
    judge = cluster.judge = judge_of(sink, cluster, agreement, configuration)
    share, clones = random.choice(_DENSE_DDL if kept else _DDL), always is Capture.OPLOG
    unique = UniqueRows(cluster.source) if mode.is_unique(machine.seed) else None
    if unique is not None:
        machine.count("tables with unique indexes of all kinds")
        judge.of_somebody_else = unique.of_somebody_else
    judge.in_order = not (mode.faults or mode.mended)
    many_to_one = _gathered(cluster, configuration) if gathered else None
    full = FullTables(Random(f"full tables {machine.seed}")) if mode.full else None
    workload = Workload(cluster.source, random, ddl_share=share, clones=clones, in_place=kept, unique=unique, full=full)
    machine.count(f"start: {configuration.start}")
    if configuration.start == "initial":
        workload.begin()
    roles = frozenset({Role.OWNER, Role.PROCESSOR})
    for number in range(random.choice((1, 2, 3))):
        cluster.start(f"n{number + 1}", roles)
    info = ChangefeedInfo(configuration=configuration, created_at=datetime(2026, 11, 21, tzinfo=UTC), capture=capture)
    machine.after(random.random() * 3, partial(cluster.create, LAYOUT.info(ChangefeedId("feed")), encode(info)))
    if configuration.start == "now":
        machine.run(_SETTLING, lambda: judge.begun)
    length = random.choice((8.0, 15.0, 25.0))
    if agreement.late is not None:
        machine.after(3 + late.random() * length, partial(cluster.widen, agreement.configuration(whole=True)))
    end = machine.now + length
    _act_until(machine, workload, end, length / random.choice(_DENSE if kept else _ACTS))
    _act_until(machine, many_to_one, end, length / _GATHERED_ACTS)
    _retire_a_shard(cluster, end)
    user = User(cluster, random)
    user.repairs = user.repairs and not kept
    letters = configuration.dead_letter is not None
    accidents = _accidents(cluster, random, end, user, mode, letters=letters)
    machine.run(end, lambda: bool(judge.failed))
    if accidents is not None:
        accidents.end()
    user.be_patient_until(lambda: judge.rest_arrived)
    machine.run(
        end + _SETTLING, lambda: bool(judge.failed) or (judge.arrived and machine.now > end + 2 and user.content)
    )
    _judge_end(cluster, judge, user, configuration)


def _judge_end(cluster: Cluster, judge: Judge, user: User, configuration: Configuration) -> None:
    machine = cluster.machine
    if judge.lost:
        machine.count("history was lost, and said to be")
        return
    if judge.diverged and configuration.on_divergence is OnDivergence.FAIL:
        machine.count("rows diverged, and were named")
        return
    if judge.failed:
        raise Violation(judge.failed)
    if not judge.arrived:
        raise Violation(judge.stuck())
    count_source(cluster, judge.wants)
    _check_convergence(judge, user)


def _live_beside_a_slow_table(machine: Machine, cluster: Cluster) -> None:
    """A window of three events is too short to tell which table is slow."""
    agreement = Agreement(routed=machine.random.random() < 0.5)
    capture, always = _capture(cluster, machine.random)
    options = _configuration(machine.seed, machine.random, agreement, always)
    pipeline = {**options["pipeline"], "max_lag_events": machine.random.choice((20, 1000))}
    configuration = Configuration.parse({**options, "start": "initial", "pipeline": pipeline})
    judge = cluster.judge = Judge(cluster, agreement)
    slow = SlowTable(cluster, agreement)
    slow.create()
    cluster.start("n1", frozenset({Role.OWNER, Role.PROCESSOR}))
    info = ChangefeedInfo(configuration=configuration, created_at=datetime(2026, 11, 21, tzinfo=UTC), capture=capture)
    cluster.create(LAYOUT.info(ChangefeedId("feed")), encode(info))
    machine.run(_SETTLING, lambda: judge.begun and judge.rest_arrived)
    end = slow.begin()
    User(cluster, machine.random, copies_anew=1.0, patient_until=lambda: judge.rest_arrived)
    machine.run(end + _SETTLING, lambda: bool(judge.failed) or (judge.arrived and machine.now > end + 2))
    if judge.failed or not judge.arrived:
        raise Violation(judge.failed or judge.stuck())
    count_source(cluster, judge.wants)
    if differences := judge.differences():
        raise Violation("I6: " + "; ".join(differences))


def _accidents(cluster: Cluster, random: Random, end: float, user: User, mode: Mode, *, letters: bool) -> Faults | None:
    if mode.mended:
        _touched_by_others(cluster, Random(f"others {cluster.machine.seed}"), end)
    if not mode.faults:
        return None
    accidents = Faults(cluster, random, end, user)
    if letters:
        _refuse_rows(cluster, Random(f"refused rows {cluster.machine.seed}"), end, known=mode.refusing)
    if mode.kept:
        cluster.source.slow_reads = random.choice(_SLOW_READS)
    return accidents


def _touched_by_others(cluster: Cluster, random: Random, end: float) -> None:
    cluster.judge.damage(random)
    if cluster.machine.now < end:
        cluster.machine.after(random.random(), lambda: _touched_by_others(cluster, random, end))


def _refuse_rows(cluster: Cluster, random: Random, end: float, *, known: bool) -> None:
    """The target refuses one row after another, each for a while. `known`: changes of those that it has, and more of them."""
    machine, refused = cluster.machine, cluster.target.refuses_key
    row = random.choice(COLLECTIONS), keys_of(machine.seed)[random.randrange(KEYS)]
    if known:
        tables = cluster.target.collections.items()
        there = {(name.coll, key) for name, table in tables for key in table.rows}
        row = random.choice(sorted(there, key=lambda each: (each[0], in_order(each[1]))) or [row])
    refused.add(row)
    machine.note("target", f"refuses {row} for a while")
    machine.after(random.choice((0.3, 3.0, 15.0)), lambda: refused.discard(row))
    if machine.now < end:
        machine.after(random.random() * (1 if known else 6), lambda: _refuse_rows(cluster, random, end, known=known))


def _retire_a_shard(cluster: Cluster, end: float) -> None:
    source, machine = cluster.source, cluster.machine
    if isinstance(source, ClusterSource) and len(source.shards) > _LEAST_SHARDS and source.fate.random() < _RETIRES:
        name = source.fate.choice(sorted(source.shards))
        machine.after(source.fate.random() * (end - machine.now), lambda: source.retire(name))


def _capture(cluster: Cluster, random: Random, *, for_life: bool = False) -> tuple[Capture, Capture | None]:
    """At first, and if it stays so."""
    source = cluster.source
    if isinstance(source, ClusterSource):
        return Capture.SHARD_OPLOGS, Capture.SHARD_OPLOGS
    capture = random.choice((Capture.OPLOG, Capture.CHANGE_STREAM))
    cluster.capture_may_change = random.random() < 0.3 and not for_life
    always = None if cluster.capture_may_change else capture
    source.from_secondaries = always is Capture.OPLOG and random.random() < 0.3
    source.any_group = always is Capture.CHANGE_STREAM and random.random() < 0.5
    return capture, always


def _check_convergence(judge: Judge, user: User) -> None:
    if not user.content:
        raise Violation(f"I7: not repaired: {judge.damaged}; refused: {judge.lettered}")
    differences = judge.differences(repaired=user.repairs)
    if differences:
        raise Violation("I6: " + "; ".join(differences))


def _gathered(cluster: Cluster, configuration: Configuration) -> GatheredTables:
    assert isinstance(cluster.source, SourceServer), "the model of a cluster has no tables with one name at the target"
    tables = GatheredTables(cluster.source)
    if configuration.start == "initial":
        tables.begin()
    return tables


def _act_until(machine: Machine, writer: Workload | GatheredTables | None, end: float, pace: float) -> None:
    if writer is None:
        return

    def act() -> None:
        writer.act()
        if machine.now < end:
            machine.after(machine.random.random() * 2 * pace, act)

    machine.after(machine.random.random() * 2, act)


def _configuration(
    seed: int, random: Random, agreement: Agreement, capture: Capture | None, *, letters: bool = False
) -> dict[str, Any]:
    letters = letters or Random(f"letters {seed}").random() < _LETTERS
    images = ({}, {"pre_images": ["shop.*"]}) if capture is Capture.CHANGE_STREAM else ({},)
    return {
        **agreement.configuration(),
        "id": "feed",
        "source": "mongodb://source",
        "sink": "mongodb://target",
        "start": "initial" if agreement.kept else random.choice(("initial", "now")),
        "ddl": {"async_indexes": random.random() < 0.5},
        "pipeline": {**random.choice(images), "max_lag_events": random.choice((3, 20, 1000))},
        "on_divergence": random.choice(("fail", "repair")),
        **({"dead_letter": str(LETTERS)} if letters else {}),
    }


def _waits(random: Random, mode: Mode) -> dict[str, Any]:
    limits = {"copy_limit": random.choice(_LIMITS), "apply_limit": random.choice(_LIMITS)} if mode.limited else {}
    delay = {"delay": random.choice(("1s", "3s", "10s"))} if mode.delayed else {}
    return {**limits, **delay}


def _begins(mode: Mode) -> dict[str, Any]:
    """No server reads a capped table at an earlier time."""
    return {"start": "now"} if mode.full else {}


def _points(seed: int, mode: Mode) -> dict[str, Any]:
    every = Random(f"sync points every {seed}").choice(("1s", "2s", "5s"))
    repaired = {"on_divergence": "repair"} if mode.mended else {}
    return {"sync_points": {"every": every, "keep": "20s"}, **repaired} if mode.is_synced(seed) else {}


@dataclass
class Summary:
    seeds: int = 0
    failed: list[int] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    actions: int = 0
    simulated: float = 0.0
    took: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.failed += [outcome.seed] if outcome.error else []
        self.met += outcome.met
        self.actions += outcome.actions
        self.simulated += outcome.simulated
        self.took += outcome.took

    def __str__(self) -> str:
        lines = [f"    {count:>12,}  {what}" for what, count in sorted(self.met.items())]
        hours, each = self.simulated / 3600, self.took / max(self.seeds, 1)
        lines += [
            f"{self.seeds:,} seeds, {self.actions:,} actions, {hours:,.1f} simulated hours, {each:.2f} CPU s each"
        ]
        lines += [
            f"{len(self.failed)} failed: {' '.join(map(str, sorted(self.failed)))}" if self.failed else "all well"
        ]
        return "\n".join(lines)


def many(workers: Pool, seeds: Iterable[int], *, keep_history: bool = False, **mode: Any) -> Iterator[Outcome]:
    """`mode`: the fields of their `Mode`."""
    return workers.imap_unordered(partial(simulate, keep_history=keep_history, **mode), seeds)


def workers(processes: int | None = None) -> Pool:
    """Processes of their own, since the order of sets is fixed when an interpreter starts."""
    os.environ["PYTHONHASHSEED"] = "0"
    return multiprocessing.get_context("spawn").Pool(processes or os.cpu_count(), ready, maxtasksperchild=1000)


def ready() -> None:
    """Silences generators of dead threads: they are collected after the run, and cannot finish their last command. What was imported is not looked at then."""
    gc.freeze()
    told = sys.unraisablehook
    sys.unraisablehook = lambda raised: None if raised.exc_type is greenlet.GreenletExit else told(raised)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="replay one seed and print its history")
    parser.add_argument("--seeds", type=int, default=100, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--lines", type=int, default=200, help="of the history, its last ones")
    parser.add_argument("--calm", action="store_true", help="nothing goes wrong")
    parser.add_argument("--limited", action="store_true", help="with limits for copies and changes")
    parser.add_argument("--delayed", action="store_true", help="with a delay")
    parser.add_argument(
        "--sharded", action=argparse.BooleanOptionalAction, help="the source is a sharded cluster, or is none"
    )
    parser.add_argument("--kept", action="store_true", help="copies may remove nothing at the target")
    parser.add_argument("--slow", action="store_true", help="the target is slow with one table, no more")
    parser.add_argument("--refusing", action="store_true", help="the target refuses many changes of rows that it has")
    parser.add_argument("--unique", action="store_true", help="tables have unique indexes of all kinds")
    parser.add_argument("--gathered", action="store_true", help="two tables have one name at the target")
    parser.add_argument("--synced", action="store_true", help="the changefeed makes sync points")
    parser.add_argument("--full", action="store_true", help="capped tables are full most of the time")
    parser.add_argument("--sink", choices=("mongodb", *MESSAGES), help="otherwise the seed decides")
    parser.add_argument("--processes", type=int, help="as many as there are cores, if not given")
    options = parser.parse_args()
    if options.seed is not None:
        return _replay(options)
    return _run_many(options)


def _mode(options: argparse.Namespace) -> dict[str, Any]:
    switches = {name: getattr(options, name) for name in SWITCHES}
    return {"faults": not options.calm, "sharded": options.sharded, "sink": options.sink, **switches}


def _replay(options: argparse.Namespace) -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "tests.simulation.run", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    ready()
    outcome = simulate(options.seed, keep_history=True, **_mode(options))
    print(*outcome.history[-options.lines :], told(outcome), sep="\n")
    return 1 if outcome.error else 0


def _run_many(options: argparse.Namespace) -> int:
    told_at = time.monotonic()
    summary = Summary()
    seeds = range(options.first, options.first + options.seeds)
    with workers(options.processes) as pool:
        for outcome in many(pool, seeds, **_mode(options)):
            summary.add(outcome)
            if outcome.error:
                print(told(outcome), flush=True)
            if time.monotonic() > told_at + _TELL_EVERY:
                told_at = time.monotonic()
                print(f"{summary.seeds} of {len(seeds)} seeds, {len(summary.failed)} failed", flush=True)
    print(summary)
    return 1 if summary.failed else 0


def told(outcome: Outcome) -> str:
    again = f"; again with: python -m tests.simulation.run --seed {outcome.seed}{outcome.mode}"
    verdict = f"FAILED {outcome.error}{again}" if outcome.error else "ok"
    return f"seed {outcome.seed}: {verdict} ({outcome.actions} actions, {outcome.simulated:.0f} s simulated, {outcome.took:.1f} s)"


if __name__ == "__main__":
    sys.exit(main())
