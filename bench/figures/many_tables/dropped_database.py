"""`dropped_database`: what a dropDatabase costs by the number of its tables, from the entries in the source's oplog until all are done
downstream, with the owner killed meanwhile.

The source logs the drop of each collection before the drop of its database. 100,000 collections would be 200,000 files, so a server that is
alone for a moment is given these entries; then it is a replica set again. The tables are planted in etcd, and the sink is the blackhole.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bson import Binary, Int64, Timestamp
from pymongo.errors import PyMongoError

from bench.etcd_traffic import EtcdTraffic
from bench.figures.many_tables.tables import plant, schema_of
from bench.product import Product
from bench.result import Figure
from bench.run import OURS
from bench.workload import newest
from changefeed.position import Position
from changefeed.table import TableId, TableSchema
from devstack.mongodb.server import MongoDB
from devstack.stack import DevStack
from source.connection import connect

_SIZES = tuple(int(size) for size in os.environ.get("SLUICE_TABLES", "1000 10000 100000").split())
_TOGETHER = 5_000


class _Alone(MongoDB):
    """Without its replica set, a server takes entries into its oplog."""

    def command(self) -> list[str]:
        words = super().command()
        at = words.index("--replSet")
        return [*words[:at], *words[at + 2 :]]

    def ready(self) -> bool:
        try:
            with self.stranger(serverSelectionTimeoutMS=500) as client:
                return bool(client.admin.command("ping")["ok"])
        except PyMongoError:
            return False


@dataclass(frozen=True, slots=True)
class _Costs:
    """Of one dropDatabase, in seconds, bytes and MiB."""

    seconds: float
    bytes: int
    largest: int
    memory: float
    note: str


def dropped_database(stack: DevStack) -> list[Figure]:
    costs = {size: _costs(stack, size) for size in _SIZES}
    return [figure for size in _SIZES for figure in _figures(size, costs[size], costs[_SIZES[0]])]


def _figures(size: int, many: _Costs, few: _Costs) -> Iterator[Figure]:
    least = _SIZES[0]
    note = f"in all {many.seconds:.0f} s; the baseline is a table of {least}"
    yield Figure.less_is_better(
        f"time_of_a_drop, {size} tables",
        many.seconds / size * 1e3,
        "ms/table",
        baseline=few.seconds / least * 1e3,
        note=note,
    )
    note = f"the largest value {many.largest} bytes"
    yield Figure.less_is_better(
        f"etcd_of_a_drop, {size} tables", many.bytes / size, "bytes/table", baseline=few.bytes / least, note=note
    )
    yield Figure.less_is_better(f"memory, {size} tables", many.memory, "MiB", baseline=few.memory, note=many.note)


def _costs(stack: DevStack, size: int) -> _Costs:
    database = f"bench_{uuid.uuid4().hex[:8]}"
    with TemporaryDirectory() as directory:
        place = Path(directory)
        server = MongoDB("source", place / "data", place / "log")
        with server, connect(server.uri) as source:
            at = newest(source)
        tables = [schema_of(TableId(uuid.uuid4().hex), database, f"p{number:06}", at) for number in range(size)]
        with _Alone("source", place / "data", place / "log", port=server.port) as alone:
            _log_drops(alone, database, tables)
        with server, Product(stack) as product:
            return _replicated(stack, product, server, database, tables, at)


def _log_drops(alone: MongoDB, database: str, tables: Sequence[TableSchema]) -> None:
    with alone.stranger() as client:
        oplog = client.local["oplog.rs"]
        last = next(oplog.find().sort("$natural", -1).limit(1))
        commands: list[dict[str, Any]] = [
            {"ui": Binary(bytes.fromhex(table.id), 4), "o": {"drop": table.name.coll}, "o2": {"numRecords": 0}}
            for table in tables
        ]
        commands.append({"o": {"dropDatabase": 1}})
        same = {"op": "c", "ns": f"{database}.$cmd", "t": last["t"], "v": Int64(2), "wall": datetime.now(UTC)}
        entries = [
            {**command, **same, "ts": Timestamp(last["ts"].time + 1, number)}
            for number, command in enumerate(commands, start=1)
        ]
        for first in range(0, len(entries), _TOGETHER):
            oplog.insert_many(entries[first : first + _TOGETHER])


def _replicated(
    stack: DevStack, product: Product, server: MongoDB, database: str, tables: Sequence[TableSchema], at: Position
) -> _Costs:
    with connect(stack.source_uri) as another:
        product.warm_up(another)
    with connect(server.uri) as source:
        id = plant(product, server.uri, database, tables, at)
        begun_at = time.monotonic()
        with EtcdTraffic(product.etcd, product.layout) as traffic:
            product.until_ddl(id)
            product.kill("owner")
            product.start("owner")
            with product.usage() as usage:
                product.until_at(id, newest(source))
        seconds = time.monotonic() - begun_at
    memory = {part: usage.peak[part] / 2**20 for part in OURS}
    note = ", ".join(f"{part} {share:.0f}" for part, share in memory.items())
    return _Costs(seconds, traffic.bytes, traffic.largest, sum(memory.values()), note)
