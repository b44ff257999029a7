"""Batches of files that the product wrote, planned and read without Spark: their union is what a reader of files shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from changefeed.event import DdlType, RowType
from devstack.s3.faulty_proxy import Fault, FaultyProxy
from pyspark_sluice.arrow_rows import DDL
from pyspark_sluice.batches import DdlStop
from pyspark_sluice.feed_batches import FeedBatches, Offset
from pyspark_sluice.reader_options import BatchLimits, ReaderOptions
from pyspark_sluice.spark_source import DefaultSource, FeedStreamReader, FeedTableReader, SluiceReadError
from sink.ddl import DropTables, RenameTable
from sluice_client.feed_errors import ConfigurationError
from sluice_client.feed_reader import MessageGap, StoredMessage
from sluice_client.manifest import CHECKPOINT, COPIED, IDENTITY, LOG, SCHEMA
from sluice_client.pos import pos_of
from tests.component.pyspark_sluice.feeds import begun_again
from tests.component.sink.messages import Messages, filed
from tests.component.sink.vocabulary import LIFE, A, B, changed, described, insert, moment, named


@pytest.fixture(params=["parquet", "json", "bson"])
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Messages:
    """Two nodes wrote overlapping ranges; a transaction of 20 rows at 115; B is renamed at 131; A is dropped at 145 and begins again at 150."""
    messages = filed(f"file://{tmp_path}/feed?format={request.param}")
    messages.claim(described(A), described(B, "b"))
    both = described(A), described(B, "b")
    messages.window(100, 110, [insert(A, 101, 1), insert(B, 102, 2, "b"), insert(A, 103, 3)], *both)
    changes = [changed(RowType.UPDATE, A, 115, index, 1, n=index) for index in range(20)]
    messages.window(105, 120, [*changes, insert(B, 117, 4, "b")], *both, epoch=8)
    messages.window(108, 130, [*changes, insert(B, 117, 4, "b"), insert(A, 125, 5)], *both, epoch=9)
    messages.mark(130)
    messages.apply(RenameTable(name=named("b"), to=named("c"), replaces=False), DdlType.RENAME, 131, B)
    messages.window(130, 145, [insert(B, 140, 6, "c"), insert(A, 141, 7)], *both)
    messages.apply(DropTables(names=(named("a"),)), DdlType.DROP, 145)
    messages.mark(160)
    return messages


def _batches(path: Path, **options: str) -> FeedBatches:
    return FeedBatches(ReaderOptions.parse({"path": f"file://{path}/feed", **options}))


def _rows(batches: FeedBatches, start: Offset, end: Offset) -> list[dict[str, Any]]:
    parts = batches.partitions(batches.mark(start), batches.mark(end))
    found: list[pa.RecordBatch] = [batch for part in parts for batch in part.read()]
    return [row for batch in found for row in batch.to_pylist()]


def _ends(batches: FeedBatches, limits: BatchLimits) -> Iterator[tuple[Offset, Offset]]:
    start = batches.first()
    while (end := batches.end(start, batches.newest(), limits)) != start:
        yield batches.offset(start), batches.offset(end)
        start = end


def _names(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return sorted((row["pos"], row["op"], row["ddl"] or row["key"]) for row in rows)


def _as_read(feed: Messages) -> list[tuple[str, str, str]]:
    reader = feed.reader()
    round = reader.look()
    assert round is not None
    messages = [shown.content for shown in reader.read(round) if isinstance(shown.content, StoredMessage)]
    told = [(json.loads(each.json), each.json) for each in messages]
    return sorted(
        (fields["pos"], fields["op"], json.dumps(fields["key"], ensure_ascii=False) if "key" in fields else text)
        for fields, text in told
    )


by_limits = pytest.mark.parametrize(
    "limits",
    [BatchLimits(), BatchLimits(rows=1), BatchLimits(rows=7), BatchLimits(bytes=500), BatchLimits(files=1)],
    ids=repr,
)


@by_limits
def test_the_union_of_all_batches_is_what_a_reader_shows(feed: Messages, tmp_path: Path, limits: BatchLimits) -> None:
    batches = _batches(tmp_path)
    found: list[dict[str, Any]] = []
    for start, end in _ends(batches, limits):
        rows = _rows(batches, start, end)
        assert _names(_rows(_batches(tmp_path), start, end)) == _names(rows), "a batch that another process reads again"
        if limits.rows and sum(row["ddl"] is None for row in rows) > limits.rows:
            assert len({row["pos"][:16] for row in rows if row["ddl"] is None}) == 1, "one transaction"
        found += rows
        batches.passed(batches.mark(end))
    assert _names(found) == _as_read(feed)
    rows_of_transaction = [row for row in found if row["ts"].timestamp() == 115]
    assert len(rows_of_transaction) == 20


@by_limits
@pytest.mark.parametrize("format", ["parquet", "json"])
def test_tables_that_begin_again_are_shown_as_a_reader_shows_them(
    format: str, tmp_path: Path, limits: BatchLimits
) -> None:
    feed, batches = begun_again(f"file://{tmp_path}/feed?format={format}"), _batches(tmp_path)
    rows = [row for start, end in _ends(batches, limits) for row in _rows(batches, start, end)]
    assert _names(rows) == _as_read(feed)


def test_documents_are_json_and_bson(feed: Messages, tmp_path: Path) -> None:
    batches = _batches(tmp_path)
    [(start, end)] = _ends(batches, BatchLimits())
    row = min((row for row in _rows(batches, start, end) if row["op"] == "i"), key=lambda row: row["pos"])
    assert row["after"] == '{"_id": {"$numberInt": "1"}, "at": {"$numberInt": "101"}}'
    assert bson.decode(row["after_bson"]) == {"_id": 1, "at": 101}
    assert (row["ns"], row["id"], row["increment"], row[DDL]) == ("shop.a", A, 1, None)


def test_ordered_rows_of_a_table_are_in_one_partition(feed: Messages, tmp_path: Path) -> None:
    batches = _batches(tmp_path, ordered="true")
    parts = batches.partitions(batches.first(), batches.newest())
    places = [[(row["id"], row["pos"]) for batch in part.read() for row in batch.to_pylist()] for part in parts]
    assert [{table for table, _ in each} for each in places] == [{A}, {B}]
    assert all([pos for _, pos in each] == sorted(pos for _, pos in each) for each in places)


def test_a_table_is_chosen_by_the_name_that_its_rows_have(feed: Messages, tmp_path: Path) -> None:
    for name, keys, left_out in (
        ("shop.b", [2, 4], "after"),
        ("shop.c", [6], "before"),
        ("shop.[bc]", [2, 4, 6], None),
    ):
        batches = _batches(tmp_path, tables=name)
        [(start, end)] = _ends(batches, BatchLimits())
        rows = _rows(batches, start, end)
        assert [json.loads(row["key"])["_id"]["$numberInt"] for row in rows if row["key"]] == list(map(str, keys))
        [rename] = (ddl for row in rows if row[DDL] and (ddl := json.loads(row[DDL])).get("type") == "rename")
        assert rename.get("left_out") == left_out


def test_a_query_stops_before_a_ddl_until_it_is_named(feed: Messages, tmp_path: Path) -> None:
    batches = _batches(tmp_path, ddl="stop")
    ends = _ends(batches, BatchLimits())
    start, end = next(ends)
    assert end["pos"] == pos_of(moment(131, 0))
    assert not any('"rename"' in (row["ddl"] or "") for row in _rows(batches, start, end))
    with pytest.raises(DdlStop, match=r"shop.b: rename at .*start the query again with .option\('start', '"):
        next(ends)
    again = _batches(tmp_path, ddl="stop", start=end["pos"])
    then = again.end(again.mark(end), again.newest(), BatchLimits())
    assert pos_of(then.at) == pos_of(moment(145, 0))


def test_a_table_that_is_read_at_once_has_no_place_to_stop(feed: Messages, tmp_path: Path) -> None:
    """It would have the rows before the first DDL, and nothing would tell."""
    source = DefaultSource({"path": f"file://{tmp_path}/feed", "ddl": "stop"})
    with pytest.raises(SluiceReadError, match=r"ddl=stop ends a stream: .*; leave it out, or use readStream"):
        source.reader(StructType())
    assert isinstance(source.streamReader(StructType()), FeedStreamReader)


def test_a_start_leaves_out_what_was_before(feed: Messages, tmp_path: Path) -> None:
    batches = _batches(tmp_path, start="118.0")
    [(start, end)] = _ends(batches, BatchLimits())
    assert [row["pos"][:8] for row in _rows(batches, start, end) if row["key"]] == [
        f"{at:08X}" for at in (125, 140, 141)
    ]
    with pytest.raises(ConfigurationError, match=r"start: the files begin at .*write earliest"):
        _batches(tmp_path, start="50.0").first()
    assert list(_ends(_batches(tmp_path, start="newest"), BatchLimits())) == []


def test_a_start_beyond_a_table_that_is_behind_takes_it_from_there(feed: Messages, tmp_path: Path) -> None:
    feed.window(145, 165, [insert(B, 162, 8, "c")], described(B, "b"))
    feed.mark(170, a=150)
    batches = _batches(tmp_path, start="161.0")
    [(start, end)] = _ends(batches, BatchLimits())
    assert [json.loads(row["key"]) for row in _rows(batches, start, end)] == [{"_id": {"$numberInt": "8"}}]


def test_a_batch_is_not_read_where_its_watermark_is_not_there(feed: Messages, tmp_path: Path) -> None:
    [(start, end)] = _ends(_batches(tmp_path), BatchLimits())
    max((tmp_path / "feed" / "checkpoint").iterdir()).unlink()
    with pytest.raises(
        MessageGap, match=f"expected a watermark at {end['pos']}, .* found .*restore them, or begin anew"
    ):
        _rows(_batches(tmp_path), start, end)


def test_bad_input_is_one_message(feed: Messages, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"expected feed.json of a changefeed, found none"):
        FeedBatches(ReaderOptions.parse({"path": f"file://{tmp_path}"}))
    with pytest.raises(ConfigurationError, match=r"'shop.aa' is no table .*do you mean shop.a\?"):
        _batches(tmp_path, tables="shop.aa").first()
    [(start, end)] = _ends(_batches(tmp_path), BatchLimits())
    damaged = max((tmp_path / "feed" / "data").rglob("*.*"), key=lambda path: path.stat().st_size)
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    with pytest.raises(MessageGap, match="the file is damaged: restore it"):
        _rows(_batches(tmp_path), start, end)


def test_a_damaged_file_beside_those_with_rows_is_named(tmp_path: Path) -> None:
    begun_again(f"file://{tmp_path}/feed")
    files = [path for path in (tmp_path / "feed").rglob("*.json") if "data" not in path.parts]
    assert {path.relative_to(tmp_path / "feed").parts[0] for path in files} >= {
        IDENTITY,
        CHECKPOINT,
        COPIED,
        DDL,
        LOG,
        SCHEMA,
    }
    for path in files:
        content = path.read_bytes()
        for damaged in (content[: len(content) // 2], b"[]", bytes(len(content))):
            path.write_bytes(damaged)
            with pytest.raises(MessageGap, match=rf"{path}: .*; the file is damaged: restore it"):
                list(_ends(_batches(tmp_path), BatchLimits()))
        path.write_bytes(content)


def test_a_feed_of_another_life_is_not_read_on(feed: Messages, tmp_path: Path) -> None:
    """By its checkpoint, nor by a query that runs while the place gets another feed."""
    batches = _batches(tmp_path)
    [(_, end)] = _ends(batches, BatchLimits())
    identity = tmp_path / "feed" / "feed.json"
    identity.write_text(identity.read_text().replace(LIFE, "c/2"))
    told = r"'orders' as it began at c/2, a feed of another life; .* at c/1: .*begin with another checkpoint"
    with pytest.raises(ConfigurationError, match=told):
        _batches(tmp_path).mark(end)
    with pytest.raises(ConfigurationError, match=told):
        batches.newest()
    identity.unlink()
    with pytest.raises(ConfigurationError, match=r"expected feed.json of a changefeed, found none"):
        batches.newest()


def test_nothing_to_read_is_an_empty_table(feed: Messages, tmp_path: Path) -> None:
    reader = FeedTableReader(ReaderOptions.parse({"path": f"file://{tmp_path}/feed", "start": "newest"}))
    [partition] = reader.partitions()
    assert list(reader.read(partition)) == []


@pytest.mark.parametrize("refused", ["list-type=2", "feed.json", "/data/"])
def test_a_bucket_is_read_as_a_folder_is_and_missing_rights_are_one_message(
    bucket: str, s3: FaultyProxy, refused: str
) -> None:
    feed = begun_again(f"{bucket}&format=parquet")
    batches = FeedBatches(ReaderOptions.parse({"path": bucket}))
    [(start, end)] = _ends(batches, BatchLimits())
    assert _names(_rows(batches, start, end)) == _as_read(feed)
    s3.watch(lambda request: Fault.REFUSED if refused in request.path else None)
    reader = FeedTableReader(ReaderOptions.parse({"path": bucket}))
    told = r"some/prefix: \w+ing .*AccessDenied \(403\): as a test wants; grant the rights that docs/how-to/buckets.md lists$"
    with pytest.raises(SluiceReadError, match=told):
        list(reader.read(reader.partitions()[0]))
