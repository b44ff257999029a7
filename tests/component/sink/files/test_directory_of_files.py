"""What is special of files among sinks of messages (`test_message_contract.py`): their formats, their commits, what is missing, and whose they are.

In a folder: what a bucket does otherwise is below the port of stores, which has tests for each kind.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import DdlAmbiguous, SinkUnavailable, TargetOccupied
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position, Window
from changefeed.records.ddl import DdlRecord, Scope
from changefeed.table import TableId, TableName
from sink.ddl import BeginAgain, DropTables
from sink.messages.files.feed_log import (
    KEPT_MARKS,
    FeedIdentity,
    FileCommitter,
    FileDdlApplier,
    FileLeftovers,
    FileMarks,
)
from sink.messages.files.store import Store
from sink.receipt import Commit, CommitCounts, CopyEnd
from sluice_client.feed_directory import FeedDirectory
from sluice_client.feed_reader import MessageGap, Round, Watermark
from sluice_client.pos import pos_of
from tests.component.sink.files.feed import IDENTITY, Feed, copied
from tests.component.sink.vocabulary import (
    NOTHING_SEEN,
    A,
    B,
    copy_end,
    described,
    entered,
    insert,
    moment,
    recorded,
    text_of,
)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(f"file://{tmp_path}/orders")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "&format=bson",
        "&compression=none",
        "&format=bson&compression=none",
        "&compression=zstd",
        "&format=bson&compression=zstd",
        "&file_size=64KiB&compression=none",
        "&format=parquet",
        "&format=parquet&compression=gzip",
        "&format=parquet&file_size=64KiB&compression=none",
        "&layout=hive&file_size=64KiB&compression=none",
        "&layout=hive&format=bson",
        "&layout=hive&format=parquet",
    ],
)
def test_rows_are_read_in_order_from_each_format(tmp_path: Path, query: str) -> None:
    feed = Feed(f"file://{tmp_path}/orders?commit_interval=60s{query}")
    many = [insert(A, 101, key) for key in range(3_000)]
    feed.window(100, 110, [*many, insert(A, 109, 1)])
    feed.window(110, 120, [insert(A, 110, 2)])
    feed.marks.mark(moment(120))
    assert feed.read() == ["schema shop.a", *(f"i{key}@101" for key in range(3_000)), "i1@109", "i2@110"]


def test_a_bson_message_of_any_size_is_read_as_bson(tmp_path: Path) -> None:
    """The first byte of some is a brace."""
    feed = Feed(f"file://{tmp_path}/orders?format=bson&compression=none")
    document = [bson.encode({"_id": key, "at": 101, "text": "x" * key}) for key in range(256)]
    feed.window(100, 110, [insert(A, 101, key)._replace(document=document[key]) for key in range(256)])
    feed.marks.mark(moment(110))
    assert feed.read()[1:] == [f"i{key}@101" for key in range(256)]


def test_nothing_is_shown_before_its_manifest_and_its_mark(feed: Feed) -> None:
    feed.window(100, 110, [insert(A, 101, 1)])
    assert feed.read() == []
    feed.marks.mark(moment(105))
    feed.written([insert(A, 102, 2)])
    assert feed.read() == ["schema shop.a", "i1@101"]


def test_a_commit_that_is_repeated_changes_nothing(feed: Feed) -> None:
    commit = Commit(
        ranges={A: Window(moment(100), moment(110))}, files=feed.written([insert(A, 101, 1)]), tables=(described(A),)
    )
    first = feed.committer()
    first.commit(commit)
    first.commit(commit)
    feed.committer().commit(commit)
    feed.marks.mark(moment(110))
    assert feed.read() == ["schema shop.a", "i1@101"]
    assert feed.store.names("log/7/000000000") == [f"{number:012d}.json" for number in range(3)]


def test_a_missing_manifest_is_a_gap(feed: Feed) -> None:
    for start in (100, 110, 120):
        feed.window(start, start + 10, [insert(A, start, 1)])
    feed.marks.mark(moment(130))
    feed.store.remove("log/7/000000000/000000000001.json")
    with pytest.raises(MessageGap, match=r"000000000001\.json: expected this file"):
        feed.read()


def test_a_window_without_rows_is_a_mark_alone(feed: Feed) -> None:
    committer = feed.committer()
    for start in range(100, 150, 10):
        files = feed.written([insert(A, start, 1)]) if start == 110 else ()
        ranges = {A: Window(moment(start), moment(start + 10))}
        committer.commit(Commit(ranges=ranges, files=files, tables=(described(A),)))
    feed.marks.mark(moment(150), committed=CommitCounts(counts=committer.committed))
    assert feed.store.names("log/7/000000000") == ["000000000000.json"]
    assert feed.read() == ["schema shop.a", "i1@110"]


@pytest.mark.parametrize("removed", ["the last manifest", "the log of a node", "the log of a node that is gone"])
def test_what_a_mark_rests_on_is_missing(feed: Feed, removed: str) -> None:
    """Ranges need not meet, so nothing else tells of it."""
    leftovers = FileLeftovers(IDENTITY, feed.store)
    for epoch, start in ((6, 100), (7, 110), (7, 120)):
        feed.window(start, start + 10, [insert(A, start, 1)], epoch=epoch)
    committed = CommitCounts(counts={7: 2}, ended=leftovers.end(lambda epoch: epoch == 6))
    feed.marks.mark(moment(130), committed=committed)
    reader = feed.reader()
    assert feed.read() == ["schema shop.a", "i1@100", "i1@110", "i1@120"]
    gone = {
        "the last manifest": "7/000000000/000000000001",
        "the log of a node": "7",
        "the log of a node that is gone": "6",
    }
    path = feed.path / "log" / gone[removed]
    path.with_suffix(".json").unlink() if removed == "the last manifest" else shutil.rmtree(path)
    with pytest.raises(MessageGap, match="restore"):
        feed.read(reader)


def test_a_manifest_that_is_not_listed_yet_is_read(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system, where a listing may be old."""
    feed.window(100, 110, [insert(A, 100, 1)])
    names = type(feed.store).names
    listed = names(feed.store, "log"), names(feed.store, "log/7/000000000")
    feed.window(110, 120, [insert(A, 110, 1)])
    feed.window(110, 120, [insert(B, 111, 2, "b")], B, epoch=8)
    feed.marks.mark(moment(120), committed=CommitCounts(counts={7: 2, 8: 1}))

    def old(store: Store, folder: str, after: str = "") -> list[str]:
        known = {"log": listed[0], "log/7/000000000": listed[1], "log/8/000000000": []}
        return [name for name in known.get(folder, names(store, folder)) if name > after]

    monkeypatch.setattr(type(feed.store), "names", old)
    assert feed.read() == ["schema shop.a", "schema shop.a", "i1@100", "i1@110", "i2@111"]


