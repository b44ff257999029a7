from __future__ import annotations

import json

import pytest

from pyspark_sluice.batches import (
    PARTITION_BYTES,
    PARTITION_ROWS,
    FileCost,
    by_table,
    next_stop,
    shared_out,
    up_to,
    whole_files,
    within_files,
)
from pyspark_sluice.reader_options import BatchLimits
from sluice_client.cluster_time import ClusterTime
from sluice_client.feed_reader import Rank, Shown, StoredMessage, Watermark
from sluice_client.manifest import FileSpans, Receipt, Span
from sluice_client.pos import pos_of
from sluice_client.position import Position, TableId


def _at(seconds: int, index: int | None = None) -> Position:
    return Position(ClusterTime(seconds, 0), "" if index is None else f"{index:08X}")


def _pos(seconds: int, index: int | None = None) -> str:
    return pos_of(_at(seconds, index))


def _cost(start: int, end: int, rows: int) -> FileCost:
    return FileCost(_pos(start), _pos(end), rows, rows * 10)


_FILES = [_cost(1, 5, 60), _cost(1, 5, 30), _cost(5, 9, 80), _cost(9, 12, 10)]


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        (BatchLimits(rows=100), (5, 9)),
        (BatchLimits(rows=90), (5, 9)),
        (BatchLimits(rows=170), (9, 12)),
        (BatchLimits(rows=180), (12, None)),
        (BatchLimits(rows=89), (None, 5)),
        (BatchLimits(bytes=900), (5, 9)),
        (BatchLimits(bytes=899), (None, 5)),
        (BatchLimits(files=2), (5, 9)),
        (BatchLimits(files=3), (9, 12)),
        (BatchLimits(rows=1000, files=1), (None, 5)),
    ],
)
def test_a_batch_ends_where_files_end(limits: BatchLimits, found: tuple[int | None, int | None]) -> None:
    last, beyond = found
    wanted = _at(last) if last else None, _at(beyond) if beyond else None
    assert whole_files(_FILES, limits) == wanted


def test_a_file_that_ends_at_an_event_ends_behind_its_time() -> None:
    file = FileCost(_pos(1), _pos(5, 3), 1, 1)
    assert whole_files([file], BatchLimits(rows=5)) == (Position(ClusterTime(5, 1)), None)


def _rows(*counts: int) -> list[tuple[str, float]]:
    return [(_pos(time, index), 2.0) for time, count in enumerate(counts, 1) for index in range(count)]


@pytest.mark.parametrize(
    ("limit", "counts", "behind"),
    [
        (100, (40, 50, 300), 2),
        (89, (40, 50, 300), 1),
        (10, (40, 50, 300), 1),
        (390, (40, 50, 300), None),
        (1, (1, 1), 1),
    ],
)
def test_a_transaction_is_whole_and_more_than_the_limit_is_a_batch(
    limit: int, counts: tuple[int, ...], behind: int | None
) -> None:
    wanted = None if behind is None else Position(ClusterTime(behind, 1))
    assert within_files(_rows(*counts), BatchLimits(rows=limit)) == wanted
    assert within_files(_rows(*counts), BatchLimits(bytes=2 * limit)) == wanted


def test_a_table_that_is_behind_goes_on_from_its_own_place() -> None:
    table = TableId("u")
    before = Watermark(_at(120), {table: _at(105)})
    assert up_to(before, Watermark(_at(130)), _at(110)) == Watermark(_at(120), {table: _at(110)})


def _ddl(at: int, type: str, rank: Rank = Rank.DDL) -> Shown:
    raw = json.dumps({"v": 1, "op": "ddl", "type": type, "ns": "shop.a", "id": "u", "pos": _pos(at, 0)}).encode()
    return Shown(_pos(at, 0), rank, "u", at, StoredMessage(_pos(at, 0), "u", raw))


def test_a_query_stops_at_the_first_ddl_that_changes_which_rows_a_table_has() -> None:
    ready = [_ddl(9, "drop"), _ddl(5, "createIndexes"), _ddl(7, "rename"), _ddl(4, "create")]
    stop = next_stop(ready, Watermark(_at(3)), None)
    assert stop is not None
    assert (stop.at, stop.here) == (_at(7, 0), False)
    here = next_stop(ready, Watermark(_at(7, 0)), None)
    assert here is not None
    assert here.here
    assert f".option('start', '{_pos(7, 0)}')" in here.text
    behind = next_stop(ready, Watermark(_at(7, 0)), _at(7, 0))
    assert behind is not None
    assert behind.at == _at(9, 0)
    assert next_stop(ready, Watermark(_at(7, 0)), _at(9, 0)) is None


def _file(name: str, size: int, *tables: str, rows: int = 1) -> FileSpans:
    spans = {table: [Span(_pos(1), _pos(9))] for table in tables}
    return FileSpans(Receipt(name=name, rows=rows, bytes=size, crc32=0), spans)


def test_partitions_are_of_about_one_size() -> None:
    files = {name: _file(name, size, "u") for name, size in (("a", PARTITION_BYTES), ("b", 1), ("c", 1))}
    files["d"] = _file("d", 1, "u", rows=PARTITION_ROWS)
    assert [[each.file.name for each in part] for part in shared_out(files)] == [["a"], ["b", "c"], ["d"]]
    many = {f"{number:04}": _file(f"{number:04}", PARTITION_BYTES, "u") for number in range(1000)}
    assert len(shared_out(many)) <= 256
    assert sum(map(len, shared_out(many))) == 1000


def test_each_table_takes_its_part_of_each_file() -> None:
    found = by_table({"a": _file("a", 1, "u", "w"), "b": _file("b", 1, "u")})
    assert {table: [(each.file.name, list(each.spans)) for each in files] for table, files in found.items()} == {
        "u": [("a", ["u"]), ("b", ["u"])],
        "w": [("a", ["w"])],
    }
