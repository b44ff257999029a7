"""`ContinuousCheck`: has a part of all documents compared at each sync point, in turn, and records how far the pass is and what it has found.

    the point in etcd and in the target ──▶ a part is compared ──▶ its result in the target's record ──▶ `verified` in etcd, by this term

Crash just after      what it means
the comparison        nothing is written: the next owner compares the same part, at the newest point
the target's record   the record says what was found; the next owner compares the part again, and the pass counts it once
`verified` in etcd    the next part begins where this one ended
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import structlog

from changefeed.errors import FencedError
from changefeed.records.requests import ChangefeedId
from changefeed.records.sync_point import PartResult, SyncPoint, Verified
from owner.background import Background, Chore, logged
from owner.connections import Compare
from owner.etcd_view import OwnerView
from owner.etcd_writes import ChangefeedWriter
from sink.sink import SyncTarget

_AGAIN_SECONDS = 2.0

_log = structlog.get_logger()


class ContinuousCheck:
    """For the owner's thread, and one term of one changefeed."""

    def __init__(
        self, id: ChangefeedId, target: SyncTarget, compare: Compare, background: Background, writer: ChangefeedWriter
    ) -> None:
        self._id = id
        self._target = target
        self._compare = compare
        self._writer = writer
        self._log = _log.bind(changefeed=id)
        self._stop = threading.Event()
        self._tried: SyncPoint | None = None
        failed = logged(self._log.warning, "sync_point_not_compared")
        self._chore = Chore[tuple[Verified, SyncPoint, PartResult | None]](
            background, "comparison", _AGAIN_SECONDS, failed
        )

    def close(self) -> None:
        self._stop.set()

    def tick(self, known: OwnerView, point: SyncPoint) -> None:
        """`point`: the newest one, whose record is in the target. May write etcd."""
        before = known.verified
        later = before.at is None or point.source > before.at
        due = known.info.configuration.verify.continuous and later and point != self._tried

        def call() -> tuple[Verified, SyncPoint, PartResult | None]:
            stop = self._stop = threading.Event()
            compared = self._compare(self._id, point, before.place, stop)
            if stop.is_set():
                raise FencedError("this owner does not lead the changefeed any more")
            if compared is not None:
                self._target.compared(point, compared)
            return before, point, compared

        if not self._chore.tick(call, wanted=due) or self._chore.answer is None:
            return
        began, self._tried, compared = self._chore.answer
        if compared is None or began != before:
            return  # too old; or the changefeed has begun anew meanwhile
        self._writer.verified(before.after(self._tried.source, compared, datetime.now(UTC)))
        if compared.part.different:
            found = [f"{each.table}: {each.kind} {each.key}" for each in compared.differences[:3]]
            self._log.error("sides_differ", at=str(self._tried.source), count=compared.part.different, tables=found)
