"""With `layout=hive` those who read folders find the rows of each table and day: DuckDB, pyarrow. Those who read manifests see what they always see."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import chdir
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest

from changefeed.table import TableId
from sink.messages.files.data_files import DataWriter, HiveWriter, Origin, data_format
from sink.messages.files.feed_log import FileLeftovers
from sink.receipt import Commit
from sink.row import RowChange
from sluice_client.manifest import hive_stem
from tests.component.sink.files.feed import IDENTITY, Feed, copied
from tests.component.sink.vocabulary import A, copy_end, described, insert, moment

_MIDNIGHT = 1_795_910_400
_BEFORE, _AFTER = date(2026, 11, 28), date(2026, 11, 29)
_NAMES = ["orders", "Orders", "a.b/c=d", "50%25:x?[*]{y}'\"#^\\", "größe 表", "tab\tline\n", "00123"]


_HANDBOOK = Path(__file__).parents[4] / "docs" / "how-to" / "files.md"
[_SQL] = re.findall(r"    SELECT dt(?:.*\n)+?(?=\n)", _HANDBOOK.read_text())


def _filled(feed: Feed, names: Iterable[str] = ("orders",)) -> None:
    """A window across midnight."""
    tables = {name: TableId(f"{number:032x}") for number, name in enumerate(names)}
    changes = [insert(id, _MIDNIGHT + at, at + 10, name) for at in (-2, 3) for name, id in tables.items()]
    feed.window(_MIDNIGHT - 5, _MIDNIGHT + 5, changes, *tables.values())
    feed.marks.mark(moment(_MIDNIGHT + 5))


def _asked(feed: Feed, format: str) -> set[tuple[Any, ...]]:
    """DuckDB's rows."""
    rows = (
        duckdb.connect()
        .execute(
            f"SELECT db, \"table\", dt, ns, key FROM read_{format}('{feed.path}/data/*/*/*/*.{format}*',"
            " hive_partitioning = true, hive_types = {'table': VARCHAR, 'dt': DATE})"
        )
        .fetchall()
    )
    return {(*row[:4], int(_plain(row[4])["_id"]["$numberInt"])) for row in rows}


def _plain(key: Any) -> Any:
    return json.loads(key) if isinstance(key, str) else key


def _expected(names: Iterable[str]) -> set[tuple[Any, ...]]:
    return {("shop", name, dt, f"shop.{name}", key) for name in names for dt, key in ((_BEFORE, 8), (_AFTER, 13))}


@pytest.mark.parametrize("query", ["format=parquet", "format=json", "format=json&compression=zstd"])
def test_duckdb_finds_table_and_day_by_the_folder(tmp_path: Path, query: str) -> None:
    feed = Feed(f"file://{tmp_path}/orders?layout=hive&{query}")
    _filled(feed, _NAMES)
    assert _asked(feed, query.partition("&")[0].partition("=")[2]) == _expected(_NAMES)


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_pyarrow_finds_table_and_day_by_the_folder(tmp_path: Path, format: str) -> None:
    feed = Feed(f"file://{tmp_path}/orders?layout=hive&format={format}&compression=none")
    _filled(feed, _NAMES)
    dataset = ds.dataset(feed.path / "data", format=format, partitioning="hive")
    rows = dataset.to_table(columns=["db", "table", "dt", "ns", "pos"]).to_pylist()
    dated = {(row["db"], row["table"], date.fromisoformat(row["dt"]), row["ns"]) for row in rows}
    assert dated == {row[:4] for row in _expected(_NAMES)}
    assert len(rows) == len({(row["ns"], row["pos"]) for row in rows}) == 2 * len(_NAMES)
    assert dataset.filter(ds.field("table") == "größe 表").count_rows() == 2


def test_the_handbooks_sql_drops_repeats_and_what_is_not_before_the_watermark(tmp_path: Path) -> None:
    """What a crash left, and what another node wrote again, are the same messages under the same names of folders."""
    feed = Feed(f"file://{tmp_path}/orders?layout=hive&format=parquet")
    _filled(feed)
    again = [insert(TableId(f"{0:032x}"), _MIDNIGHT + at, at + 10, "orders") for at in (-2, 3)]
    feed.written(again, epoch=8)
    feed.written([insert(TableId(f"{0:032x}"), _MIDNIGHT + 7, 99, "orders")], epoch=8)
    folders = {path.parent.relative_to(feed.path) for path in feed.path.glob("data/*/*/*/*")}
    assert folders == {Path(f"data/db=shop/table=orders/dt={day}") for day in (_BEFORE, _AFTER)}
    with chdir(feed.path):
        found = duckdb.connect().execute(_SQL).fetchall()
    seen = [(dt, op, _plain(key)["_id"]["$numberInt"]) for dt, op, key, *_ in found]
    assert seen == [(_BEFORE, "i", "8"), (_AFTER, "i", "13")]


def test_copied_documents_lie_under_the_day_on_which_they_were_read(tmp_path: Path) -> None:
    feed = Feed(f"file://{tmp_path}/orders?layout=hive")
    feed.ddl.begin([described(A, copied=True)])
    feed.committer().commit(Commit(ranges={}, copies=(copied(feed, 100, 90_000, [{"_id": 1, "at": 90_000}]),)))
    feed.ddl.copied(copy_end(100))
    feed.marks.mark(moment(90_010))
    assert [path.parent.name for path in feed.path.glob("data/db=shop/table=a/*/*")] == ["dt=1970-01-02"]
    assert feed.read() == ["copy", "schema shop.a", "r1@90000", "copied"]


