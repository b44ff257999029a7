"""A real Spark reads what the product wrote."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import bson
import pyarrow.parquet as pq
import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64

from changefeed.event import DdlType, RowType
from devstack.s3.faulty_proxy import Fault, FaultyProxy
from devstack.spark.cluster import SparkCluster
from sink.ddl import DropTables, RenameTable
from sink.row import RowChange
from sluice_client.feed_reader import StoredMessage
from tests.component.pyspark_sluice.feeds import STATE, begun_again
from tests.component.sink.messages import Messages, filed
from tests.component.sink.vocabulary import A, B, changed, described, insert, named
from tests.until import until

_READING = [sys.executable, "-m", "tests.e2e.spark_reader.reading"]
_ROOT = Path(__file__).parents[3]
_MIDNIGHT = 86_400
_PATIENCE = 3600.0
"""Proves nothing: beside many neighbours a minute of CPU takes half an hour."""


def _shop(place: str, format: str = "parquet") -> Messages:
    messages = filed(f"{place}{'&' if '?' in place else '?'}format={format}")
    messages.claim(described(A), described(B, "b"))
    both = described(A), described(B, "b")
    messages.window(100, 110, [insert(A, 101, 1), insert(B, 102, 2, "b"), insert(A, 103, 3)], *both)
    changes = [changed(RowType.REPLACE, A, 115, index, 1, n=index) for index in range(20)]
    messages.window(105, 120, [*changes, insert(B, 117, 4, "b")], *both, epoch=8)
    messages.window(108, 130, [*changes, changed(RowType.DELETE, A, 125, 0, 3)], *both, epoch=9)
    messages.apply(RenameTable(name=named("b"), to=named("c"), replaces=False), DdlType.RENAME, 131, B)
    messages.window(130, 145, [insert(B, 140, 6, "c"), changed(RowType.UPDATE, A, 141, 0, 1, n=50)], *both)
    messages.mark(144)
    return messages


_TEXT_OF_OBJECT = '{"$numberInt":"7"}'
_NEWEST_OF_EQUALS = ["7", "null", "true", _TEXT_OF_OBJECT, None, True, {"$numberDecimal": "7.0"}]


def _identities(place: str) -> None:
    """Equal numbers are one `_id`, whatever their types are; text is never a number, and the text of an object not the object."""
    messages = filed(f"{place}?format=parquet")
    messages.claim(described(A))
    ids = [7, Int64(7), 7.0, Decimal128("7.0"), "7", True, "true", None, "null", _TEXT_OF_OBJECT]
    keys = [bson.encode({"_id": id}) for id in ids]
    rows = [insert(A, 101 + at, at)._replace(key=key, document=key) for at, key in enumerate(keys)]
    messages.window(100, 120, rows, described(A))
    messages.mark(120)


def _damaged(folder: Path, format: str, kept: float, rubbish: bytes) -> Path:
    """A file with rows."""
    _shop(f"file://{folder}", format)
    file = max((folder / "data").rglob("*.*"), key=lambda path: path.stat().st_size)
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * kept)] + rubbish)
    return file


def _as_read(messages: Messages) -> list[list[str]]:
    reader, found = messages.reader(), []
    round = reader.look()
    assert round is not None
    for shown in reader.read(round):
        if isinstance(shown.content, StoredMessage):
            text = shown.content.json
            fields = json.loads(text)
            key = json.dumps(fields["key"]) if "key" in fields else ""
            found.append([fields["pos"], fields["op"], key, "" if key else text])
    return sorted(found)


def _key(key: int) -> str:
    return f'{{"_id": {{"$numberInt": "{key}"}}}}'


def _read(how: str, place: str, folder: Path, **environment: str) -> None:
    command, environ = [*_READING, how, place, str(folder)], os.environ | environment
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False, env=environ)
    told = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(told[-100:])


@pytest.mark.costly("a JVM reads tables, and two streams of several batches")
def test_spark_shows_what_a_reader_of_files_shows(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/feed"
    messages = _shop(place)
    again = _as_read(begun_again(f"{place}_again?format=parquet"))
    _shop(f"file://{tmp_path}/another life")
    (tmp_path / "another life" / "feed.json").write_text('{"v": 1, "feed": "orders", "life": "c/2"}')
    _identities(f"file://{tmp_path}/identities")
    damaged = [_damaged(tmp_path / "cut", "parquet", 0.5, b""), _damaged(tmp_path / "spoilt", "json", 0.0, b"rubbish")]
    _read("tables", place, tmp_path)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rows"] == _committed(tmp_path / "one") == _committed(tmp_path / "other") == _as_read(messages)
    assert found["batches"] == [5, 1]
    assert _committed(tmp_path / "again") == again
    assert found["again"]["latest"] == [[name, _key(key)] for name, key in STATE]
    assert "as it began at c/2, a feed of another life; this query has read 'orders'" in found["again"]["another life"]
    assert found["newest"] == 0
    assert found["old name"] == []
    assert (
        "shop.c was shop.b until 0000008300000001.40000000000000, which the option tables leaves" in found["new name"]
    )
    assert found["documents"] == [
        [1, None, ["at: expected string, found int"]],
        [3, None, ["at: expected string, found int"]],
    ]
    keys = [("shop.a", 1), ("shop.c", 2), ("shop.c", 4), ("shop.c", 6)]
    assert found["latest"] == [[name, _key(key)] for name, key in keys]
    assert [json.loads(key)["_id"] for key in found["identities"]] == _NEWEST_OF_EQUALS
    assert "images: available" in found["refused"]
    assert "expected feed.json of a changefeed, found none" in found["nothing"]
    assert "table: is no option of this source (do you mean tables?)" in found["option"]
    for name, text in zip((damaged[0], damaged[0], damaged[1], damaged[1]), found["damaged"], strict=True):
        assert f"SluiceReadError: {name}: expected " in text
        assert "; the file is damaged: restore it" in text
    told = [*(found[name] for name in ("refused", "nothing", "option", "new name")), found["again"]["another life"]]
    assert [text for text in (*told, *found["damaged"]) if "\tat org.apache" in text] == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_a_query_that_is_killed_goes_on_where_it_was(seed: int, tmp_path: Path) -> None:
    """The feed is written while it is read; A is dropped, and begins again."""
    place, chance = f"file://{tmp_path}/feed", random.Random(seed)
    messages = _shop(place)
    at, folder = 145, tmp_path / "query"
    for _ in range(4):
        process = subprocess.Popen([*_READING, "stream", place, str(folder)], start_new_session=True)
        deadline = time.monotonic() + chance.uniform(15, 40)
        while time.monotonic() < deadline:
            rows = [insert(A, at + 1, key) for key in range(at * 100, at * 100 + 30)]
            messages.window(at, at + 5, rows, described(A), described(B, "b"))
            messages.mark(at + 5)
            at += 5
            time.sleep(1)  # load: a shop that goes on
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    messages.apply(DropTables(names=(named("a"),)), DdlType.DROP, at)
    messages.mark(at + 1)
    wanted = _as_read(messages)
    process = subprocess.Popen([*_READING, "stream", place, str(folder)], start_new_session=True)
    try:
        until(lambda: _committed(folder) == wanted, within=240)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.soak
@pytest.mark.costly("starts a master and two workers of Spark")
def test_a_cluster_of_two_workers_shows_what_a_reader_of_files_shows(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/feed"
    messages = _shop(place)
    with SparkCluster(tmp_path / "spark", cores=1, environment={"PYTHONPATH": str(_ROOT)}) as cluster:
        _read("now", place, tmp_path, SPARK_MASTER=cluster.url)
        assert _committed(tmp_path) == _as_read(messages)
        assert all(list((worker.directory / "work").glob("*/*/stderr")) for worker in cluster.workers)


@pytest.mark.soak
def test_a_stream_reads_a_bucket_and_says_which_rights_it_lacks(bucket: str, s3: FaultyProxy, tmp_path: Path) -> None:
    messages = _shop(bucket)
    _read("now", bucket, tmp_path)
    assert _committed(tmp_path) == _as_read(messages)
    s3.watch(lambda request: Fault.REFUSED if "/data/" in request.path else None)
    _read("refused", bucket, tmp_path)
    told = json.loads((tmp_path / "found.json").read_text())
    assert "AccessDenied (403): as a test wants; grant the rights that docs/how-to/buckets.md lists" in told
    assert "\tat org.apache" not in told


@pytest.mark.soak
def test_the_recipes_of_the_handbook_make_their_tables(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    messages, tables = filed(f"file://{tmp_path}/feed?format=parquet"), described(A, "orders")
    messages.claim(tables)
    first, second = _MIDNIGHT - 200, _MIDNIGHT + 200
    messages.window(100, first, [_order(first - 1, key, 1.5) for key in (1, 2, 3)], tables)
    changed_order = _order(second, 1, 20.0)._replace(type=RowType.REPLACE)
    changes = [changed_order, _order(second, 4, 4.0), changed(RowType.DELETE, A, second, 2, 2, "orders")]
    messages.window(first, second + 1, changes, tables)
    messages.window(second + 1, second + 600, [_order(second + 500, 5, 5.0)], tables)
    messages.mark(second + 600)
    _read("recipes", f"file://{tmp_path}/feed", tmp_path)
    wanted = {1: 20.0, 3: 1.5, 4: 4.0, 5: 5.0}
    for lake in ("lake before", "lake"):
        rows = DeltaTable(str(tmp_path / lake / "orders")).to_pyarrow_table().to_pylist()
        assert {row["_id"]: row["total"] for row in rows if not row["gone"]} == wanted
        assert len(rows) == len(wanted) + 1
    days = pq.read_table(str(tmp_path / "orders_by_day")).to_pylist()
    found = sorted((str(row["day"]), row["_id"], row["total"]) for row in days)
    before = [("1970-01-02", key, 1.5) for key in (1, 2, 3)]
    assert found == [*before, *(("1970-01-03", key, total) for key, total in wanted.items())]
    minutes = pq.read_table(str(tmp_path / "changes_by_minute")).to_pylist()
    at = [(row["minute"].timestamp(), row["op"], row["count"]) for row in minutes]
    starts = [moment // 60 * 60 for moment in (first - 1, second)]
    assert sorted(at) == [(starts[0], "i", 3), (starts[1], "R", 1), (starts[1], "d", 1), (starts[1], "i", 1)]


def _order(at: int, key: int, total: float) -> RowChange:
    document = bson.encode({"_id": key, "customer": 7, "total": total})
    return insert(A, at, key, "orders")._replace(document=document)


def _committed(folder: Path) -> list[list[str]]:
    """What the sink of the query says that it has: files whose batches are in its log, of which each tenth repeats those before."""
    logs = (folder / "rows" / "_spark_metadata").glob("[0-9]*")
    lines = {line for log in logs for line in log.read_text().splitlines()[1:]}
    found: list[list[str]] = []
    for name in {json.loads(line)["path"].removeprefix("file://") for line in lines}:
        rows = pq.read_table(name, columns=["pos", "op", "key", "ddl"])
        found += [[row["pos"], row["op"], row["key"] or "", row["ddl"] or ""] for row in rows.to_pylist()]
    return sorted(found)
