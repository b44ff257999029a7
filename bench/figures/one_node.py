"""`one_node`: how soon the first row of a node with both roles is downstream, after its start and after a time without rows, and the memory it has.

The changefeed was paused before the node stopped, and is to run when it starts. Memory is the peak of the node, its JVM and its workers.
"""

from __future__ import annotations

import statistics
import time
import uuid

from bench.baselines.baseline import replicate_naively
from bench.figures.lag import arriving_in, lags
from bench.figures.many_tables.tables import plant, schema_of
from bench.product import Product, target_of
from bench.result import Figure
from bench.usage import Usage
from bench.workload import newest
from changefeed.records.requests import ChangefeedId, DesiredState
from changefeed.table import TableId
from devstack.stack import DevStack
from source.connection import Client, connect

_NODE, _TABLE = "node", "rows"
_TIMES = 3
_IDLE_SECONDS = 61.0
_FOLLOWED = 6_000
_FEW, _MANY = 20, 10_000
_SETTLED_SECONDS = 20.0


def one_node(stack: DevStack) -> list[Figure]:
    """The baseline of the first rows is the naive replicator, once its interpreter has started; of the memory with many tables, a few."""
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target:
        first = _FirstRows(source, target)
        with Product(stack, one_node=True) as product:
            id = product.create(first.database)
            product.until_begun(id)
            first.write()
            first.until_there(product)
            starts = [_start(product, id, first) for _ in range(_TIMES)]
            idle = [_idle(product, first) for _ in range(_TIMES)]
            with product.usage() as following:
                first.follow()
            product.remove(id)
        naive = [_naive(stack, source) for _ in range(_TIMES)]
        few, many = (_memory(stack, source, size) for size in (_FEW, _MANY))
    seconds = statistics.median(each.seconds for each in naive)
    size = max(each.peak["itself"] for each in naive) / 2**20
    return [
        Figure.less_is_better("first_row_after_start", statistics.median(starts), "s", baseline=seconds),
        Figure.less_is_better("first_row_after_idle", statistics.median(idle) * 1e3, "ms", baseline=seconds * 1e3),
        Figure.less_is_better("memory_following", _mib(following), "MiB", baseline=size, note=_parts(following)),
        Figure.less_is_better("memory_10000_tables", _mib(many), "MiB", baseline=_mib(few), note=_parts(many)),
    ]


class _FirstRows:
    """Rows of one table, each written when it is asked for."""

    def __init__(self, source: Client, target: Client) -> None:
        self.database = f"bench_{uuid.uuid4().hex[:8]}"
        source[self.database].create_collection(_TABLE)
        self._rows = source[self.database][_TABLE]
        self._target = target[target_of(self.database)][_TABLE]
        self._last = 0

    def write(self) -> None:
        self._last += 1
        self._rows.insert_one({"_id": self._last})

    def until_there(self, product: Product) -> None:
        product.until(lambda: self._target.count_documents({"_id": self._last}) > 0, "its row is there", every=0.005)

    def follow(self) -> None:
        numbers = range(self._last + 1, self._last + 1 + _FOLLOWED)
        lags(lambda number: self._rows.insert_one({"_id": number}), arriving_in(self._target), numbers)
        self._last = numbers[-1]


def _start(product: Product, id: ChangefeedId, rows: _FirstRows) -> float:
    product.want(id, DesiredState.PAUSED)
    product.until_still(id)
    product.stop(_NODE)
    product.want(id, DesiredState.RUNNING)
    rows.write()
    begun_at = time.monotonic()
    product.start(_NODE)
    rows.until_there(product)
    return time.monotonic() - begun_at


def _idle(product: Product, rows: _FirstRows) -> float:
    time.sleep(_IDLE_SECONDS)
    rows.write()
    begun_at = time.monotonic()
    rows.until_there(product)
    return time.monotonic() - begun_at


def _naive(stack: DevStack, source: Client) -> Usage:
    database = f"bench_{uuid.uuid4().hex[:8]}"
    start = newest(source).ts
    source[database][_TABLE].insert_one({})
    return replicate_naively(stack, start_ts=start, events=1, database=database)


def _memory(stack: DevStack, source: Client, size: int) -> Usage:
    """Of a node whose changefeed has so many tables, of which one gets rows."""
    database = f"bench_{uuid.uuid4().hex[:8]}"
    rows = source[database].create_collection(_TABLE)
    [found] = source[database].list_collections()
    at = newest(source)
    ids = [TableId(found["info"]["uuid"].hex()), *(TableId(uuid.uuid4().hex) for _ in range(size - 1))]
    names = [_TABLE, *(f"planted{number}" for number in range(size - 1))]
    schemas = [schema_of(id, database, name, at) for id, name in zip(ids, names, strict=True)]
    with Product(stack, one_node=True) as product:
        id = plant(product, stack.source_uri, database, schemas, at)
        for number in range(_FOLLOWED // 2):
            rows.insert_one({"_id": number})
        product.until_at(id, newest(source))
        time.sleep(_SETTLED_SECONDS)
        with product.usage() as usage:
            for number in range(_FOLLOWED // 2, _FOLLOWED):
                rows.insert_one({"_id": number})
            product.until_at(id, newest(source))
        product.remove(id)
    return usage


def _mib(usage: Usage) -> float:
    return sum(_ours(usage).values())


def _ours(usage: Usage) -> dict[str, float]:
    return {part: size / 2**20 for part, size in usage.peak.items() if part not in ("source", "target")}


def _parts(usage: Usage) -> str:
    return ", ".join(f"{part} {size:.0f}" for part, size in _ours(usage).items())
