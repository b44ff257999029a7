"""The baseline of the initial copy: raw find and insert_many, on two connections; or only one of the two, from or into memory.

python -m bench.baselines.naive_copy [--only read|write] SOURCE TARGET DATABASE TABLE...
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from bench.baselines.baseline import say_done, wait_for_start

_CONNECTIONS = 2
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
_Client = MongoClient[Any]


def read(source: _Client, database: str, table: str) -> Iterator[bytes]:
    yield from source[database][table].find_raw_batches()


def write(target: _Client, database: str, table: str, batches: Iterable[bytes]) -> None:
    rows = target[database].get_collection(table, _RAW)
    for batch in batches:
        rows.insert_many(bson.decode_all(batch, _RAW), ordered=False)


def drop(batches: Iterable[bytes]) -> None:
    deque(batches, 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["read", "write"], default="")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("database")
    parser.add_argument("tables", nargs="+")
    given = parser.parse_args()
    with (
        _Client(given.source) as of_source,
        _Client(given.target) as of_target,
        ThreadPoolExecutor(_CONNECTIONS) as connections,
    ):
        found: dict[str, Iterable[bytes]] = {name: read(of_source, given.database, name) for name in given.tables}
        if given.only == "write":
            found = {name: list(batches) for name, batches in found.items()}
        wait_for_start()
        copies = [
            connections.submit(drop, batches)
            if given.only == "read"
            else connections.submit(write, of_target, given.database, name, batches)
            for name, batches in found.items()
        ]
        for each in copies:
            each.result()
        say_done()
