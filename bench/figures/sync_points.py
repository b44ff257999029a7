"""`sync_points`: what points at which both sides are known to be equal cost a changefeed that follows, and how fast both sides are compared.

At 200 writes a second, beside tables at rest, with a point every ten seconds and continuous verification, and without both.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.figures.lag import arriving_in, lags, p99
from bench.product import Product, target_of
from bench.result import Figure
from bench.workload import Workload
from changefeed.records.requests import ChangefeedId
from changefeed.records.sync_point import SyncPoints, Verified
from coordination.layout import decode
from devstack.stack import DevStack
from source.connection import Client, connect

_RATE, _SECONDS = 200, 60
_EVERY_SECONDS, _BUDGET_MIB = 10, 16
_PROVEN = {
    "sync_points": {"every": f"{_EVERY_SECONDS}s", "keep": "10m"},
    "verify": {"continuous": True, "budget": f"{_BUDGET_MIB}MiB/s"},
}
_BEGINNING = range(2 * _EVERY_SECONDS * _RATE)
"""Until there have been points."""
_STEADY = range(_BEGINNING.stop, _BEGINNING.stop + _SECONDS * _RATE)
_COMPARISONS = 3
_SLUICE = str(Path(sys.executable).with_name("sluice"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steady:
    lags: list[float]
    seconds: float
    whole: int
    held_seconds: float
    compared_bytes: int


def sync_points(stack: DevStack) -> list[Figure]:
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        product.warm_up(source)
        plain, proven = _created(source, product, {}), _created(source, product, _PROVEN)
        without, beside = (_steady(source, target, product, each) for each in (plain, proven))
        _, id = proven
        at, now = _compared(product, id, "--at", "latest"), _compared(product, id)
    held, compared = beside.held_seconds / beside.seconds * 100, beside.compared_bytes / beside.seconds / 2**20
    note = f"medians {median(beside.lags):.0f} and {median(without.lags):.0f}"
    p99s = p99(beside.lags), p99(without.lags)
    return [
        Figure.more_is_better("sync_points_whole", beside.whole, "points", baseline=beside.seconds / _EVERY_SECONDS),
        Figure.less_is_better("sync_points_held", held, "% of the time", baseline=without.held_seconds),
        Figure.less_is_better("lag_p99_beside_sync_points", p99s[0], "ms", baseline=p99s[1], note=note),
        Figure.less_is_better("continuous_verification", compared, "MiB/s", baseline=_BUDGET_MIB),
        Figure.less_is_better("verify_at_a_point", at, "s", baseline=now, note="the baseline is a target at rest"),
    ]


def _created(source: Client, product: Product, more: Mapping[str, object]) -> tuple[Workload, ChangefeedId]:
    workload = Workload(events=400_000, tables=4, batch=5_000, database=f"bench_{uuid.uuid4().hex[:8]}")
    workload.prepare(source)
    workload.insert(source)
    source[workload.database].create_collection("rows")
    id = product.create(workload.database, start="initial", more=more)
    product.until_copied(id, workload.tables + 1)
    return workload, id


def _steady(source: Client, target: Client, product: Product, of: tuple[Workload, ChangefeedId]) -> _Steady:
    workload, id = of
    rows, arriving = source[workload.database]["rows"], arriving_in(target[target_of(workload.database)]["rows"])

    def write(number: int) -> None:
        rows.insert_one({"_id": number})

    lags(write, arriving, _BEGINNING, rate=_RATE)
    before, compared, begun_at = _points(product, id), _compared_bytes(product, id), time.monotonic()
    found = lags(write, arriving, _STEADY, rate=_RATE)
    seconds, after = time.monotonic() - begun_at, _points(product, id)
    return _Steady(
        lags=found,
        seconds=seconds,
        whole=after.whole - before.whole,
        held_seconds=after.held_seconds - before.held_seconds,
        compared_bytes=_compared_bytes(product, id) - compared,
    )


def _points(product: Product, id: ChangefeedId) -> SyncPoints:
    found = product.etcd.get(product.layout.sync(id))
    return decode(SyncPoints, found) if found else SyncPoints()


def _compared_bytes(product: Product, id: ChangefeedId) -> int:
    """By all passes so far, of which each reads the same."""
    found = product.etcd.get(product.layout.verified(id))
    verified = decode(Verified, found) if found else Verified()
    if verified.present is None:
        return 0
    each = verified.last.done.bytes if verified.last else 0
    return (verified.present.number - 1) * each + verified.present.done.bytes


def _compared(product: Product, id: ChangefeedId, *options: str) -> float:
    """Seconds. The best of several: nothing else is at work."""
    took = []
    for _ in range(_COMPARISONS):
        begun_at = time.monotonic()
        command = [_SLUICE, "verify", id, *options, "--server", product.admin_address()]
        subprocess.run(command, check=True, capture_output=True)
        took.append(time.monotonic() - begun_at)
    return min(took)
