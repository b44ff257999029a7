"""Writes at the source while nodes and changefeeds come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_DEADLINE_SECONDS = 180.0


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true within {_DEADLINE_SECONDS:g} s"
        time.sleep(0.2)


@contextmanager
def writing(source: Any, tables: Sequence[str]) -> Iterator[Callable[[], None]]:
    """Inserts, updates and deletes rows of every table all the time, until the yielded function is called."""
    stopping = threading.Event()

    def write() -> None:
        number = 0
        while not stopping.wait(0.02):
            for table in tables:
                source[table].insert_one({"_id": number, "v": 0})
                source[table].update_one({"_id": number // 2}, {"$inc": {"v": 1}})
                source[table].delete_one({"_id": number - 50})
            number += 1

    writer = threading.Thread(target=write, daemon=True)
    writer.start()

    def stop() -> None:
        stopping.set()
        writer.join()

    try:
        yield stop
    finally:
        stop()


def contents(database: Any, tables: Sequence[str]) -> dict[str, list[Any]]:
    return {table: sorted(database[table].find(), key=lambda row: str(row["_id"])) for table in tables}
