"""Reads one window in a process of its own, and prints the number of events and the largest growth of the resident set in bytes."""

from __future__ import annotations

import sys

import psutil

from bench.usage import Usage
from changefeed.documents.document import Document
from changefeed.position import Position, Window
from source.connection import connect
from source.stream.window_reader import ReadOptions, WindowReader


def main(uri: str, database: str, start: str, end: str) -> None:
    before = psutil.Process().memory_info().rss
    events = 0
    with connect(uri) as client, Usage() as usage:
        match = Document.of({"ns.db": database, "operationType": "insert"})
        for batch in WindowReader(client, ReadOptions(match=match)).read(
            Window(Position.parse(start), Position.parse(end))
        ):
            events += len(batch.events)
    sys.stdout.write(f"{events} {usage.peak_bytes - before}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
