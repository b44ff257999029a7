"""What tasks, processors and owners write into a directory or a bucket is read back in order, each once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import DdlAmbiguous, SinkUnavailable, TargetOccupied
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position, Window
from changefeed.records import DdlRecord, Scope
from changefeed.table import TableId, TableName
from sink.ddl import BeginAgain, CreateTable, DropTables, RenameTable
from sink.events.pos import pos_of
from sink.files.committer import FileCommitter
from sink.files.identity import FeedIdentity
from sink.files.leftovers import FileLeftovers
from sink.files.owner_log import KEPT_MARKS, FileDdlApplier, FileMarks
from sink.files.reading.feed_directory import FeedDirectory
from sink.reading.stored_message import MessageGap, Watermark
from sink.receipt import Commit, CopyEnd
from tests.component.sink.files.feed import (
    IDENTITY,
    NOTHING_SEEN,
    A,
    B,
    Feed,
    copied,
    copy_end,
    described,
    insert,
    moment,
    recorded,
)


@pytest.fixture
def feed(place: str) -> Feed:
    return Feed(place)


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
    ],
)
def test_rows_are_read_in_order_each_once(place: str, query: str) -> None:
    feed = Feed(place + query)
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


def test_windows_of_two_nodes_may_overlap_and_hold_more_than_they_say(feed: Feed) -> None:
    first, second, third, late = (insert(A, at, key) for at, key in ((101, 1), (106, 2), (112, 3), (119, 4)))
    feed.window(100, 110, [first, second, third, late])
    feed.window(105, 120, [second, third, late], epoch=8)
    feed.window(100, 115, [first, second, third], epoch=9)
    feed.marks.mark(moment(118))
    assert feed.read() == ["schema shop.a", "i1@101", "i2@106", "i3@112"]


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
    assert feed.store.names("log/7") == [f"{number:012d}.json" for number in range(3)]


def test_a_missing_manifest_is_a_gap(feed: Feed) -> None:
    for start in (100, 110, 120):
        feed.window(start, start + 10, [insert(A, start, 1)])
    feed.marks.mark(moment(130))
    feed.store.remove("log/7/000000000001.json")
    with pytest.raises(MessageGap, match=r"from 110\.1 on"):
        feed.read()


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


def test_ddls_stand_in_their_place(feed: Feed) -> None:
    feed.window(100, 103, [insert(A, 101, 1)])
    rename = RenameTable(name=TableName("shop", "a"), to=TableName("shop", "z"), replaces=False)
    feed.ddl.apply(rename, NOTHING_SEEN, recorded(DdlType.RENAME, 103))
    feed.ddl.apply(
        CreateTable(name=TableName("shop", "b"), options=Document.of({})),
        NOTHING_SEEN,
        recorded(DdlType.CREATE, 104, B),
    )
    feed.window(103, 110, [insert(A, 105, 2, "z")])
    committer = feed.committer(8)
    committer.commit(
        Commit(
            ranges={B: Window(moment(104, 0), moment(110))},
            files=feed.written([insert(B, 106, 3, "b")]),
            tables=(described(B, "b", moment(104, 0)),),
        )
    )
    feed.ddl.apply(DropTables(names=(TableName("shop", "z"),)), NOTHING_SEEN, recorded(DdlType.DROP, 110))
    feed.window(110, 120, [], B)
    feed.marks.mark(moment(120))
    assert feed.read() == [
        "schema shop.a",
        "i1@101",
        "rename shop.a",
        "create shop.b",
        "i2@105",
        "i3@106",
        "drop shop.z",
    ]


def test_a_ddl_that_is_applied_again_is_the_same_file(feed: Feed) -> None:
    drop, record = DropTables(names=(TableName("shop", "a"),)), recorded(DdlType.DROP, 110)
    feed.ddl.apply(drop, NOTHING_SEEN, record)
    feed.ddl.apply(drop, NOTHING_SEEN, record)
    assert len(feed.store.names("ddl")) == 1
    with pytest.raises(DdlAmbiguous, match="another DDL"):
        feed.ddl.apply(DropTables(names=(TableName("shop", "other"),)), NOTHING_SEEN, record)


def test_copied_documents_stand_at_the_time_of_their_reading(feed: Feed) -> None:
    committer = feed.committer()
    for at in (102, 104):
        receipt = copied(feed, 100, at, [{"_id": 7, "at": at}])
        committer.commit(Commit(ranges={}, copies=(receipt,), tables=(described(A),)))
    feed.window(100, 110, [insert(A, 103, 7), insert(A, 106, 8)])
    feed.ddl.copied(copy_end(100))
    feed.marks.mark(moment(110))
    assert feed.read() == ["copy", "schema shop.a", "r7@102", "i7@103", "r7@104", "copied", "i8@106"]


def test_a_copy_goes_on_until_it_is_said_to_be_complete(feed: Feed) -> None:
    reader, committer = feed.reader(), feed.committer()
    committer.commit(
        Commit(ranges={}, copies=(copied(feed, 100, 102, [{"_id": 7, "at": 102}]),), tables=(described(A),))
    )
    feed.window(100, 105, [insert(A, 103, 8)])
    feed.marks.mark(moment(105))
    assert feed.read(reader) == ["copy", "schema shop.a", "r7@102", "i8@103"]
    committer.commit(Commit(ranges={}, copies=(copied(feed, 100, 107, [{"_id": 9, "at": 107}]),)))
    feed.window(105, 110, [insert(A, 106, 10)])
    feed.marks.mark(moment(110))
    assert feed.read(reader) == ["i10@106", "r9@107"]
    feed.window(110, 120, [insert(A, 111, 11)])
    feed.ddl.copied(copy_end(100))
    feed.marks.mark(moment(120))
    assert feed.read(reader) == ["copied", "i11@111"]


def test_what_was_read_just_before_the_copys_start_is_shown(feed: Feed) -> None:
    committer = feed.committer()
    committer.commit(Commit(ranges={}, copies=(copied(feed, 100, 99, [{"_id": 7, "at": 99}]),), tables=(described(A),)))
    feed.window(100, 110, [insert(A, 101, 8)])
    feed.ddl.copied(copy_end(100))
    feed.ddl.copied(copy_end(100))
    feed.marks.mark(moment(110))
    assert feed.read() == ["copy", "schema shop.a", "r7@99", "copied", "i8@101"]


def test_a_copy_that_begins_again_hides_the_one_before(feed: Feed) -> None:
    committer = feed.committer()
    committer.commit(
        Commit(ranges={}, copies=(copied(feed, 100, 102, [{"_id": 7, "at": 102}]),), tables=(described(A),))
    )
    committer.commit(Commit(ranges={}, copies=(copied(feed, 100, 109, [{"_id": 6, "at": 109}]),)))
    feed.ddl.recopy(A, TableName("shop", "a"), moment(105))
    feed.ddl.recopy(A, TableName("shop", "a"), moment(105))
    committer.commit(Commit(ranges={}, copies=(copied(feed, 105, 107, [{"_id": 8, "at": 107}]),)))
    feed.window(105, 110, [insert(A, 108, 9)])
    feed.ddl.copied(copy_end(105))
    feed.marks.mark(moment(110))
    assert feed.read() == ["copy", "schema shop.a", "r7@102", "recopy shop.a", "copy", "r8@107", "copied", "i9@108"]


def _begin_again(feed: Feed, at: int, skipped_from: Position | None = None) -> None:
    event = DdlEvent(position=moment(at), type=DdlType.ENTER, db="shop", table=TableName("shop", "a"), id=A)
    record = DdlRecord(event=event, scope=Scope(apart=frozenset({A})), seen_at=datetime.now(UTC))
    schema, name = described(A, at=moment(at))
    feed.ddl.apply(BeginAgain(name=name, schema=schema, skipped_from=skipped_from), NOTHING_SEEN, record)


@pytest.mark.parametrize("before", ["nothing", "a part of a copy", "rows"])
def test_a_copy_anew_that_is_interrupted_at_once_begins_at_the_interruption(feed: Feed, before: str) -> None:
    """Nothing of it was committed, so no commit says what the table was where it began."""
    committer = feed.committer()
    match before:
        case "a part of a copy":
            receipt = copied(feed, 100, 102, [{"_id": 1, "at": 102}])
            committer.commit(Commit(ranges={}, copies=(receipt,), tables=(described(A),)))
        case "rows":
            feed.window(100, 110, [insert(A, 101, 1)])
    _begin_again(feed, 110)
    feed.ddl.recopy(A, TableName("shop", "a"), moment(115))
    feed.marks.mark(moment(115))
    reader = feed.reader()
    shown = feed.read(reader)
    assert shown[-3:] == ["recopy shop.a", "copy", "schema shop.a"]
    assert shown[:-3] == (["schema shop.a", "i1@101"] if before == "rows" else [])
    copies = (copied(feed, 115, 117, [{"_id": 2, "at": 117}]),)
    committer.commit(Commit(ranges={}, copies=copies, tables=(described(A, at=moment(115)),)))
    committer.commit(Commit(ranges={A: Window(moment(115), moment(120))}))
    feed.ddl.copied(copy_end(115))
    feed.marks.mark(moment(120))
    rest = ["recopy shop.a", "copy", "r2@117", "copied"]
    assert feed.read(reader) == rest
    assert feed.read() == [*shown, *rest]


def test_a_table_that_is_dropped_before_anything_of_its_copy_anew_is_there_is_gone(feed: Feed) -> None:
    feed.window(100, 110, [insert(A, 101, 1)])
    _begin_again(feed, 110)
    feed.ddl.apply(DropTables(names=(TableName("shop", "a"),)), NOTHING_SEEN, recorded(DdlType.DROP, 115))
    feed.marks.mark(moment(120))
    assert feed.read() == ["schema shop.a", "i1@101", "recopy shop.a", "copy", "schema shop.a", "drop shop.a"]


def test_what_a_table_is_that_begins_again_is_written_before_it_begins(feed: Feed) -> None:
    """Whoever sees the DDL sees the schema. Without the schema, it says which file is missing."""
    _begin_again(feed, 110)
    feed.marks.mark(moment(115))
    [folder] = feed.store.names("schema")
    [name] = feed.store.names(f"schema/{folder}")
    feed.store.remove(f"schema/{folder}/{name}")
    with pytest.raises(MessageGap, match=f"{folder}/{name}: expected this file, since shop.a begins again"):
        feed.read()


def test_a_table_that_is_copied_anew_lacks_what_is_skipped(feed: Feed) -> None:
    feed.window(100, 105, [insert(A, 101, 1)])
    feed.marks.mark(moment(120), {A: moment(105)})
    reader = feed.reader()
    assert feed.read(reader) == ["schema shop.a", "i1@101"]
    _begin_again(feed, 110, skipped_from=moment(105))
    again = (described(A, at=moment(110)),)
    feed.committer().commit(Commit(ranges={}, copies=(copied(feed, 110, 112, [{"_id": 2, "at": 112}]),), tables=again))
    feed.committer().commit(Commit(ranges={A: Window(moment(110), moment(130))}, tables=again))
    feed.ddl.copied(copy_end(110))
    feed.marks.mark(moment(130))
    assert feed.read(reader) == ["recopy shop.a", "copy", "schema shop.a", "r2@112", "copied"]
    directory = FeedDirectory(feed.store)
    directory.look()
    [message] = directory.ddls.values()
    assert message.fields["skipped"] == {"from": pos_of(moment(105)), "to": pos_of(moment(110))}


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
    directory.look()
    assert sorted(message.pos for message in directory.ddls.values()) == list(map(pos_of, places))
    assert {table: list(found) for table, found in directory.schemas.items()} == dict.fromkeys(tables, places)
    assert directory.copied == {(table, place) for table in tables for place in places}


def test_a_reader_that_goes_on_shows_what_is_new(feed: Feed) -> None:
    reader = feed.reader()
    feed.window(100, 110, [insert(A, 101, 1), insert(A, 108, 2)])
    feed.marks.mark(moment(105))
    assert feed.read(reader) == ["schema shop.a", "i1@101"]
    feed.marks.mark(moment(110))
    feed.window(110, 120, [insert(A, 111, 3)])
    assert feed.read(reader) == ["i2@108"]
    assert feed.read(reader) == []
    feed.marks.mark(moment(120))
    assert feed.read(reader) == ["i3@111"]


def test_a_table_that_is_behind_is_shown_as_far_as_it_is(feed: Feed) -> None:
    reader = feed.reader()
    feed.window(100, 110, [insert(A, 101, 1), insert(B, 102, 2, "b")], A, B)
    feed.window(110, 120, [insert(A, 111, 3)], A)
    feed.marks.mark(moment(120), {B: moment(110)})
    assert feed.read(reader) == ["schema shop.a", "schema shop.a", "i1@101", "i2@102", "i3@111"]
    feed.window(110, 130, [insert(A, 121, 4), insert(B, 112, 5, "b")], A, B)
    feed.marks.mark(moment(130))
    assert feed.read(reader) == ["i5@112", "i4@121"]


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
            FileDdlApplier(other, feed.store).recopy(A, TableName("shop", "a"), moment(101))


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
        lambda: feed.ddl.recopy(A, TableName("shop", "a"), moment(118)),
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
