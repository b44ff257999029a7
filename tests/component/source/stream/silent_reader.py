"""Reads a window without any wanted event, for half a minute: python silent_reader.py URI START END."""

from __future__ import annotations

import sys

from changefeed.documents.document import Document
from changefeed.position import Position, Window
from source.connection import connect
from source.stream.window_reader import ReadOptions, WindowReader

_SLOW = "function() { const until = Date.now() + 2; while (Date.now() < until); return false; }"
NOTHING_SLOWLY = ReadOptions(match=Document.of({"$expr": {"$function": {"body": _SLOW, "args": [], "lang": "js"}}}))
"""Makes the server slow, as if it had far more to skip."""


def main(uri: str, start: str, end: str) -> None:
    with connect(uri) as client:
        for batch in WindowReader(client, NOTHING_SLOWLY).read(Window(Position.parse(start), Position.parse(end))):
            sys.stdout.write(f"{batch.reached}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
