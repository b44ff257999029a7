"""The baseline of the initial copy: raw find and insert_many, on two connections.

python -m bench.baselines.naive_copy SOURCE TARGET DATABASE TABLE...
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from bench.baselines.baseline import wait_for_start

_CONNECTIONS = 2
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
_Client = MongoClient[Any]


def copy(source: _Client, target: _Client, database: str, table: str) -> None:
    rows = target[database].get_collection(table, _RAW)
    for batch in source[database][table].find_raw_batches():
        rows.insert_many(bson.decode_all(batch, _RAW), ordered=False)


if __name__ == "__main__":
    with (
        _Client(sys.argv[1]) as of_source,
        _Client(sys.argv[2]) as of_target,
        ThreadPoolExecutor(_CONNECTIONS) as connections,
    ):
        wait_for_start()
        copies = [connections.submit(copy, of_source, of_target, sys.argv[3], name) for name in sys.argv[4:]]
        for each in copies:
            each.result()
