"""One seed: a cluster, a life at its source, what goes wrong, and the judgement.

python -m tests.simulation.run --seed 17            replays one and prints its history
python -m tests.simulation.run --seeds 10000        runs many, in as many processes as there are cores
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from changefeed.configuration import Configuration
from changefeed.records import ChangefeedId, ChangefeedInfo, Role
from coordination.etcd import Put
from coordination.layout import encode
from tests.simulation.cluster import LAYOUT, Cluster, wired
from tests.simulation.faults import Faults
from tests.simulation.judge import Judge
from tests.simulation.machine import Machine, Violation
from tests.simulation.substitutes import installed
from tests.simulation.workload import Workload

_SETTLING = 400.0
_SHOWN = 120

Mutation = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Outcome:
    seed: int
    error: str = ""
    history: list[str] = field(default_factory=list)
    rows: int = 0
    ddls: int = 0
    actions: int = 0
    simulated: float = 0.0
    took: float = 0.0


def simulate(seed: int, *, faults: bool = True, mutation: Mutation = nullcontext) -> Outcome:
    begun = time.perf_counter()
    machine = Machine(seed)
    with installed(machine):
        cluster = Cluster(machine)
        error = ""
        judge: Judge | None = None
        with wired(cluster), mutation():
            try:
                judge = _live(machine, cluster, faults=faults)
            except Violation as violation:
                error = str(violation)
            except Exception:  # noqa: BLE001  # whatever broke, this seed breaks it
                error = traceback.format_exc(limit=-8)
            judge = cluster.judge
            machine.close()
    return Outcome(
        seed=seed,
        error=error,
        history=machine.history if error else [],
        rows=judge.rows if judge else 0,
        ddls=judge.ddls if judge else 0,
        actions=machine.actions,
        simulated=machine.now,
        took=time.perf_counter() - begun,
    )


def _live(machine: Machine, cluster: Cluster, *, faults: bool) -> Judge:
    random = machine.random
    configuration = Configuration.parse(_configuration(random))
    judge = cluster.judge = Judge(cluster, configuration)
    workload = Workload(cluster.source, random, ddl_share=random.choice((0.05, 0.15, 0.4)))
    if configuration.start == "initial":
        workload.begin()
    roles = frozenset({Role.OWNER, Role.PROCESSOR})
    for number in range(random.choice((1, 2, 3))):
        cluster.start(f"n{number + 1}", roles)
    info = ChangefeedInfo(configuration=configuration, created_at=datetime(2026, 11, 21, tzinfo=UTC))
    put = Put(LAYOUT.info(ChangefeedId("feed")), encode(info))
    machine.after(random.random() * 3, partial(cluster.etcd.txn, (), (put,)))
    if configuration.start == "now":
        machine.run(_SETTLING, lambda: judge.begun)
    end = machine.now + random.choice((10.0, 20.0, 30.0))
    _act_until(machine, workload, end, random.choice((0.05, 0.2, 0.5)))
    accidents = Faults(cluster, random, end) if faults else None
    machine.run(end, lambda: bool(judge.failed))
    if accidents is not None:
        accidents.end()
    machine.run(end + _SETTLING, lambda: bool(judge.failed) or (judge.arrived and machine.now > end + 2))
    if judge.failed:
        raise Violation(judge.failed)
    if not judge.arrived:
        raise Violation(judge.stuck())
    differences = judge.differences()
    if differences:
        raise Violation("I6: " + "; ".join(differences))
    return judge


def _act_until(machine: Machine, workload: Workload, end: float, pace: float) -> None:
    def act() -> None:
        workload.act()
        if machine.now < end:
            machine.after(machine.random.random() * 2 * pace, act)

    machine.after(machine.random.random() * 4, act)


def _configuration(random: Any) -> dict[str, Any]:
    return {
        "id": "feed",
        "source": "mongodb://source",
        "sink": "mongodb://target",
        "start": random.choice(("initial", "now")),
        "filter": {"tables": ["shop.*", "crm.*", "!*.x_out"]},
        "routes": random.choice(([], [{"from": "shop.*", "to": "copy.*"}])),
        "ddl": {"async_indexes": random.random() < 0.5},
        "on_divergence": "fail",
    }


def many(seeds: Iterable[int], processes: int | None = None) -> Iterable[Outcome]:
    with multiprocessing.get_context("fork").Pool(processes or os.cpu_count(), maxtasksperchild=200) as pool:
        yield from pool.imap_unordered(simulate, seeds)


def hashes_fixed() -> dict[str, str]:
    """The environment in which sets have the same order in every run."""
    return {**os.environ, "PYTHONHASHSEED": "0"}


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation.run", *sys.argv[1:]], hashes_fixed())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one seed and print its history")
    parser.add_argument("--seeds", type=int, default=100, help="how many to run")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--lines", type=int, default=_SHOWN, help="of the history")
    parser.add_argument("--calm", action="store_true", help="nothing goes wrong")
    options = parser.parse_args()
    if options.seed is not None:
        outcome = simulate(options.seed, faults=not options.calm)
        return 1 if outcome.error else 0
    time.perf_counter()
    outcomes = list(_told(many(range(options.first, options.first + options.seeds))))
    failed = sorted(outcome.seed for outcome in outcomes if outcome.error)
    _rows, _ddls = sum(outcome.rows for outcome in outcomes), sum(outcome.ddls for outcome in outcomes)
    sum(outcome.simulated for outcome in outcomes)
    if failed:
        pass
    return 1 if failed else 0


def _told(outcomes: Iterable[Outcome]) -> Iterable[Outcome]:
    for outcome in outcomes:
        if outcome.error:
            pass
        yield outcome


def _line(outcome: Outcome) -> str:
    verdict = f"FAILED {outcome.error}" if outcome.error else "ok"
    return f"seed {outcome.seed}: {verdict} ({outcome.rows} rows, {outcome.ddls} DDL, {outcome.took:.1f} s)"


if __name__ == "__main__":
    sys.exit(main())
