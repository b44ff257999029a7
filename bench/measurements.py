"""The measurements by name. To add one: a function from `Servers` to results, and its name in MEASUREMENTS."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from bench.etcd_writes import etcd_writes
from bench.idle import idle_cpu
from bench.initial_copy import initial_copy
from bench.lag import lag_200ops
from bench.recorded import replies
from bench.replayed import cpu, pipeline_blackhole
from bench.replication import replication
from bench.result import Result
from bench.spark_shapes import spark_shapes
from bench.workload import DATABASE, Workload
from changefeed.document import Document
from devstack.stack import DevStack
from source.connection import Client, connect
from source.raw_event import scan
from source.raw_reply import parse_reply
from source.window_reader import ReadOptions, WindowReader


class Servers:
    """Source and target, started when a measurement first asks for them."""

    def __init__(self) -> None:
        self._stack: DevStack | None = None

    @property
    def stack(self) -> DevStack:
        if self._stack is None:
            self._stack = DevStack().start()
        return self._stack

    @contextmanager
    def source(self) -> Iterator[Client]:
        with connect(self.stack.source_uri) as client:
            yield client

    def stop(self) -> None:
        if self._stack is not None:
            self._stack.stop()


def event_scan(_: Servers) -> list[Result]:
    """Cutting a reply into events and finding their headers, against the driver's lazily decoded documents."""
    events = 50_000
    raw: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
    results = []
    for kind in ("insert", "update", "mixed"):
        recorded = list(replies(kind, events=events))

        def ours(recorded: list[bytes] = recorded) -> None:
            for reply in recorded:
                for event in parse_reply(reply).events:
                    scan(event)

        def driver(recorded: list[bytes] = recorded) -> None:
            for reply in recorded:
                for event in bson.decode(reply, raw)["cursor"]["nextBatch"]:
                    _ = event["operationType"], event["ns"].raw, event["documentKey"].raw, event["clusterTime"]

        micros = [_best_seconds(way) / events * 1e6 for way in (ours, driver)]
        results.append(Result.less_is_better(f"event_scan_{kind}", micros[0], "us/event", baseline=micros[1]))
    return results


def window_reader(servers: Servers) -> list[Result]:
    """Reading a window of inserts to the proof of its end, against reading as many events from the driver's change stream."""
    workload = Workload(events=40_000)
    with servers.source() as client:
        workload.prepare(client)
        window = workload.insert(client)
        match = {"ns.db": DATABASE, "operationType": "insert"}
        reader = WindowReader(client, ReadOptions(match=Document.of(match)))

        def ours() -> None:
            seen = sum(len(batch.events) for batch in reader.read(window))
            assert seen == workload.events, f"{seen} of {workload.events} events were read"

        def driver() -> None:
            start = window.start.ts.to_bson()
            with client.watch([{"$match": match}], start_at_operation_time=start, show_expanded_events=True) as stream:
                for _ in range(workload.events):
                    stream.next()

        rates = [workload.events / _best_seconds(way, times=2) for way in (ours, driver)]
    return [Result.more_is_better("window_reader", rates[0], "events/s", baseline=rates[1])]


def _best_seconds(run: Callable[[], None], *, times: int = 5) -> float:
    """The least disturbed of some runs."""
    taken = []
    for _ in range(times):
        begun_at = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun_at)
    return min(taken)


MEASUREMENTS: dict[str, Callable[[Servers], list[Result]]] = {
    "event_scan": event_scan,
    "pipeline_blackhole": lambda servers: pipeline_blackhole(servers.stack),
    "cpu": lambda servers: cpu(servers.stack),
    "replication": lambda servers: replication(servers.stack),
    "idle_cpu": lambda servers: idle_cpu(servers.stack),
    "lag_200ops": lambda servers: lag_200ops(servers.stack),
    "initial_copy": lambda servers: initial_copy(servers.stack),
    "window_reader": window_reader,
    "etcd_writes": lambda servers: etcd_writes(servers.stack),
}

ON_REQUEST: dict[str, Callable[[Servers], list[Result]]] = {"spark_shapes": lambda _: spark_shapes()}
"""What needs more than is installed for the project."""
