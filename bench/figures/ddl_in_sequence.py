"""`ddl_of_one_name`, `recopy_at_rest`: DDLs of which each waits for the one before. Their baselines are goals: a script without order waits for nothing."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Iterable

from bench.product import Product, target_of
from bench.result import Figure
from bench.workload import newest
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from devstack.stack import DevStack
from source.connection import connect

_ROUNDS = 50
_ROUND_SECONDS = 0.02
_GOAL_DDLS = 5.0
_DOCUMENTS = 500
_RECOPIES = 3
_AT_REST_SECONDS = 12.0
"""Longer than a no-op of the source is away."""
_GOAL_SECONDS = 3.0


def ddl_of_one_name(stack: DevStack) -> list[Figure]:
    """Drop, create and insert, fifty times a second at the source. Measured until all of it is downstream."""
    database = f"bench_{uuid.uuid4().hex[:8]}"
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        product.warm_up(source)
        table = source[database]["stage"]
        table.insert_one({"_id": -1})
        id = product.create(database)
        product.until_begun(id)
        begun_at = time.monotonic()
        for number in range(_ROUNDS):
            time.sleep(max(0.0, begun_at + number * _ROUND_SECONDS - time.monotonic()))
            table.drop()
            table.database.create_collection(table.name)
            table.insert_one({"_id": number})
        end = Position(newest(source).ts.next())
        source[f"{database}_after"]["note"].insert_one(
            {}
        )  # or the source's next no-op, up to ten seconds away, would be waited for
        product.until_at(id, end)
        seconds = time.monotonic() - begun_at
        assert target[target_of(database)][table.name].distinct("_id") == [_ROUNDS - 1]
        note = _shares(product.ddls(id))
    return [Figure.more_is_better("ddl_of_one_name", 2 * _ROUNDS / seconds, "DDL/s", baseline=_GOAL_DDLS, note=note)]


def recopy_at_rest(stack: DevStack) -> list[Figure]:
    """A small table is copied anew while nobody writes to the source. The median of three."""
    database = f"bench_{uuid.uuid4().hex[:8]}"
    with connect(stack.source_uri) as source, Product(stack) as product:
        product.warm_up(source)
        source[database]["few"].insert_many([{"_id": number} for number in range(_DOCUMENTS)])
        id = product.create(database, start="initial")
        product.until_copied(id, 1)
        took = []
        for number in range(_RECOPIES):
            time.sleep(_AT_REST_SECONDS)
            begun_at = time.monotonic()
            product.recopy(id)
            product.until_exchanged(id, number + 1)
            took.append(time.monotonic() - begun_at)
    note = ", ".join(f"{seconds:.1f}" for seconds in took)
    seconds = statistics.median(took)
    return [Figure.less_is_better("recopy_at_rest", seconds, "s", baseline=_GOAL_SECONDS, note=note)]


def _shares(records: Iterable[DdlRecord]) -> str:
    """What most DDLs wait for."""
    waited, ran = [], []
    last_at = None
    for record in sorted(records, key=lambda record: record.position):
        if last_at is not None and record.executing_at is not None and record.done_at is not None:
            waited.append((record.executing_at - last_at).total_seconds())
            ran.append((record.done_at - record.executing_at).total_seconds())
        last_at = record.done_at
    return f"medians: {statistics.median(waited) * 1e3:.0f} ms to the observation, {statistics.median(ran) * 1e3:.0f} ms to the release"
