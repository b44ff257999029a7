"""`expected`: what one changefeed that catches up may reach with more executors. A model, of costs that were measured on two cores.

    python -m bench.executors                                   1, 2, 4 and 16 executors of two cores, servers of 16 cores
    python -m bench.executors --executors 8 --server-cores 32

What it assumes:

- rows are spread evenly over their `_id`s, no table has a unique index, and `pipeline.parallelism` is the number of slots;
- a window has as many rows as its slices may read (`WindowLimits`), and what it reads is written only when all slices have read;
- while a task works, the server works on its command before, so a stage takes what the slower of both takes;
- a server's throughput grows with the tasks that ask it, up to its cores: this is the best case of a `mongod`;
- networks and disks limit nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from processor.lanes.windows import WindowLimits

_READ, _APPLY = 7.5, 9.0
"""Microseconds of our CPU for an insert of a divided window: 16.5 by `python -m bench slices`. Of that the scan of headers and half of the shuffle,
which goes through the JVM, are taken to be reading's.
"""
_WHOLE = 7.9
"""Of an undivided one, which one task reads and applies."""
_SOURCE, _TARGET = 2.0, 6.5
"""Of the servers (`python -m bench catch_up`)."""
_JOB_SECONDS = 0.14
_SLOTS_EACH = 2
_DIVIDING_SLOTS = 4


@dataclass(frozen=True, slots=True)
class Expected:
    rate: float
    """Events a second."""
    limit: str


def expected(executors: int, server_cores: int) -> Expected:
    slots = executors * _SLOTS_EACH
    if slots < _DIVIDING_SLOTS:
        return Expected(1e6 / _WHOLE, "one task")
    events = WindowLimits().events * slots
    asked = min(slots, server_cores)
    reads, applies = (_READ / slots, _SOURCE / asked), (_APPLY / slots, _TARGET / asked)
    seconds = _JOB_SECONDS + events * (max(reads) + max(applies)) / 1e6
    servers = [name for name, (ours, theirs) in {"source": reads, "target": applies}.items() if theirs > ours]
    return Expected(events / seconds, " and ".join(servers) or "tasks")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.executors", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4, 16])
    parser.add_argument("--server-cores", type=int, default=16)
    chosen = parser.parse_args(arguments)
    table = Table("executors", "events/s, at best", "what limits")
    for executors in chosen.executors:
        found = expected(executors, chosen.server_cores)
        table.add_row(f"{executors}", f"{found.rate:,.0f}", found.limit)
    Console(width=80).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
