from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import bson
from bson.timestamp import Timestamp
from structlog.testing import capture_logs

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from processor.task.stall_watch import StallWatch
from source.raw_row import Header
from source.stream.change_event import scan

EVENT = scan(
    bson.encode(
        {
            "_id": {"_data": "82"},
            "operationType": "insert",
            "clusterTime": Timestamp(1, 1),
            "ns": {"db": "shop", "coll": "orders"},
            "documentKey": {"_id": 7},
        }
    )
)
SCHEMA = TableSchema(id=TableId("aa" * 16), name=TableName("shop", "items"), valid_from=Position(ClusterTime(1, 0)))


class Held:
    """A task that stands at a row until it is told to take the next one."""

    def __init__(self) -> None:
        self.watch = StallWatch(every=3600)
        self.standing = threading.Semaphore(0)
        self.next = threading.Semaphore(0)

    def event(self, header: Header) -> None:
        self.standing.release()
        self.next.acquire()

    def document(self, schema: TableSchema, document: bytes) -> None:
        self.standing.release()
        self.next.acquire()

    def run(self, *stands: Callable[[], None]) -> None:
        with self.watch.task("feed"):
            for stand in stands:
                stand()


def told(held: Held, looks: int) -> list[tuple[str, str]]:
    held.standing.acquire()
    with capture_logs() as logs:
        for _ in range(looks):
            held.watch.look()
    return [(log["table"], log["row"]) for log in logs if log["event"] == "task_stands_still"]


def test_a_row_at_which_a_task_stands_for_a_minute_is_named_once() -> None:
    held, last = Held(), bson.encode({"_id": 9, "text": "x"})
    stands = (
        lambda: held.event(EVENT),
        lambda: held.event(EVENT._replace(key=bson.encode({"_id": 8}))),
        lambda: held.document(SCHEMA, last),
    )
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(held.run, *stands)
        assert told(held, 5) == []
        held.next.release()
        assert told(held, 5) == []
        held.next.release()
        assert told(held, 5) == []
        held.standing.release()
        assert told(held, 10) == [("shop.items", "{'_id': 9}")]
        held.next.release()
        running.result()
    with capture_logs() as logs:
        held.watch.look()
    assert not logs
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(held.run, stands[0])
        assert told(held, 10) == [("shop.orders", "{'_id': 7}")]
        held.next.release()
        running.result()
