"""Parquet files hold the messages of rows in fixed columns, exactly, and nothing of an attempt that is given up."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pyarrow.parquet as pq
import pytest

from changefeed.errors import SinkUnavailable
from changefeed.event import RowType
from sink.messages.files.store import NewFile, Store
from sink.receipt import Commit
from sink.row import RowChange
from sluice_client.parquet_rows import SCHEMA
from tests.component.sink.files.feed import Feed, copied
from tests.component.sink.vocabulary import A, copy_end, described, insert, moment

_LATIN_1 = b"\x19\0\0\0\x02_id\0\x02\0\0\0f\0\x02t\0\x02\0\0\0\xe9\0\0"
_LARGEST_DATE = bson.encode({"_id": 5, "at": bson.DatetimeMS(2**63 - 1)})


def _changes() -> list[RowChange]:
    description = {
        "updatedFields": {"n": 2.5},
        "removedFields": ["a.b"],
        "truncatedArrays": [],
        "disambiguatedPaths": {},
    }
    first = insert(A, 101, 1)
    return [
        first,
        first._replace(token=b"00000001", type=RowType.UPDATE, document=None, update=bson.encode(description)),
        first._replace(token=b"00000002", type=RowType.REPLACE, document=bson.encode({"_id": 1, "nan": float("nan")})),
        first._replace(token=b"00000003", type=RowType.DELETE, document=None),
        insert(A, 105, 5)._replace(document=_LARGEST_DATE),
        insert(A, 106, 6)._replace(document=_LATIN_1),
    ]


def _feed(path: Path, query: str) -> Feed:
    feed = Feed(f"file://{path}{query}")
    feed.window(100, 110, _changes())
    feed.marks.mark(moment(110))
    return feed


def _messages(feed: Feed) -> list[bytes]:
    reader = feed.reader()
    round = reader.look()
    assert round is not None
    return [shown.content.raw for shown in reader.read(round)][1:]  # type: ignore[union-attr]


def _table(feed: Feed) -> Any:
    [name] = feed.store.names("data/7")
    return pq.read_table(io.BytesIO(feed.store.read(f"data/7/{name}") or b""))


def test_what_is_read_from_parquet_are_the_messages_of_the_bson_format(tmp_path: Path) -> None:
    found = _messages(_feed(tmp_path / "p", "?format=parquet"))
    assert found == _messages(_feed(tmp_path / "b", "?format=bson"))
    assert len(found) == len(_changes())


def test_the_columns_are_those_of_the_handbook_whatever_the_documents_are(tmp_path: Path) -> None:
    table = _table(_feed(tmp_path / "p", "?format=parquet"))
    assert table.schema.remove_metadata().equals(SCHEMA)
    assert (table.schema.metadata[b"sluice.feed"], table.schema.metadata[b"sluice.v"]) == (b"orders", b"1")
    row, updated, *_, latin_1 = table.to_pylist()
    assert (row["ns"], row["id"], row["op"]) == ("shop.a", A, "i")
    assert (row["ts"], row["increment"]) == (datetime.fromtimestamp(101, UTC), 1)
    assert row["key"] == '{"_id": {"$numberInt": "1"}}'
    assert row["after"] == '{"_id": {"$numberInt": "1"}, "at": {"$numberInt": "101"}}'
    assert bson.decode(row["after_bson"]) == {"_id": 1, "at": 101}
    assert updated["update"] == '{"set": {"n": {"$numberDouble": "2.5"}}, "unset": ["a.b"]}'
    assert (latin_1["after"], latin_1["after_bson"]) == (None, _LATIN_1)


def test_copied_documents_are_read_from_parquet(tmp_path: Path) -> None:
    feed = Feed(f"file://{tmp_path}/orders?format=parquet")
    feed.ddl.begin([described(A, copied=True)])
    feed.window(100, 110, [insert(A, 105, 2)])
    feed.committer().commit(Commit(ranges={}, copies=(copied(feed, 100, 103, [{"_id": 1, "at": 103}]),)))
    feed.ddl.copied(copy_end(100))
    feed.marks.mark(moment(110))
    assert feed.read() == ["copy", "schema shop.a", "r1@103", "copied", "i2@105"]


def test_files_end_with_a_row_group_once_they_are_large(place: str) -> None:
    feed = Feed(f"{place}&format=parquet&compression=none&file_size=64KiB")
    receipts = feed.written([insert(A, 101, key) for key in range(3_000)])
    assert len(receipts) > 1
    assert sum(receipt.rows for receipt in receipts) == 3_000
    assert all(receipt.bytes < 256 << 10 for receipt in receipts)


def _large(rows: int) -> list[RowChange]:
    document = bson.encode({"_id": 1, "text": "x" * 1_000_000})
    return [insert(A, 101, 1)._replace(document=document) for _ in range(rows)]


@pytest.mark.filterwarnings("error")
def test_a_task_that_fails_leaves_nothing(place: str) -> None:
    """Though a Parquet writer that is thrown away writes the end of its file."""
    feed = Feed(f"{place}&format=parquet&compression=none")
    writer = feed.writer()
    writer.begin(lambda _: False).prepare(_large(20), replay=False)()
    writer.close()
    del writer
    assert feed.store.names("data/7") == []
    if hasattr(feed.store, "_uploads"):
        assert list(feed.store._uploads("data/7")) == []


class _Full:
    """A store whose space ends."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def new(self, name: str) -> NewFile:
        file = self._store.new(name)

        def write(content: bytes) -> None:
            raise SinkUnavailable("No space left")

        file.write = write  # type: ignore[method-assign]
        return file


def test_a_store_that_fails_is_told_as_what_it_is(tmp_path: Path) -> None:
    feed = Feed(f"file://{tmp_path}/orders?format=parquet&compression=none")
    feed.store = _Full(feed.store)
    with pytest.raises(SinkUnavailable, match="No space left"):
        feed.written(_large(20))
    with pytest.raises(SinkUnavailable, match="No space left"):
        feed.written(_large(1))
