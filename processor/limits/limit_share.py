"""`LimitShares`: which part of a changefeed's limits one node has: an equal one among the nodes that have something to write now. Pure.

    n1 copies, n2 has nothing left to copy       n1 the whole copy limit
    n1 and n2 copy                               each a half
    n2 begins a run and has not reported yet     each a half: it may be about to copy

Who copies, and where rows flow, is in the nodes' reports. A node that begins has its share at once, and the others take notice with its next
report: for that moment the limit may be exceeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from changefeed.records.node import NodeId, PositionReport


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitShares:
    copy: float = 1.0
    apply: float = 1.0

    @classmethod
    def among(cls, others: Mapping[NodeId, PositionReport | None], run: int) -> LimitShares:
        """`others`: the other nodes with tables, with their reports."""
        present = [None if report is not None and report.run != run else report for report in others.values()]
        return cls(
            copy=_share(report is None or report.copying or bool(report.copies) for report in present),
            apply=_share(report is not None and report.flowing for report in present),
        )


def _share(busy: Iterable[bool]) -> float:
    return 1.0 / (1 + sum(busy))
