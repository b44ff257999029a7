"""Writes at the source while nodes and changefeeds come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def writing(source: Any, tables: Sequence[str]) -> Iterator[Callable[[], None]]:
    """Inserts, updates and deletes rows of every table all the time, until the yielded function is called."""
    stopping = threading.Event()

    def write() -> None:
        number = 0
        while not stopping.wait(0.1):
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


def ddls_of_each_kind(source: Any, number: int) -> None:
    """Of each kind. The tables with rows stay."""
    made = f"made{number}"
    source.create_collection(made, capped=True, size=1 << 20)
    source[made].insert_many([{"_id": n} for n in range(10)])
    source[f"{made}s"].insert_one({"_id": 1, "by": "insert"})
    source["notes"].create_index(f"f{number}")
    source[f"{made}s"].create_index("by", unique=True)
    source[f"{made}s"].rename(f"renamed{number}")
    source.command("collMod", "orders", validationLevel="moderate" if number % 2 else "strict")
    source[f"renamed{number}"].insert_one({"_id": 2, "by": "its new name"})
    source.command("create", f"view{number}", viewOn="notes", pipeline=[])
    if number:
        source[f"view{number - 1}"].drop()
        source["notes"].drop_index(f"f{number - 1}_1")
        source[f"made{number - 1}"].drop()
        source[f"renamed{number}"].rename(f"renamed{number - 1}", dropTarget=True)
