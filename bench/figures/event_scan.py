"""`event_scan`: splits replies of a change stream into events and reads their headers, compared with the driver's lazily decoded documents."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from bench.result import Figure
from bench.workload import Workload
from changefeed.position import Window
from devstack.stack import DevStack
from source.connection import Client, connect
from source.stream.events.raw_event import scan
from source.stream.events.raw_reply import parse_reply

_EVENTS, _TABLES = 50_000, 20
_REPETITIONS = 5
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
