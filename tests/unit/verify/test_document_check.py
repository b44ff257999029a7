"""The comparison of one pair of tables reads all of its sources, and says whether it read to the end."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from datetime import timedelta
from typing import Any, cast

import bson
from bson.raw_bson import RawBSONDocument

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.records.ddl import ObservedTable
from changefeed.table import TableId, TableKind, TableName, TableSchema, TableSize
from sink.mongodb.connection import Client
from source.compared import ComparedSource
from verify.definitions import Pair
from verify.document_check import DocumentCheck, Sides
from verify.raw_document import fields_sorted, key_text
from verify.replication import Passing, repair_obstacle
from verify.report import DifferenceKind, DocumentsReport
from verify.table_reader import EVERYTHING, TableReader

NAMES = TableName("shop", "orders"), TableName("shop", "orders_2")


def schema(name: TableName, **options: Any) -> TableSchema:
    return TableSchema(
        id=TableId(str(name)),
        name=name,
        kind=TableKind.COLLECTION,
        options=Document.of(options),
        valid_from=Position(ClusterTime(1, 1)),
    )


def pair(*sources: TableSchema) -> Pair:
    return Pair(
        name=NAMES[0],
        origins=tuple(source.name for source in sources),
        sources=sources,
        target=ObservedTable(uuid=None, options=Document.of({}), indexes=()),
    )


def reader(**values: int) -> TableReader:
    """Of a table with these values by their `_id`."""

    def find(options: Mapping[str, Any]) -> Generator[bytes, None, None]:
        wanted = options.get("filter")
        keys = bson.decode(wanted.raw)["_id"]["$in"] if isinstance(wanted, RawBSONDocument) else values
        yield b"".join(bson.encode({"_id": key, "v": values[key]}) for key in sorted(keys) if key in values)

    return TableReader(find, lambda: TableSize(documents=len(values), bytes=0), threading.Event())


def compared(sources: Mapping[TableName, TableReader], target: TableReader, *, most: int = 10) -> DocumentsReport:
    source = cast("ComparedSource", None)
    sides = Sides(
        source=source,
        target=cast("Client", None),
        stop=threading.Event(),
        passing=Passing(source, checkpoints=None, patience=timedelta()),
    )
    tables = pair(*(schema(name) for name in sources))
    check = DocumentCheck(tables, sides, tuple(sources.values()), target, fields_sorted, {}, most)
    return check.compare(EVERYTHING)


def test_rows_of_every_table_that_shares_the_name_are_compared() -> None:
    sources = {NAMES[0]: reader(a=1), NAMES[1]: reader(b=2, c=3)}
    report = compared(sources, reader(a=1, b=2))
    assert (report.source, report.target) == (3, 2)
    assert [(found.kind, found.key) for found in report.differences] == [
        (DifferenceKind.MISSING, key_text(bson.encode({"_id": "c"})))
    ]


def test_a_comparison_that_shows_only_some_differences_is_not_complete() -> None:
    source = {NAMES[0]: reader(a=1, b=2, c=3)}
    some = compared(source, reader(), most=2)
    assert (len(some.differences), some.complete) == (2, False)
    every = compared(source, reader(), most=3)
    assert (len(every.differences), every.complete) == (3, True)


def test_a_difference_in_the_last_bytes_of_a_document_is_found() -> None:
    report = compared({NAMES[0]: reader(a=1)}, reader(a=1 + (1 << 24)))
    assert [found.kind for found in report.differences] == [DifferenceKind.CHANGED]


def test_rows_of_capped_collections_are_not_repaired_one_by_one() -> None:
    assert repair_obstacle(pair(schema(NAMES[0]))) == ""
    assert "capped" in repair_obstacle(pair(schema(NAMES[0]), schema(NAMES[1], capped=True, size=4096)))
