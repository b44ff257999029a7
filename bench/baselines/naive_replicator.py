"""The baseline of replication, as written in an afternoon: one thread, the driver's change stream, bulk upserts.

python -m bench.baselines.naive_replicator SOURCE TARGET --from 1795224774.9 --events 100000
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import bson
import pyarrow as pa
import pyarrow.parquet as pq
from bson import json_util
from confluent_kafka import Producer
from pymongo import DeleteOne, MongoClient, ReplaceOne, UpdateOne

from bench.baselines.baseline import say_done, wait_for_start
from changefeed.cluster_time import ClusterTime

_BATCH = 2_000
_LONGEST_SECONDS = 0.1
_ROWS = ["insert", "update", "replace", "delete"]
Event = dict[str, Any]
Request = ReplaceOne[Event] | UpdateOne | DeleteOne
Apply: TypeAlias = Callable[[Sequence[Event]], None]
_TEXTS, _BYTES = ("op", "ns", "pos", "key", "after", "update"), ("key_bson", "after_bson", "update_bson")
_COLUMNS = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        *((name, pa.binary()) for name in _BYTES),
        ("ts", pa.timestamp("ms", tz="UTC")),
        ("increment", pa.int64()),
    ]
)
_LETTERS = {"insert": "i", "update": "u", "replace": "R", "delete": "d"}


def replicate(
    source: MongoClient[Event], apply: Apply | None, *, start_ts: ClusterTime, database: str, events: int
) -> None:
    """Returns when so many events have been applied, or without a target read."""
    pipeline = [{"$match": {"ns.db": database, "operationType": {"$in": _ROWS}}}]
    applied = 0
    with source.watch(
        pipeline, start_at_operation_time=start_ts.to_bson(), batch_size=_BATCH, max_await_time_ms=50
    ) as stream:
        while applied < events:
            batch = _next_batch(stream, min(_BATCH, events - applied))
            if apply is not None:
                apply(batch)
            applied += len(batch)


def _next_batch(stream: Any, size: int) -> list[Event]:
    """The events that have arrived, after a tenth of a second at the latest."""
    batch: list[Event] = []
    deadline = time.monotonic() + _LONGEST_SECONDS
    while len(batch) < size and time.monotonic() < deadline:
        event = stream.try_next()
        if event is None:
            break
        batch.append(event)
    return batch


def _apply(target: MongoClient[Event], batch: Sequence[Event]) -> None:
    requests: dict[tuple[str, str], list[Request]] = {}
    for event in batch:
        requests.setdefault((event["ns"]["db"], event["ns"]["coll"]), []).append(_request(event))
    for (db, coll), some in requests.items():
        target[db][coll].bulk_write(some)


def _request(event: Event) -> Request:
    key = event["documentKey"]
    if event["operationType"] == "delete":
        return DeleteOne(key)
    if event["operationType"] != "update":
        return ReplaceOne(key, event["fullDocument"], upsert=True)
    changed, removed = event["updateDescription"]["updatedFields"], event["updateDescription"]["removedFields"]
    update = {"$set": changed, "$unset": dict.fromkeys(removed, "")}
    return UpdateOne(key, {operator: fields for operator, fields in update.items() if fields})


def _write(to: BinaryIO, batch: Sequence[Event]) -> None:
    """As the product's lines, compressed as they are. One file for all tables, durable after each batch."""
    lines = [json_util.dumps(_message(event), json_options=json_util.CANONICAL_JSON_OPTIONS) for event in batch]
    to.write(gzip.compress("".join(f"{line}\n" for line in lines).encode(), compresslevel=1))
    to.flush()
    os.fsync(to.fileno())


def _produce(producer: Producer, topic: str, batch: Sequence[Event]) -> None:
    """To one topic. Durable after each batch, as far as one broker is."""
    for event in batch:
        key = json_util.dumps(event["documentKey"], json_options=json_util.CANONICAL_JSON_OPTIONS)
        value = json_util.dumps(_message(event), json_options=json_util.CANONICAL_JSON_OPTIONS)
        producer.produce(topic, value, key)
    if producer.flush(60):
        raise TimeoutError(f"{topic}: not all messages were acknowledged")


def _message(event: Event) -> Event:
    time, ns = event["clusterTime"], event["ns"]
    message = {
        "v": 1,
        "feed": "naive",
        "op": _LETTERS[event["operationType"]],
        "ns": f"{ns['db']}.{ns['coll']}",
        "pos": event["_id"]["_data"],
        "ts": {"t": time.time, "i": time.inc},
        "key": event["documentKey"],
    }
    if "fullDocument" in event:
        message["after"] = event["fullDocument"]
    if "updateDescription" in event:
        changed = event["updateDescription"]
        message["update"] = {"set": changed["updatedFields"], "unset": changed["removedFields"]}
    return message


def _write_columns(to: pq.ParquetWriter, batch: Sequence[Event]) -> None:
    """As the product's Parquet: the documents as JSON and as BSON."""
    rows = [_row(event) for event in batch]
    to.write_table(pa.Table.from_pylist(rows, schema=_COLUMNS))


def _row(event: Event) -> Event:
    message = _message(event)
    row = {name: message[name] for name in ("op", "ns", "pos")}
    row["ts"], row["increment"] = message["ts"]["t"] * 1000, message["ts"]["i"]
    for name in ("key", "after", "update"):
        if name in message:
            row[name] = json_util.dumps(message[name], json_options=json_util.CANONICAL_JSON_OPTIONS)
            row[f"{name}_bson"] = bson.encode(message[name])
    return row


def _opened(target: str, files: ExitStack, clients: ExitStack) -> Apply | None:
    if target.startswith("blackhole:"):
        return None
    if target.endswith(".parquet"):
        to = pq.ParquetWriter(target.removeprefix("file://"), _COLUMNS, compression="gzip", compression_level=1)
        return partial(_write_columns, files.enter_context(to))
    if target.startswith("file://"):
        return partial(_write, files.enter_context(Path(target.removeprefix("file://")).open("wb")))
    if target.startswith("kafka://"):
        brokers, _, topic = target.removeprefix("kafka://").partition("/")
        return partial(_produce, Producer({"bootstrap.servers": brokers, "compression.type": "lz4"}), topic)
    return partial(_apply, clients.enter_context(MongoClient[Event](target)))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--from", dest="start", required=True, type=ClusterTime.parse)
    parser.add_argument("--database", default="bench")
    parser.add_argument("--events", required=True, type=int)
    given = parser.parse_args(arguments)
    with ExitStack() as clients:
        source = clients.enter_context(MongoClient[Event](given.source))
        with ExitStack() as files:
            apply = _opened(given.target, files, clients)
            wait_for_start()
            replicate(source, apply, start_ts=given.start, database=given.database, events=given.events)
        say_done()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