def test_a_reader_that_goes_on_finds_what_was_there_or_ends(feed: Feed) -> None:
    """A round that was saved and is read with a listing that is old would be done without its rows."""
    for start in (100, 110):
        feed.window(start, start + 10, [insert(A, start, 1)])
        feed.marks.mark(moment(start + 10), committed=CommitCounts(counts={7: start // 10 - 9}))
    saved = Round(Watermark(moment(110)), Watermark(moment(120)))

    def went_on() -> list[str]:
        reader = feed.reader()
        list(reader.skim(saved.before))
        return [text_of(shown.content) for shown in reader.read(saved)]

    assert went_on() == ["i1@110"]
    hidden = max((feed.path / "checkpoint").iterdir()).rename(feed.path / "hidden")
    told = f"expected a watermark at {pos_of(moment(120))}, .* found {pos_of(moment(110))}.*; run it again"
    with pytest.raises(MessageGap, match=told):
        went_on()
    with pytest.raises(MessageGap, match=told):
        list(feed.reader().skim(saved.now))
    hidden.rename(feed.path / "checkpoint" / f"{moment(120).ts.to_int():016X}")
    feed.store.remove("log/7/000000000/000000000001.json")
    with pytest.raises(MessageGap, match=r"000000000001\.json: expected this file"):
        went_on()


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: None,
        lambda content: content[:-1],
        lambda _: b"x",
    ],
)
def test_a_missing_or_damaged_file_is_found(feed: Feed, damage: Callable[[bytes], bytes | None]) -> None:
    feed.window(100, 110, [insert(A, 101, 1)])
    feed.marks.mark(moment(110))
    [name] = feed.store.names("data/7")
    content = feed.store.read(f"data/7/{name}") or b""
    feed.store.remove(f"data/7/{name}")
    if (damaged := damage(content)) is not None:
        feed.store.create(f"data/7/{name}", damaged)
    with pytest.raises(MessageGap, match="restore it"):
        feed.read()


def test_a_ddl_that_is_applied_again_is_the_same_file(feed: Feed) -> None:
    drop, record = DropTables(names=(TableName("shop", "a"),)), recorded(DdlType.DROP, 110)
    feed.ddl.apply(drop, NOTHING_SEEN, record)
    feed.ddl.apply(drop, NOTHING_SEEN, record)
    assert len(feed.store.names("ddl")) == 1
    with pytest.raises(DdlAmbiguous, match="another DDL"):
        feed.ddl.apply(DropTables(names=(TableName("shop", "other"),)), NOTHING_SEEN, record)


def test_a_copy_that_begins_again_hides_the_one_before(feed: Feed) -> None:
    committer = feed.committer()
    feed.ddl.begin([described(A, copied=True)])
    committer.commit(Commit(ranges={}, copies=(copied(feed, 100, 102, [{"_id": 7, "at": 102}]),)))
    committer.commit(Commit(ranges={}, copies=(copied(feed, 100, 109, [{"_id": 6, "at": 109}]),)))
    feed.ddl.emptied(A, TableName("shop", "a"), moment(105))
    feed.ddl.emptied(A, TableName("shop", "a"), moment(105))
    committer.commit(Commit(ranges={}, copies=(copied(feed, 105, 107, [{"_id": 8, "at": 107}]),)))
    feed.window(105, 110, [insert(A, 108, 9)])
    feed.ddl.copied(copy_end(105))
    feed.marks.mark(moment(110))
    assert feed.read() == ["copy", "schema shop.a", "r7@102", "recopy shop.a", "copy", "r8@107", "copied", "i9@108"]


def test_a_table_that_leaves_and_comes_back_begins_again(feed: Feed) -> None:
    """Renamed to a name outside the filter, which drops it, and renamed back. Its identity is the same."""
    feed.window(100, 110, [insert(A, 101, 1)])
    feed.ddl.apply(DropTables(names=(TableName("shop", "a"),)), NOTHING_SEEN, recorded(DdlType.DROP, 110))
    feed.marks.mark(moment(112))
    reader = feed.reader()
    left = feed.read(reader)
    assert left == ["schema shop.a", "i1@101", "drop shop.a"]
    back = (described(A, "z", at=moment(115, 0), copied=True),)
    receipt = replace(copied(feed, 115, 117, [{"_id": 2, "at": 117}], name="z"), start=moment(115, 0))
    feed.committer().commit(Commit(ranges={}, copies=(receipt,), tables=back))
    rows = feed.written([insert(A, 118, 3, "z")])
    feed.committer().commit(Commit(ranges={A: Window(moment(115, 0), moment(120))}, files=rows, tables=back))
    feed.ddl.copied(CopyEnd(table=A, name=TableName("shop", "z"), start=moment(115, 0), at=moment(118)))
    feed.marks.mark(moment(120))
    returned = ["copy", "schema shop.z", "r2@117", "copied", "i3@118"]
    assert feed.read(reader) == returned
    assert feed.read() == [*left, *returned]
    feed.ddl.apply(DropTables(names=(TableName("shop", "z"),)), NOTHING_SEEN, recorded(DdlType.DROP, 120))
    feed.marks.mark(moment(130))
    assert feed.read(reader) == ["drop shop.z"]


def test_what_a_table_is_that_begins_again_is_written_before_it_begins(feed: Feed) -> None:
    """Whoever sees the DDL sees the schema. Without the schema, it says which file is missing."""
    schema, table = described(A, at=moment(110))
    feed.ddl.apply(BeginAgain(name=table, schema=schema), NOTHING_SEEN, entered(110))
    feed.marks.mark(moment(115))
    [name] = feed.store.names("schema")
    feed.store.remove(f"schema/{name}")
    with pytest.raises(MessageGap, match=f"schema/{name}: expected this file, since shop.a begins again"):
        feed.read()


def test_a_place_of_any_length_has_a_file_of_its_own(feed: Feed) -> None:
    """A resume token holds the definition of what was created. Tables and views may have long names, too."""
    places = [Position(ClusterTime(100, 1), "82" + "AB" * 1_000 + end) for end in ("01", "02")]
    tables = [TableId(f"view:shop.{'ä' * 100}{end}") for end in "ab"]
    event = DdlEvent(position=places[0], type=DdlType.DROP, db="shop", table=TableName("shop", "a"), id=A)
    for place in places:
        record = DdlRecord(
            event=replace(event, position=place), scope=Scope(ended=frozenset({A})), seen_at=datetime.now(UTC)
        )
        for _ in range(2):
            feed.ddl.apply(DropTables(names=(TableName("shop", "a"),)), NOTHING_SEEN, record)
    for table in tables:
        for place in places:
            feed.committer().commit(Commit(ranges={}, tables=(described(table, at=place),)))
            feed.ddl.copied(CopyEnd(table=table, name=TableName("shop", "a"), start=place, at=place))
    directory = FeedDirectory(feed.store)
    directory.look(Position(ClusterTime(0, 0)))
    history, known = directory.history, list(map(pos_of, places))
    assert sorted(message.pos for message in history.ddls.values()) == known
    assert {table: list(found) for table, found in history.schemas.items()} == dict.fromkeys(tables, known)
    assert {table: list(found) for table, found in history.copied.items()} == dict.fromkeys(tables, known)


def test_an_old_owners_late_mark_does_no_harm(feed: Feed) -> None:
    feed.window(100, 200, [insert(A, 101, 1)])
    old = FileMarks(IDENTITY, feed.store)
    for seconds in range(101, 103 + KEPT_MARKS):
        feed.marks.mark(moment(seconds))
    old.mark(moment(101))
    assert FeedDirectory(feed.store).mark() == Watermark(moment(102 + KEPT_MARKS))
    assert len(feed.store.names("checkpoint")) <= KEPT_MARKS + 2


def test_a_reader_never_goes_back_for_a_late_mark(feed: Feed) -> None:
    """Not even when so many of them come that no other is kept; then it waits until the new owner's numbers have come as far."""
    reader = feed.reader()
    feed.window(100, 110, [insert(A, 101, 1), insert(A, 108, 2), insert(B, 104, 3, "b")], A, B)
    feed.marks.mark(moment(110))
    assert len(feed.read(reader)) == 5
    old = FileMarks(IDENTITY, feed.store)
    for _ in range(KEPT_MARKS + 1):
        old.mark(moment(105), {B: moment(103)})
    assert feed.read(reader) == []
    feed.window(110, 120, [insert(A, 111, 4), insert(B, 112, 5, "b")], A, B)
    for _ in range(KEPT_MARKS + 1):
        feed.marks.mark(moment(120), {B: moment(110)})
    assert feed.read(reader) == ["i4@111"]
    feed.marks.mark(moment(120))
    assert feed.read(reader) == ["i5@112"]


def test_marks_are_joined_table_by_table() -> None:
    ahead = Watermark(moment(120), {A: moment(110), B: moment(115)})
    late = Watermark(moment(112), {B: moment(105)})
    assert ahead.joined(late) == late.joined(ahead) == Watermark(moment(120), {A: moment(112), B: moment(115)})
    assert ahead.joined(Watermark(moment(130))) == Watermark(moment(130))


def test_a_directory_of_another_changefeed_is_refused(feed: Feed) -> None:
    feed.window(100, 110, [])
    for other in (FeedIdentity(feed="orders", life="c/2"), FeedIdentity(feed="other", life="c/1")):
        with pytest.raises(TargetOccupied, match="needs an empty place"):
            FileCommitter(other, feed.store, 9).commit(Commit(ranges={A: Window(moment(100), moment(101))}))
        with pytest.raises(TargetOccupied):
            FileMarks(other, feed.store).mark(moment(101))
        with pytest.raises(TargetOccupied):
            FileDdlApplier(other, feed.store).emptied(A, TableName("shop", "a"), moment(101))


@pytest.mark.parametrize("there", [True, False], ids=["its place is empty", "its place is gone"])
def test_nothing_counts_where_the_file_system_is_not_mounted(tmp_path: Path, *, there: bool) -> None:
    """The writers are open, as those of nodes at work. What they write into the place of the file system is not believed."""
    feed = Feed(f"file://{tmp_path}/orders")
    feed.window(100, 110, [insert(A, 101, 1)])
    feed.marks.mark(moment(110))
    committer = feed.committer()
    committer.commit(Commit(ranges={A: Window(moment(110), moment(115))}))
    mounted = feed.path.rename(feed.path.parent / "mounted")
    if there:
        feed.path.mkdir()
    drop = DropTables(names=(TableName("shop", "a"),))
    late = Commit(
        ranges={each: Window(moment(115), moment(120)) for each in (A, B)}, tables=(described(B, "b", moment(115)),)
    )
    for write in (
        lambda: committer.commit(late),
        lambda: feed.window(115, 120, [insert(A, 116, 2)]),
        lambda: feed.marks.mark(moment(120)),
        lambda: feed.ddl.apply(drop, NOTHING_SEEN, recorded(DdlType.DROP, 120)),
        lambda: feed.ddl.copied(copy_end(100)),
        lambda: feed.ddl.emptied(A, TableName("shop", "a"), moment(118)),
    ):
        with pytest.raises(SinkUnavailable, match=r"is its file system mounted here|No such file"):
            write()
    if there:
        shutil.rmtree(feed.path)
    mounted.rename(feed.path)
    committer.commit(late)
    feed.marks.mark(moment(120))
    feed.ddl.apply(drop, NOTHING_SEEN, recorded(DdlType.DROP, 120))
    assert feed.read() == ["schema shop.a", "i1@101", "schema shop.b"]
    assert FileLeftovers(IDENTITY, feed.store).sweep(lambda _: True) == 0
