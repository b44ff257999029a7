"""`tables`: what a changefeed costs by the number of its tables: at rest, under writes, for a DDL and for many at once, and when another
owner takes over.

A few tables exist at the source. The others are planted in etcd as if the changefeed had begun with them, so that 100,000 tables need no
200,000 files. The sink is the blackhole, so what is measured is what Sluice does itself.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from bench.etcd_traffic import EtcdTraffic
from bench.product import BLACKHOLE, Product
from bench.result import Figure
from bench.run import OURS
from bench.workload import newest
from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableKind, TableName, TableSchema
from coordination.etcd.protocol import Put, batches
from coordination.layout import decode, encode
from devstack.stack import DevStack
from source.connection import Client, connect

_SIZES = tuple(int(size) for size in os.environ.get("SLUICE_TABLES", "10 1000 10000 100000").split())
_REAL = 10
_SECONDS = 10.0
_DDLS = 10
_STORM = 1_000
_WRITES = 200
_SETTLES = 1.0
_MEMORY_GOAL = 5_000
_DEADLINE_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """A time under one load. For `ddls` of them, what each cost beyond the time at rest."""

    cpu: Mapping[str, float]
    """Milliseconds per second, or per DDL."""
    etcd_bytes: float
    etcd_writes: float
    memory: Mapping[str, float]
    """The peak, in MiB."""
    seconds: float = 0.0
    """Of the median DDL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    rest: Spell
    writes: Spell
    change: Spell
    create: Spell
    take_over: float
    """Seconds."""
    storm: float
    """Seconds."""

    @property
    def memory(self) -> float:
        return sum(self.create.memory.values())


def tables(stack: DevStack) -> list[Figure]:
    """Each cost beside the same with the least number of tables."""
    costs = {size: _costs(stack, size) for size in _SIZES}
    return [figure for size in _SIZES[1:] for figure in _figures(size, costs[size], costs[_SIZES[0]])]


def _figures(size: int, many: Costs, few: Costs) -> Iterator[Figure]:
    def figure(name: str, unit: str, value: float, baseline: float, note: Mapping[str, float] | None = None) -> Figure:
        text = ", ".join(f"{part} {share:.0f}" for part, share in (note or {}).items())
        return Figure.less_is_better(f"{name}, {size} tables", value, unit, baseline=baseline, note=text)

    for name in ("rest", "writes", "change", "create"):
        load, least = getattr(many, name), getattr(few, name)
        per, a_second = ("DDL", "") if load.seconds else ("s", "/s")
        yield figure(f"cpu_{name}", f"ms CPU{a_second}", sum(load.cpu.values()), sum(least.cpu.values()), load.cpu)
        yield figure(f"etcd_{name}", f"bytes/{per}", load.etcd_bytes, least.etcd_bytes, {"writes": load.etcd_writes})
        if load.seconds:
            yield figure(f"time_{name}", "ms", load.seconds * 1e3, least.seconds * 1e3)
    yield figure("take_over", "s", many.take_over, few.take_over)
    yield figure(f"storm_of_{2 * _STORM}_ddls", "s", many.storm, few.storm)
    per_table = (many.memory - few.memory) * 2**20 / (size - _SIZES[0])
    yield figure("memory_per_table", "bytes", per_table, _MEMORY_GOAL, many.create.memory)


def _costs(stack: DevStack, size: int) -> Costs:
    database = f"bench_{uuid.uuid4().hex[:8]}"
    with connect(stack.source_uri) as source, Product(stack) as product:
        product.warm_up(source)
        for number in range(_REAL):
            source[database].create_collection(f"t{number}")
        id = _plant(product, source, stack, database, size)
        product.until_at(id, newest(source))
        with _writing(source, database):
            time.sleep(_SECONDS)
        time.sleep(_SECONDS)
        with _measured(product) as rest:
            time.sleep(_SECONDS)
        with _writing(source, database), _measured(product) as writes:
            time.sleep(_SECONDS)
        time.sleep(_SECONDS / 2)
        change, create = (
            _ddls(product, id, source, partial(kind, source, database), rest) for kind in (_changed, _created)
        )
        take_over = _take_over(product, id)
        storm = _storm(product, id, source, database)
        product.remove(id)
        source.drop_database(database)
    return Costs(rest=rest[0], writes=writes[0], change=change, create=create, take_over=take_over, storm=storm)


def _ddls(product: Product, id: ChangefeedId, source: Client, ddl: Callable[[int], None], rest: list[Spell]) -> Spell:
    times: list[float] = []
    with _measured(product) as found:
        begun_at = time.monotonic()
        for number in range(_DDLS):
            before = newest(source)
            ddl(number)
            times.append(_until_done(product, id, before))
        time.sleep(_SETTLES)
        seconds = time.monotonic() - begun_at
    [spell], [idle] = found, rest
    each = seconds / _DDLS
    return Spell(
        cpu={part: max(0.0, (millis - idle.cpu[part]) * each) for part, millis in spell.cpu.items()},
        etcd_bytes=(spell.etcd_bytes - idle.etcd_bytes) * each,
        etcd_writes=(spell.etcd_writes - idle.etcd_writes) * each,
        memory=spell.memory,
        seconds=statistics.median(times),
    )


