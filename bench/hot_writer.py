"""`HotWriter`: a process that writes to one table at a steady rate, whatever else the machine does.

An update is little work for a server without the index, and much for one with it.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import Any

from pymongo.collection import Collection

from source.connection import connect

Table = Collection[dict[str, Any]]

TARGET_INDEX = [("tags", 1), ("text", 1)]
"""Unique. One document has an entry for each of its tags, and its text makes them unique: a new text replaces them all."""
_TAGS, _DOCUMENTS = 300, 1000

_BATCHES = 100
"""A second."""
_ENDING_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HotWriter:
    uri: str
    database: str
    table: str
    rate: float
    """Writes a second."""

    @contextmanager
    def running(self) -> Iterator[Synchronized[int]]:
        """Yields the number of writes so far."""
        spawn = multiprocessing.get_context("spawn")
        stop, written = spawn.Event(), spawn.Value("q", 0)
        process = spawn.Process(target=self._write, args=(stop, written), daemon=True)
        process.start()
        try:
            yield written
        finally:
            stop.set()
            process.join(_ENDING_SECONDS)
            process.kill()

    def _write(self, stop: Event, written: Synchronized[int]) -> None:
        """A batch that is late does not make the next one larger."""
        size = max(1, round(self.rate / _BATCHES))
        with connect(self.uri) as client:
            table, due_at = client[self.database][self.table], time.monotonic()
            while not stop.wait(max(0.0, due_at - time.monotonic())):
                first = written.value
                write(table, first + 1, size)
                written.value = first + size
                due_at = max(due_at + 1 / _BATCHES, time.monotonic() - 1.0)


def fill(table: Table) -> None:
    """The tags of a document are random, so that its index entries are all over the index."""
    chance = random.Random(0)
    for id in range(_DOCUMENTS):
        table.insert_one(
            {"_id": id, "n": 0, "text": f"first {id}", "tags": [chance.getrandbits(31) for _ in range(_TAGS)]}
        )


def write(table: Table, first: int, count: int) -> None:
    """Each write numbers itself, and gives the next document a new text."""
    updates = [
        {"q": {"_id": number % _DOCUMENTS}, "u": {"$set": {"n": number, "text": f"{number:x}"}}}
        for number in range(first, first + count)
    ]
    reply = table.database.command("update", table.name, updates=updates, ordered=False)
    if reply["n"] != count:
        raise RuntimeError(f"{reply['n']} of {count} writes to the hot table took effect: {reply.get('writeErrors')}")


def written(table: Table) -> int:
    """How many writes a replicated table has got."""
    newest = table.find_one(sort=[("n", -1)])
    return newest["n"] if newest else 0
