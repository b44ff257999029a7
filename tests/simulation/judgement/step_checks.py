"""`checked_barrier`, `CheckedLanes`: check the invariants of decisions after each step that it takes: each decision of an owner about its
barrier, and each new state of the lanes of a processor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from changefeed.errors import InvariantError
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from owner.ddl.barrier import BarrierDecision
from owner.ddl.stragglers import NOTHING, CheckpointOf, Waiting
from processor.following import Following
from tests.invariants import check_barrier, check_lanes
from tests.simulation.clockwork.machine import Violation


def checked_barrier(
    decide: Callable[..., BarrierDecision],
) -> Callable[[Position, Collection[DdlRecord], CheckpointOf, Waiting], BarrierDecision]:
    def decided(
        resolved: Position, records: Collection[DdlRecord], checkpoint_of: CheckpointOf, waiting: Waiting = NOTHING
    ) -> BarrierDecision:
        gate = decide(resolved, records, checkpoint_of, waiting)
        _checked(lambda: check_barrier(gate, records, checkpoint_of, waiting))
        return gate

    return decided


class CheckedLanes:
    """Stands in for the attribute in which a processor of a changefeed keeps its state."""

    def __get__(self, processor: Any, owner: type | None = None) -> Following:
        following: Following = processor.__dict__["_following"]
        return following

    def __set__(self, processor: Any, following: Following) -> None:
        before = processor.__dict__.get("_following")
        processor.__dict__["_following"] = following
        if before is None or before.lanes is not following.lanes:
            _checked(lambda: check_lanes(following.lanes))


def _checked(check: Callable[[], None]) -> None:
    try:
        check()
    except InvariantError as error:
        raise Violation(f"step: {error}") from error
