"""`unique`, `capped`: catching up with tables whose rows depend on each other, beside tables whose rows do not.

The writes of `unique` alternate between an insert, an update and a delete, of which every fourth update gives the row another unique value. The tables
beside it have the same index, which is not unique there. The naive replicator ends a command where the kind of its writes changes, too.

In a full capped table each insert rolls one document off. What the server deletes so is in the oplog since 5.0; only the inserts count as events.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pymongo import DeleteOne, InsertOne, UpdateOne, WriteConcern

from bench.baselines.baseline import replicate_naively
from bench.product import Product, target_of
from bench.result import Figure
from bench.run import Comparison, Run
from bench.workload import Write, newest, resolved
from changefeed.position import Window
from devstack.stack import DevStack
from source.connection import Client, connect

_EVENTS, _TABLES = 60_000, 20
_EACH = _EVENTS // _TABLES
_WRITERS, _BATCH = 4, 500
_PAD = "x" * 120
_CAPPED_EVENTS, _CAPPED_MOST, _CAPPED_BYTES = 100_000, 5_000, 16 << 20
_PAIRS = 3
"""One run of a few seconds scatters by half; the figure is of the pair with the median ratio."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alternating:
    """Tables with one secondary index, at the source, and at the target under the names of ours and of the naive replicator."""

    database: str
    unique: bool

    def prepare(self, source: Client, target: Client) -> None:
        for client, database in (
            (source, self.database),
            (target, self.database),
            (target, target_of(self.database)),
        ):
            for name in self._names():
                table = client[database][name]
                table.create_index("k", unique=self.unique)
                table.insert_many([_document(number) for number in range(2 * _EACH // 3)])

    def write(self, source: Client) -> Window:
        """Several writers, which do not wait for the majority, since a server takes each of these writes in a command of its own."""
        start = newest(source)
        with ThreadPoolExecutor(_WRITERS) as writers:
            list(writers.map(partial(self._write_to, source), self._names()))
        return Window(start, resolved(source, self.database))

    def _write_to(self, source: Client, name: str) -> None:
        table = source[self.database].get_collection(name, write_concern=WriteConcern(1))
        table.bulk_write([write for number in range(_EACH // 3) for write in _one_of_each(number)])

    @staticmethod
    def _names() -> list[str]:
        return [f"table{number:02}" for number in range(_TABLES)]


def _document(number: int) -> Document:
    return {"_id": number, "k": number, "a": number, "s": _PAD}


def _one_of_each(number: int) -> Iterable[Write]:
    """The deleted document is not one of the updated ones."""
    updated = {"a": -1 - number} | ({"k": -1 - number} if number % 4 == 0 else {})
    yield InsertOne(_document(10 * _EACH + number))
    yield UpdateOne({"_id": 2 * number}, {"$set": updated})
    yield DeleteOne({"_id": 2 * number + 1})


def unique(stack: DevStack) -> list[Figure]:
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        product.warm_up(source)
        plain = _alternating(stack, source, target, product, unique=False)
        ordered = _alternating(stack, source, target, product, unique=True)
    note = "itself + source + target: ours {0.ours.shares}, naive {0.naive.shares}".format
    beside = "the baseline is an index that is not unique"
    return [
        replace(plain.rate("catch_up_alternating"), note=note(plain)),
        replace(ordered.rate("catch_up_unique"), note=note(ordered)),
        Figure.more_is_better(
            "catch_up_unique_beside_plain", ordered.ours.rate, "events/s", baseline=plain.ours.rate, note=beside
        ),
    ]


def _alternating(stack: DevStack, source: Client, target: Client, product: Product, *, unique: bool) -> Comparison:
    tables = _Alternating(database=_database(), unique=unique)
    tables.prepare(source, target)
    window = tables.write(source)
    ours = _caught_up(product, tables.database, window, _EVENTS)
    naive = replicate_naively(stack, start_ts=window.start.ts, events=_EVENTS, database=tables.database)
    return Comparison(ours=ours, naive=Run(naive, _EVENTS))


def capped(stack: DevStack) -> list[Figure]:
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        product.warm_up(source)
        pairs = [[_inserted(source, target, product, options) for options in ({}, _CAPPED)] for _ in range(_PAIRS)]
    plain, full = sorted(pairs, key=lambda pair: pair[1].rate / pair[0].rate)[_PAIRS // 2]
    note = "the baseline is a plain table"
    note += f"; itself + source + target: {full.shares}, plain {plain.shares}"
    return [Figure.more_is_better("catch_up_capped", full.rate, "inserts/s", baseline=plain.rate, note=note)]


_CAPPED = {"capped": True, "size": _CAPPED_BYTES, "max": _CAPPED_MOST}


def _inserted(source: Client, target: Client, product: Product, options: Document) -> Run:
    database = _database()
    for client, name in ((source, database), (target, target_of(database))):
        client[name].create_collection("table", **options)
        client[name]["table"].insert_many([_document(number) for number in range(_CAPPED_MOST)])
    start = newest(source)
    for documents in _batches(range(_CAPPED_MOST, _CAPPED_MOST + _CAPPED_EVENTS)):
        source[database]["table"].insert_many(documents)
    return _caught_up(product, database, Window(start, resolved(source, database)), _CAPPED_EVENTS)


def _batches(numbers: range) -> Iterator[list[Document]]:
    for first in range(numbers.start, numbers.stop, _BATCH):
        yield [_document(number) for number in range(first, min(first + _BATCH, numbers.stop))]


def _database() -> str:
    return f"bench_{uuid.uuid4().hex[:8]}"


def _caught_up(product: Product, database: str, window: Window, events: int) -> Run:
    """From the moment when the changefeed has begun."""
    id = product.create(database, start=str(window.start.ts))
    product.until_begun(id)
    with product.usage() as usage:
        product.until_at(id, window.end)
    product.remove(id)
    product.until_gone(id)
    return Run(usage, events)
