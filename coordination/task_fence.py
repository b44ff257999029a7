"""`Fence`: what a Spark task has to see in etcd in order to write downstream, and for how long it may write after it has seen that. Pure.

A task may outlive its driver's lease: an executor that is cut off gets no message. So the task itself looks, when it starts, and then every
`LOOK_EVERY` (`processor/task/permit.py`). It writes only within a budget, counted from the *start* of the last look that found all as it was:

    look starts         answered: all as it was                    budget over
    ├───────────────────────┤                                        │
    0                                                              budget      (monotonic clock of the executor)
         the node may have lost its lease just after 0 at the earliest

After the lease is gone, the owner waits for that budget, and until what was sent at its end has arrived (`ARRIVES_WITHIN` in
`sink/sink.py`), before it gives the tables to another node. Only durations are compared,
never clocks of two machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from coordination.etcd.protocol import EtcdConfig

BUDGET = timedelta(seconds=10)
LOOK_EVERY = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The conditions in etcd under which a task may write: the node lives, and the changefeed is still in this run."""

    etcd: EtcdConfig
    """Names files, and contains no password."""
    node_key: str
    epoch: int
    status_key: str
    run: int
