"""`large_table`: the copy of one table of many small documents, with `_id`s of several types that begin alike.

SLUICE_LARGE_DOCUMENTS is their number.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from bench.baselines.baseline import copy_naively
from bench.product import Product
from bench.result import Figure
from bench.run import Comparison, Run
from devstack.stack import DevStack
from source.connection import Client, connect

DOCUMENTS_VARIABLE = "SLUICE_LARGE_DOCUMENTS"
_DOCUMENTS = 1_000_000
_BATCH = 50_000
_TABLE = "table"
_ALIKE = "customers/europe/north/orders/of/this/year/"
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)


def large_table(stack: DevStack) -> list[Figure]:
    count = int(os.environ.get(DOCUMENTS_VARIABLE, _DOCUMENTS))
    database = f"bench_{uuid.uuid4().hex[:8]}"
    with connect(stack.source_uri) as source, Product(stack) as product:
        product.warm_up(source)
        _fill(source, database, count)
        id = product.create(database, start="initial")
        product.until_begun(id)
        with product.usage() as usage:
            product.until_copied(id, 1)
    naive = copy_naively(stack, database=database, tables=[_TABLE])
    copied = Comparison(ours=Run(usage, count), naive=Run(naive, count))
    return [
        copied.rate("copy_large_table", "documents/s"),
        copied.cpu("cpu_copy_large_table", "us/document"),
        copied.peak("memory_copy_large_table"),
    ]


def _fill(client: Client, database: str, count: int) -> None:
    rows = client[database].get_collection(_TABLE, _RAW)
    for first in range(0, count, _BATCH):
        rows.insert_many(list(_documents(range(first, min(first + _BATCH, count)))), ordered=False)


def _documents(numbers: range) -> Iterator[RawBSONDocument]:
    for number in numbers:
        key = (number, number, {"a": {"b": number}}, f"{_ALIKE}{number:012}")[number % 4]
        yield RawBSONDocument(bson.encode({"_id": key, "n": number}))