@contextmanager
def _measured(product: Product) -> Iterator[list[Spell]]:
    found: list[Spell] = []
    with EtcdTraffic(product.etcd, product.layout) as traffic, product.usage() as usage:
        yield found
    found.append(
        Spell(
            cpu={part: usage.millis(part) for part in OURS},
            etcd_bytes=traffic.bytes / usage.seconds,
            etcd_writes=traffic.writes / usage.seconds,
            memory={part: usage.peak[part] / 2**20 for part in OURS},
        )
    )


def _plant(product: Product, source: Client, stack: DevStack, database: str, size: int) -> ChangefeedId:
    at = newest(source)
    real = [
        schema_of(TableId(found["info"]["uuid"].hex()), database, found["name"], at)
        for found in source[database].list_collections()
    ]
    planted = [
        schema_of(TableId(uuid.uuid4().hex), database, f"p{number:06}", at) for number in range(size - len(real))
    ]
    return plant(product, stack.source_uri, database, [*real, *planted], at)


def plant(product: Product, source: str, database: str, tables: Sequence[TableSchema], at: Position) -> ChangefeedId:
    """A changefeed into the blackhole, as its owner leaves it just after its beginning."""
    id = ChangefeedId(f"f-{uuid.uuid4().hex[:8]}")
    fields = {
        "id": id,
        "source": source,
        "sink": BLACKHOLE,
        "start": "now",
        "filter": {"tables": [f"{database}.*"]},
    }
    configuration = Configuration.parse(fields)
    info = ChangefeedInfo(capture=Capture.OPLOG, configuration=configuration, created_at=datetime.now(UTC))
    layout = product.layout
    for batch in batches([Put(layout.schema(id, table.id), encode(table))] for table in tables):
        product.etcd.txn((), batch)
    status = ChangefeedStatus(
        start=at,
        tables=configuration.filter.tables,
        checkpoint=at,
        resolved=at,
        run=1,
        info_version=1,
        epoch=0,
        capture=Capture.OPLOG,
    )
    barrier = Barrier(epoch=0, position=at)
    records = [(layout.barrier(id), barrier), (layout.status(id), status), (layout.info(id), info)]
    product.etcd.txn((), [Put(key, encode(record)) for key, record in records])
    return id


def schema_of(id: TableId, database: str, name: str, at: Position) -> TableSchema:
    index = Document.of({"v": 2, "key": {"customer": 1, "at": -1}, "name": "customer_1_at_-1"})
    return TableSchema(
        id=id,
        name=TableName(database, name),
        kind=TableKind.COLLECTION,
        options=Document.of({}),
        indexes=(index,),
        valid_from=at,
    )


def _changed(source: Client, database: str, number: int) -> None:
    source[database].command("collMod", "t0", validator={"n": {"$ne": number}})


def _created(source: Client, database: str, number: int) -> None:
    source[database].create_collection(f"new{number}")


def _until_done(product: Product, id: ChangefeedId, since: Position) -> float:
    """From the source's answer to the moment at which etcd says that the DDL is done downstream."""
    begun_at = time.monotonic()
    while True:
        found = [decode(DdlRecord, kv) for kv in product.etcd.range(product.layout.ddls(id)).items]
        if any(record.position >= since and not record.open for record in found):
            return time.monotonic() - begun_at
        assert time.monotonic() < begun_at + _DEADLINE_SECONDS, "the DDL was not done in time"
        time.sleep(0.005)


def _take_over(product: Product, id: ChangefeedId) -> float:
    """From the start of another owner's process to its first barrier, when the lease of a killed one is over."""
    product.kill("owner")
    while product.etcd.range(product.layout.owners).items:
        time.sleep(0.02)
    begun_at, before = time.monotonic(), _epoch(product, id)
    product.start("owner")
    while _epoch(product, id) == before:
        assert time.monotonic() < begun_at + _DEADLINE_SECONDS, "no other owner took over in time"
        time.sleep(0.02)
    return time.monotonic() - begun_at


def _storm(product: Product, id: ChangefeedId, source: Client, database: str) -> float:
    """From the first of so many creates and drops until all are downstream. The owner is killed after the creates."""
    begun_at = time.monotonic()
    for number in range(_STORM):
        source[database].create_collection(f"storm{number}")
    product.kill("owner")
    product.start("owner")
    for number in range(_STORM):
        source[database].drop_collection(f"storm{number}")
    product.until_at(id, newest(source))
    return time.monotonic() - begun_at


def _epoch(product: Product, id: ChangefeedId) -> int:
    found = product.etcd.get(product.layout.barrier(id))
    assert found is not None
    return decode(Barrier, found).epoch


@contextmanager
def _writing(source: Client, database: str) -> Iterator[None]:
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.wait(1 / _WRITES):
            source[database][f"t{number % _REAL}"].insert_one({"number": number})
            number += 1

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
