"""Filters of changefeeds as a real server evaluates them, and the reader of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import bson
import pytest

from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import Filter
from changefeed.config.tables.pattern import escaped
from changefeed.documents.document import Document
from changefeed.errors import SourceUnsupported
from changefeed.event import RowType
from changefeed.position import Position, Window
from changefeed.table import TableName
from processor.task.rows.gate import RowFilter
from processor.task.rows.source_rows import read_options
from source.connection import Client, connect
from source.oplog.window import newest_time
from source.stream.change_event import scan
from source.stream.window_reader import ReadOptions, WindowReader

_SUFFIXES = ["", "(x", "+", "a|b", "商", "*", "^", "-1"]
_TABLES = [
    *(
        "orders",
        "Orders",
        "a.b",
        "a-b",
        "_1",
        "a*",
        "a?",
        "(a",
        "[a",
        "a|b",
        "^a",
        "a\\d",
        "a{1}",
        "商",
        "a b",
        "a\nb",
        "xsystem.a",
    ),
    "items",
]

Row = tuple[RowType, TableName, int]


@dataclass(frozen=True)
class History:
    """Rows in tables with many kinds of names, each written both alone and in a transaction."""

    client: Client
    database: str
    window: Window
    rows: list[Row]

    def read(self, filter_: Filter) -> list[Row]:
        fields = {
            "id": "rows",
            "source": "mongodb://a",
            "sink": "mongodb://b",
            "filter": filter_.model_dump(mode="json"),
        }
        rows, found = RowFilter(filter_), []
        for batch in WindowReader(self.client, read_options(Configuration.parse(fields))).read(self.window):
            found += [
                event for event in batch.events if rows.wants(scan(event)) and not rows.ignores(event, scan(event))
            ]
        return [row_of(bson.decode(event)) for event in found]

    def wanted(self, filter_: Filter) -> list[Row]:
        return [
            (type_, name, id)
            for type_, name, id in self.rows
            if not filter_.ignores_row(name, type_, {"documentKey": {"_id": id}})
        ]


def row_of(event: dict[str, Any]) -> Row:
    name = TableName(event["ns"]["db"], event["ns"]["coll"])
    return RowType(event["operationType"]), name, event["documentKey"]["_id"]


@pytest.fixture(scope="module")
def source(source_uri: str) -> Iterator[Client]:
    with connect(source_uri) as client:
        yield client


@pytest.fixture
def history(source: Client, fresh_database: Callable[[], str]) -> Iterator[History]:
    database = fresh_database()
    names = [TableName(f"{database}{suffix}", table) for suffix in _SUFFIXES for table in ("orders", "items")]
    names += [TableName(database, table) for table in _TABLES if table not in ("orders", "items")]
    for name in names:
        source[name.db][name.coll].insert_one({"_id": "before"})
    start = Position(newest_time(source).next())
    written: list[Row] = []
    for name in names:
        written += write(source, name, None)
    with source.start_session() as session, session.start_transaction():
        for name in names:
            written += write(source, name, session)
    end = Position(newest_time(source).next())
    yield History(source, database, Window(start, end), written)
    for suffix in _SUFFIXES:
        source.drop_database(f"{database}{suffix}")


def write(client: Client, name: TableName, session: Any) -> list[Row]:
    table, id = client[name.db][name.coll], 1 if session is None else 2
    table.insert_one({"_id": id}, session=session)
    table.update_one({"_id": id}, {"$set": {"a": 1}}, session=session)
    table.replace_one({"_id": id}, {"b": 1}, session=session)
    table.delete_one({"_id": id}, session=session)
    return [(type_, name, id) for type_ in (RowType.INSERT, RowType.UPDATE, RowType.REPLACE, RowType.DELETE)]


def test_a_filter_shows_what_it_wants_and_nothing_else(history: History) -> None:
    db, other = escaped(history.database), escaped(f"{history.database}(x")
    ignored = [
        {"tables": [f"{db}.orders"], "ignore": ["delete"]},
        {"tables": [f"{db}*.items"], "ignore": ["update", "replace"]},
    ]
    filters: list[tuple[list[str], list[dict[str, Any]]]] = [
        ([f"{db}*.*"], ignored),
        ([f"{db}*.*", f"!{db}.a*", f"!{db}.items"], []),
        ([f"{db}*.*", f"!{other}.*", f"!{db}.*"], ignored),
        ([f"{db}.*", f"!{db}.orders"], ignored),
        ([f"{db}.orders", f"{other}.items"], []),
        ([f"{db}.*"], [{"tables": [f"{db}.*"], "ignore": ["insert", "delete"]}]),
        ([f"{db}.*"], [{"tables": ["*.*"], "ignore": ["update"]}, *ignored]),
        ([f"{db}.*"], [{"tables": ["*.*"], "ignore": sorted(RowType)}]),
        ([f"{db}*.orders"], []),
    ]
    for tables, events in filters:
        filter_ = Filter.model_validate({"tables": tables, "events": events})
        assert history.read(filter_) == history.wanted(filter_), filter_


def test_a_table_is_shown_by_its_name_whatever_is_in_it(history: History) -> None:
    names = {name for _, name, _ in history.rows}
    assert len(names) == 2 * len(_SUFFIXES) + len(_TABLES) - 2
    for name in sorted(names):
        filter_ = Filter.model_validate({"tables": [f"{escaped(name.db)}.{escaped(name.coll)}"]})
        assert history.read(filter_) == [row for row in history.rows if row[1] == name], name


def test_what_the_server_would_refuse_at_run_time_it_refuses_when_it_is_tried(source: Client) -> None:
    now = newest_time(source)
    WindowReader(source, ReadOptions(match=Document.of({"ns.db": "shop"}))).try_at(now)
    refused = ReadOptions(match=Document.of({"$nor": []}))
    with pytest.raises(SourceUnsupported, match=r"opening the source's change stream of rows: .*nonempty array"):
        WindowReader(source, refused).try_at(now)