def test_a_file_that_is_being_written_is_not_seen(tmp_path: Path) -> None:
    """A reader of folders fails on half a file."""
    feed = Feed(f"file://{tmp_path}/orders?layout=hive&compression=none")
    file = feed.store.new("data/db=shop/table=a/dt=1970-01-01/7-abc-0.json")
    file.write(b"half")
    assert list(feed.path.glob("data/*/*/*/[!.]*")) == []
    file.end()
    assert [path.name for path in feed.path.glob("data/*/*/*/*")] == ["7-abc-0.json"]


def test_what_a_gone_node_did_not_commit_is_removed_from_the_folders(place: str) -> None:
    """Also that of a node that has committed nothing, and what somebody else has put there is not."""
    feed = Feed(f"{place}&layout=hive")
    for epoch in (7, 77):
        feed.window(100, 110, [insert(A, 101, 1)], epoch=epoch)
    feed.marks.mark(moment(110))
    for epoch in (7, 77, 8):
        feed.written([insert(A, 109, 9)], epoch)
    feed.store.new("data/db=shop/table=a/dt=1970-01-01/7-abcdef-9.json").write(bytes(9 << 20))
    feed.store.create("data/db=shop/7-report.csv", b"")
    shown = feed.read()
    leftovers = FileLeftovers(IDENTITY, feed.store)
    assert leftovers.sweep(lambda epoch: epoch in {7, 8}) == (3 if place.startswith("file:") else 2)
    assert feed.read() == shown
    left = sorted(name.rpartition("/")[2].partition("-")[0] for name in feed.store.below("data"))
    assert left == ["7", "7", "77", "77"]
    if hasattr(feed.store, "_uploads"):
        assert list(feed.store._uploads("data")) == []
    assert leftovers.sweep(lambda epoch: epoch in {7, 8}) == 0


class _Counted:
    """How many files of these writers are open."""

    def __init__(self) -> None:
        self.most = 0
        self.writers: list[DataWriter[bytes]] = []

    def look(self) -> None:
        self.most = max(self.most, sum(writer.open for writer in self.writers))


def _written(tmp_path: Path, tables: int, changes: int, size: int) -> tuple[Feed, _Counted, Mapping[str, int]]:
    """Each table has its share of the changes, in turn."""
    feed, counted = Feed(f"file://{tmp_path}/orders?layout=hive&compression=none"), _Counted()
    format = data_format("orders", feed.options)

    def new(stem: str) -> DataWriter[bytes]:
        counted.writers.append(DataWriter(format, feed.options.file_bytes, feed.store, stem))
        return counted.writers[-1]

    writer = HiveWriter[bytes](new, 7)
    rows: list[RowChange] = [insert(A, 101, key, f"t{key % tables}", size) for key in range(changes)]
    for row in rows:
        writer.write([format.encoder.change(row)], [Origin(row.table, 101, row.size)])
        counted.look()
    receipts = writer.finish()
    assert writer.finish() == ()
    assert sum(receipt.rows for receipt in receipts) == changes
    return feed, counted, {receipt.name: receipt.rows for receipt in receipts}


def test_few_tables_with_many_rows_have_one_file_each(tmp_path: Path) -> None:
    _, counted, files = _written(tmp_path, 3, 600, 100_000)
    assert (sorted(files.values()), counted.most) == ([200, 200, 200], 3)


def test_many_tables_with_many_rows_have_few_files_open(tmp_path: Path) -> None:
    _, counted, files = _written(tmp_path, 100, 600, 100_000)
    assert counted.most == 8
    assert min(files.values()) > 0
    assert 100 <= len(files) < 600


def test_an_attempt_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    feed = Feed(f"file://{tmp_path}/orders?layout=hive&compression=none")
    format = data_format("orders", feed.options)
    writer = HiveWriter[bytes](lambda stem: DataWriter(format, 64 << 10, feed.store, stem), 7)
    rows = [insert(A, 101, key, f"t{key % 3}", 1_000_000) for key in range(40)]
    writer.write(list(map(format.encoder.change, rows)), [Origin(row.table, 101, row.size) for row in rows])
    assert list(feed.store.below("data"))
    writer.abandon()
    assert list(feed.store.below("data")) == []
    assert writer.finish() == ()


def test_what_is_written_after_an_attempt_that_was_given_up_has_another_name(tmp_path: Path) -> None:
    """A request to write the first file may still be under way, and would take its place."""
    feed = Feed(f"file://{tmp_path}/orders?compression=none")
    format = data_format("orders", feed.options)
    writer = DataWriter(format, 1, feed.store, "data/7/")
    message = format.encoder.change(insert(A, 101, 1))
    writer.write([message])
    names = set(feed.store.below("data"))
    writer.abandon()
    writer.write([message])
    assert names.isdisjoint(feed.store.below("data"))


def test_a_long_name_is_cut_and_stays_its_own() -> None:
    names = [f"{'%ä' * 60}{end}" for end in ("a", "b")]
    stems = {hive_stem(7, "shop", name, 0) for name in names}
    assert len(stems) == len(names)
    for stem in stems:
        assert max(len(part.encode()) for part in stem.split("/")) <= 255
        assert "%25ä" in stem
    assert hive_stem(7, "shop", "a" * 240, 0) == f"data/db=shop/table={'a' * 240}/dt=1970-01-01/7-"
