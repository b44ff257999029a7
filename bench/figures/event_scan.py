"""`event_scan`: splits replies of a change stream into events and reads their headers, compared with the driver's lazily decoded documents.

`extended_json`: writes documents as canonical Extended JSON from their bytes, compared with `bson.json_util`. It needs no server.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import bson
from bson import json_util
from bson.codec_options import CodecOptions
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from bench.result import Figure
from bench.workload import Workload
from changefeed.position import Window
from devstack.stack import DevStack
from sluice_client.extended_json import to_json
from source.connection import Client, connect
from source.stream.change_event import parse_reply, scan

_EVENTS, _TABLES = 50_000, 20
_REPETITIONS = 5
_DOCUMENTS = 20_000
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)


def event_scan(stack: DevStack) -> list[Figure]:
    workload = Workload(events=_EVENTS, tables=_TABLES, database=f"bench_{uuid.uuid4().hex[:8]}")
    results = []
    with connect(stack.source_uri) as source:
        workload.prepare(source)
        for kind, write in (("insert", workload.insert), ("mixed", workload.mix)):
            replies = list(_replies(source, workload.database, write(source)))

            def ours(replies: list[bytes] = replies) -> None:
                for reply in replies:
                    for event in parse_reply(reply).events:
                        scan(event)

            def driver(replies: list[bytes] = replies) -> None:
                for reply in replies:
                    for event in bson.decode(reply, _RAW)["cursor"]["nextBatch"]:
                        _ = event["operationType"], event["ns"].raw, event["documentKey"].raw, event["clusterTime"]

            micros = [_least_seconds(way) / _EVENTS * 1e6 for way in (ours, driver)]
            results.append(Figure.less_is_better(f"event_scan_{kind}", micros[0], "us/event", baseline=micros[1]))
    return results


def extended_json(stack: DevStack) -> list[Figure]:  # noqa: ARG001 - the same signature as any measurement
    kinds: dict[str, dict[str, Any]] = {
        "order": {
            "_id": ObjectId(),
            "number": 1,
            "name": "some customer name",
            "total": 12.5,
            "tags": ["new", "paid"],
            "address": {"street": "x" * 20, "zip": 12345},
        },
        "text": {"_id": 7, "version": 1, "text": "x" * 200},
        "doubles": {"_id": 7, "values": [number * 1.5 for number in range(50)]},
    }
    results = []
    for kind, fields in kinds.items():
        document = bson.encode(fields)

        def ours(document: bytes = document) -> None:
            for _ in range(_DOCUMENTS):
                to_json(document)

        def driver(document: bytes = document) -> None:
            for _ in range(_DOCUMENTS):
                json_util.dumps(bson.decode(document), json_options=json_util.CANONICAL_JSON_OPTIONS)

        micros = [_least_seconds(way) / _DOCUMENTS * 1e6 for way in (ours, driver)]
        results.append(Figure.less_is_better(f"extended_json_{kind}", micros[0], "us/document", baseline=micros[1]))
    return results


def _replies(source: Client, database: str, window: Window) -> Iterator[bytes]:
    """The raw replies of the server."""
    raw: Database[Any] = source.get_database("admin", codec_options=_RAW)
    stream: dict[str, Any] = {
        "startAtOperationTime": window.start.ts.to_bson(),
        "allChangesForCluster": True,
        "showExpandedEvents": True,
    }
    pipeline = [{"$changeStream": stream}, {"$match": {"ns.db": database}}]
    opened = raw.command({"aggregate": 1, "pipeline": pipeline, "cursor": {"batchSize": 0}})
    cursor, seen = opened["cursor"]["id"], 0
    while seen < _EVENTS:
        reply: Any = raw.command({"getMore": cursor, "collection": "$cmd.aggregate"}, codec_options=_RAW)
        seen += len(reply["cursor"]["nextBatch"])
        yield bytes(reply.raw)
    raw.command({"killCursors": "$cmd.aggregate", "cursors": [cursor]})


def _least_seconds(run: Callable[[], None]) -> float:
    """The shortest of several runs, which is the least disturbed one."""
    taken = []
    for _ in range(_REPETITIONS):
        begun_at = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun_at)
    return min(taken)
