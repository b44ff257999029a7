"""The baseline of the initial copy: one thread, find and insert_many.

python -m bench.naive_copy SOURCE TARGET DATABASE TABLE...
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from pymongo import MongoClient

from bench.baseline import wait_for_start

_BATCH = 2_000
_Client = MongoClient[dict[str, Any]]


def copy(source: _Client, target: _Client, database: str, tables: Sequence[str]) -> None:
    for table in tables:
        batch: list[dict[str, Any]] = []
        for document in source[database][table].find(batch_size=_BATCH):
            batch.append(document)
            if len(batch) == _BATCH:
                target[database][table].insert_many(batch, ordered=False)
                batch = []
        if batch:
            target[database][table].insert_many(batch, ordered=False)


if __name__ == "__main__":
    with _Client(sys.argv[1]) as of_source, _Client(sys.argv[2]) as of_target:
        wait_for_start()
        copy(of_source, of_target, sys.argv[3], sys.argv[4:])
