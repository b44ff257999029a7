"""`HotWriter`: a process that inserts into one table at a steady rate, whatever else the machine does."""

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

from source.connection import connect

TARGET_INDEX = [("tags", 1), ("text", 1)]
"""Unique. One document has an entry for each of its tags, and each entry contains the text."""
_TAGS, _TEXT_BYTES = 100, 400
_ENDING_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HotWriter:
    uri: str
    database: str
    table: str
    rate: float
    """Documents a second."""
    batches: int = 10
    """A second."""

    @contextmanager
    def running(self) -> Iterator[Synchronized[int]]:
        """Yields the number of documents written so far."""
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
        randomness, size = random.Random(0), max(1, round(self.rate / self.batches))
        with connect(self.uri) as client:
            table, due_at = client[self.database][self.table], time.monotonic()
            while not stop.wait(max(0.0, due_at - time.monotonic())):
                first = written.value
                documents = [hot_document(number, randomness) for number in range(first, first + size)]
                table.insert_many(documents, ordered=False)
                written.value = first + size
                due_at = max(due_at + 1 / self.batches, time.monotonic() - 1.0)


def hot_document(number: int, randomness: random.Random) -> dict[str, Any]:
    """The numbers of a document are random, so that its index entries are all over the index."""
    tags = [randomness.getrandbits(31) for _ in range(_TAGS)]
    return {"_id": number, "n": number, "text": randomness.randbytes(_TEXT_BYTES // 2).hex(), "tags": tags}
