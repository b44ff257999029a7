"""What tasks, processors and owners write into a directory is read back in order, each once; a crash at any step leaves nothing wrong."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.file_sink import FileSinkOptions
from changefeed.documents.document import Document
from changefeed.errors import DdlAmbiguous, SinkRefused, SinkUnavailable, TargetOccupied
from changefeed.event import DdlEvent, DdlType, RowType
from changefeed.position import Position, Window
from changefeed.records import DdlRecord, Observation, Scope
from changefeed.table import TableId, TableName, TableSchema
from sink.ddl import CreateTable, DropTables, RenameTable
from sink.files.committer import FileCommitter
from sink.files.directory import Directory
from sink.files.identity import FeedIdentity
from sink.files.owner_log import KEPT_MARKS, FileDdlApplier, FileMarks
from sink.files.reading.chain import MessageGap
from sink.files.reading.feed_directory import FeedDirectory, StoredMessage, Watermark
from sink.files.reading.reader import Copied, CopyBegins, Reader
from sink.files.row_writer import FileDocumentLoader, FileRowWriter
from sink.receipt import Commit, CopyReceipt, Receipt
from sink.row import RowChange, TargetTable

_IDENTITY = FeedIdentity(feed="orders", life="c/1")
_A, _B = TableId("aa" * 16), TableId("bb" * 16)
_NOTHING = Observation(tables={})


def _at(seconds: int, index: int | None = None) -> Position:
    return Position(ClusterTime(seconds, 1), "" if index is None else f"{index:08X}")


def _target(table: TableId, name: str = "a") -> TargetTable:
    return TargetTable(id=table, source=TableName("shop", name), name=TableName("shop", name), version=_at(100))


def _schema(table: TableId, name: str = "a", at: Position | None = None) -> tuple[TableSchema, TableName]:
    return TableSchema(id=table, name=TableName("shop", name), valid_from=at or _at(100)), TableName("shop", name)


def _insert(table: TableId, at: int, key: int, name: str = "a") -> RowChange:
    document = bson.encode({"_id": key, "at": at})
    return RowChange(
        table=_target(table, name),
        type=RowType.INSERT,
        key=bson.encode({"_id": key}),
        document=document,
        update=None,
        time=ClusterTime(at, 1).to_int(),
        token=b"00000000",
    )


class _Feed:
    """A changefeed's writers, on a directory."""

    def __init__(self, path: Path, query: str = "") -> None:
        self.path = path
        self.options = FileSinkOptions.parse(f"file://{path}{query}")
        self.marks = FileMarks(_IDENTITY, self.options)
        self.ddl = FileDdlApplier(_IDENTITY, self.options)

    def committer(self, epoch: int = 7) -> FileCommitter:
        return FileCommitter(_IDENTITY, self.options, epoch)

    def written(self, changes: Sequence[RowChange]) -> tuple[Receipt, ...]:
        run = FileRowWriter("orders", self.options, lambda: None).begin(lambda _: False)
        for change in changes:
            run.prepare([change], replay=False)()
        return tuple(run.settle().receipts)

    def window(self, start: int, end: int, changes: Sequence[RowChange], *tables: TableId, epoch: int = 7) -> None:
        ranges = {table: Window(_at(start), _at(end)) for table in tables or (_A,)}
        described = tuple(_schema(table) for table in tables or (_A,))
        self.committer(epoch).commit(Commit(ranges=ranges, files=self.written(changes), tables=described))

    def read(self, reader: Reader | None = None) -> list[str]:
        return [_text(shown) for shown in (reader or self.reader()).read()]

    def reader(self) -> Reader:
        return Reader(FeedDirectory(str(self.path)))


def _text(shown: Any) -> str:
    if isinstance(shown, Copied | CopyBegins):
        return "copied" if isinstance(shown, Copied) else "copy"
    assert isinstance(shown, StoredMessage)
    fields = shown.fields
    match fields["op"]:
        case "ddl":
            return f"{fields['type']} {fields.get('ns', fields.get('db'))}"
        case "b":
            return f"schema {fields['ns']}"
        case op:
            return f"{op}{fields['key']['_id']}@{fields['after']['at']}"


def _record(type: DdlType, at: int, table: TableId = _A, **more: Any) -> DdlRecord:
    event = DdlEvent(position=_at(at, 0), type=type, db="shop", table=TableName("shop", "a"), id=table, **more)
    return DdlRecord(
        event=event, scope=Scope(tables=frozenset({table}), ended=frozenset({table})), seen_at=datetime.now(UTC)
    )


@pytest.fixture
def feed(tmp_path: Path) -> _Feed:
    return _Feed(tmp_path)


@pytest.mark.parametrize(
    "query",
    ["", "?format=bson", "?compression=none", "?format=bson&compression=none", "?file_size=64KiB&compression=none"],
)
def test_rows_are_read_in_order_each_once(tmp_path: Path, query: str) -> None:
    feed = _Feed(tmp_path, query)
    many = [_insert(_A, 101, key) for key in range(3_000)]
    feed.window(100, 110, [*many, _insert(_A, 109, 1)])
    feed.window(110, 120, [_insert(_A, 110, 2)])
    feed.marks.mark(_at(120))
    assert feed.read() == ["schema shop.a", *(f"i{key}@101" for key in range(3_000)), "i1@109", "i2@110"]


def test_nothing_is_shown_before_its_manifest_and_its_mark(feed: _Feed) -> None:
    feed.window(100, 110, [_insert(_A, 101, 1)])
    assert feed.read() == []
    feed.marks.mark(_at(105))
    feed.written([_insert(_A, 102, 2)])
    assert feed.read() == ["schema shop.a", "i1@101"]


def test_windows_of_two_nodes_may_overlap_and_hold_more_than_they_say(feed: _Feed) -> None:
    first, second, third, late = (_insert(_A, at, key) for at, key in ((101, 1), (106, 2), (112, 3), (119, 4)))
    feed.window(100, 110, [first, second, third, late])
    feed.window(105, 120, [second, third, late], epoch=8)
    feed.window(100, 115, [first, second, third], epoch=9)
    feed.marks.mark(_at(118))
    assert feed.read() == ["schema shop.a", "i1@101", "i2@106", "i3@112"]


def test_a_commit_that_is_repeated_changes_nothing(feed: _Feed) -> None:
    commit = Commit(
        ranges={_A: Window(_at(100), _at(110))}, files=feed.written([_insert(_A, 101, 1)]), tables=(_schema(_A),)
    )
    first = feed.committer()
    first.commit(commit)
    first.commit(commit)
    feed.committer().commit(commit)
    feed.marks.mark(_at(110))
    assert feed.read() == ["schema shop.a", "i1@101"]
    assert Directory(str(feed.path)).names("log/7") == [f"{number:012d}.json" for number in range(3)]


def test_a_missing_manifest_is_a_gap(feed: _Feed) -> None:
    for start in (100, 110, 120):
        feed.window(start, start + 10, [_insert(_A, start, 1)])
    feed.marks.mark(_at(130))
    Directory(str(feed.path)).remove("log/7/000000000001.json")
    with pytest.raises(MessageGap, match=r"from 110\.1 on"):
        feed.read()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b"x"),
    ],
)
def test_a_missing_or_damaged_file_is_found(feed: _Feed, damage: Any) -> None:
    feed.window(100, 110, [_insert(_A, 101, 1)])
    feed.marks.mark(_at(110))
    [data] = (feed.path / "data").iterdir()
    damage(data)
    with pytest.raises(MessageGap, match="restore it"):
        feed.read()


def test_ddls_stand_in_their_place(feed: _Feed) -> None:
    feed.window(100, 103, [_insert(_A, 101, 1)])
    rename = RenameTable(name=TableName("shop", "a"), to=TableName("shop", "z"), replaces=False)
    feed.ddl.apply(rename, _NOTHING, _record(DdlType.RENAME, 103))
    feed.ddl.apply(
        CreateTable(name=TableName("shop", "b"), options=Document.of({})), _NOTHING, _record(DdlType.CREATE, 104, _B)
    )
    feed.window(103, 110, [_insert(_A, 105, 2, "z")])
    committer = feed.committer(8)
    committer.commit(
        Commit(
            ranges={_B: Window(_at(104, 0), _at(110))},
            files=feed.written([_insert(_B, 106, 3, "b")]),
            tables=(_schema(_B, "b", _at(104, 0)),),
        )
    )
    feed.ddl.apply(DropTables(names=(TableName("shop", "z"),)), _NOTHING, _record(DdlType.DROP, 110))
    feed.window(110, 120, [], _B)
    feed.marks.mark(_at(120))
    assert feed.read() == [
        "schema shop.a",
        "i1@101",
        "rename shop.a",
        "create shop.b",
        "i2@105",
        "i3@106",
        "drop shop.z",
    ]


def test_a_ddl_that_is_applied_again_is_the_same_file(feed: _Feed) -> None:
    drop, record = DropTables(names=(TableName("shop", "a"),)), _record(DdlType.DROP, 110)
    feed.ddl.apply(drop, _NOTHING, record)
    feed.ddl.apply(drop, _NOTHING, record)
    assert len(Directory(str(feed.path)).names("ddl")) == 1
    with pytest.raises(DdlAmbiguous, match="another DDL"):
        feed.ddl.apply(DropTables(names=(TableName("shop", "other"),)), _NOTHING, record)


def _copied(feed: _Feed, start: int, at: int, documents: Sequence[dict[str, Any]]) -> CopyReceipt:
    loader = FileDocumentLoader("orders", feed.options, _target(_A), lambda: None)
    loader.load(list(map(bson.encode, documents)), ClusterTime(at, 1))
    return CopyReceipt(
        table=_A, start=_at(start), after=ClusterTime(at, 1), until=ClusterTime(at, 1), files=loader.finish()
    )


def test_copied_documents_stand_at_the_time_of_their_reading(feed: _Feed) -> None:
    committer = feed.committer()
    for at in (102, 104):
        copied = _copied(feed, 100, at, [{"_id": 7, "at": at}])
        committer.commit(Commit(ranges={}, copies=(copied,), tables=(_schema(_A),)))
    feed.window(100, 110, [_insert(_A, 103, 7), _insert(_A, 106, 8)])
    feed.ddl.copied(_A, _at(100))
    feed.marks.mark(_at(110))
    assert feed.read() == ["copy", "schema shop.a", "r7@102", "i7@103", "r7@104", "copied", "i8@106"]


def test_a_copy_goes_on_until_it_is_said_to_be_complete(feed: _Feed) -> None:
    reader, committer = feed.reader(), feed.committer()
    committer.commit(
        Commit(ranges={}, copies=(_copied(feed, 100, 102, [{"_id": 7, "at": 102}]),), tables=(_schema(_A),))
    )
    feed.window(100, 105, [_insert(_A, 103, 8)])
    feed.marks.mark(_at(105))
    assert feed.read(reader) == ["copy", "schema shop.a", "r7@102", "i8@103"]
    committer.commit(Commit(ranges={}, copies=(_copied(feed, 100, 107, [{"_id": 9, "at": 107}]),)))
    feed.window(105, 110, [_insert(_A, 106, 10)])
    feed.marks.mark(_at(110))
    assert feed.read(reader) == ["i10@106", "r9@107"]
    feed.window(110, 120, [_insert(_A, 111, 11)])
    feed.ddl.copied(_A, _at(100))
    feed.marks.mark(_at(120))
    assert feed.read(reader) == ["copied", "i11@111"]


def test_what_was_read_just_before_the_copys_start_is_shown(feed: _Feed) -> None:
    committer = feed.committer()
    committer.commit(Commit(ranges={}, copies=(_copied(feed, 100, 99, [{"_id": 7, "at": 99}]),), tables=(_schema(_A),)))
    feed.window(100, 110, [_insert(_A, 101, 8)])
    feed.ddl.copied(_A, _at(100))
    feed.ddl.copied(_A, _at(100))
    feed.marks.mark(_at(110))
    assert feed.read() == ["copy", "schema shop.a", "r7@99", "copied", "i8@101"]


def test_a_copy_that_begins_again_hides_the_one_before(feed: _Feed) -> None:
    committer = feed.committer()
    committer.commit(
        Commit(ranges={}, copies=(_copied(feed, 100, 102, [{"_id": 7, "at": 102}]),), tables=(_schema(_A),))
    )
    committer.commit(Commit(ranges={}, copies=(_copied(feed, 100, 109, [{"_id": 6, "at": 109}]),)))
    feed.ddl.recopy(_A, TableName("shop", "a"), _at(105))
    feed.ddl.recopy(_A, TableName("shop", "a"), _at(105))
    committer.commit(Commit(ranges={}, copies=(_copied(feed, 105, 107, [{"_id": 8, "at": 107}]),)))
    feed.window(105, 110, [_insert(_A, 108, 9)])
    feed.ddl.copied(_A, _at(105))
    feed.marks.mark(_at(110))
    assert feed.read() == ["copy", "schema shop.a", "r7@102", "recopy shop.a", "copy", "r8@107", "copied", "i9@108"]


def test_a_reader_that_goes_on_shows_what_is_new(feed: _Feed) -> None:
    reader = feed.reader()
    feed.window(100, 110, [_insert(_A, 101, 1), _insert(_A, 108, 2)])
    feed.marks.mark(_at(105))
    assert feed.read(reader) == ["schema shop.a", "i1@101"]
    feed.marks.mark(_at(110))
    feed.window(110, 120, [_insert(_A, 111, 3)])
    assert feed.read(reader) == ["i2@108"]
    assert feed.read(reader) == []
    feed.marks.mark(_at(120))
    assert feed.read(reader) == ["i3@111"]


def test_a_table_that_is_behind_is_shown_as_far_as_it_is(feed: _Feed) -> None:
    reader = feed.reader()
    feed.window(100, 110, [_insert(_A, 101, 1), _insert(_B, 102, 2, "b")], _A, _B)
    feed.window(110, 120, [_insert(_A, 111, 3)], _A)
    feed.marks.mark(_at(120), {_B: _at(110)})
    assert feed.read(reader) == ["schema shop.a", "schema shop.a", "i1@101", "i2@102", "i3@111"]
    feed.window(110, 130, [_insert(_A, 121, 4), _insert(_B, 112, 5, "b")], _A, _B)
    feed.marks.mark(_at(130))
    assert feed.read(reader) == ["i5@112", "i4@121"]


def test_an_old_owners_late_mark_does_no_harm(feed: _Feed) -> None:
    feed.window(100, 200, [_insert(_A, 101, 1)])
    old = FileMarks(_IDENTITY, feed.options)
    for seconds in range(101, 103 + KEPT_MARKS):
        feed.marks.mark(_at(seconds))
    old.mark(_at(101))
    assert FeedDirectory(str(feed.path)).mark() == Watermark(_at(102 + KEPT_MARKS))
    assert len(Directory(str(feed.path)).names("checkpoint")) <= KEPT_MARKS + 2


def test_a_reader_never_goes_back_for_a_late_mark(feed: _Feed) -> None:
    """Not even when so many of them come that no other is kept; then it waits until the new owner's numbers have come as far."""
    reader = feed.reader()
    feed.window(100, 110, [_insert(_A, 101, 1), _insert(_A, 108, 2), _insert(_B, 104, 3, "b")], _A, _B)
    feed.marks.mark(_at(110))
    assert len(feed.read(reader)) == 5
    old = FileMarks(_IDENTITY, feed.options)
    for _ in range(KEPT_MARKS + 1):
        old.mark(_at(105), {_B: _at(103)})
    assert feed.read(reader) == []
    feed.window(110, 120, [_insert(_A, 111, 4), _insert(_B, 112, 5, "b")], _A, _B)
    for _ in range(KEPT_MARKS + 1):
        feed.marks.mark(_at(120), {_B: _at(110)})
    assert feed.read(reader) == ["i4@111"]
    feed.marks.mark(_at(120))
    assert feed.read(reader) == ["i5@112"]


def test_marks_are_joined_table_by_table() -> None:
    ahead = Watermark(_at(120), {_A: _at(110), _B: _at(115)})
    late = Watermark(_at(112), {_B: _at(105)})
    assert ahead.joined(late) == late.joined(ahead) == Watermark(_at(120), {_A: _at(112), _B: _at(115)})
    assert ahead.joined(Watermark(_at(130))) == Watermark(_at(130))


def test_a_directory_of_another_changefeed_is_refused(feed: _Feed) -> None:
    feed.window(100, 110, [])
    for other in (FeedIdentity(feed="orders", life="c/2"), FeedIdentity(feed="other", life="c/1")):
        with pytest.raises(TargetOccupied, match="needs an empty directory"):
            FileCommitter(other, feed.options, 9).commit(Commit(ranges={_A: Window(_at(100), _at(101))}))
        with pytest.raises(TargetOccupied):
            FileMarks(other, feed.options).mark(_at(101))
        with pytest.raises(TargetOccupied):
            FileDdlApplier(other, feed.options).recopy(_A, TableName("shop", "a"), _at(101))


def test_what_the_file_system_refuses_is_said(tmp_path: Path) -> None:
    with pytest.raises(SinkUnavailable, match="No such file"):
        Directory(str(tmp_path / "missing" / "orders")).check()
    (tmp_path / "file").write_text("")
    with pytest.raises((SinkRefused, SinkUnavailable)):
        Directory(str(tmp_path / "file")).create("x", b"")


def test_a_directory_is_made_and_left_empty_by_its_check(tmp_path: Path) -> None:
    directory = Directory(str(tmp_path / "orders"))
    directory.check()
    assert directory.empty()


def test_a_name_is_written_once_and_whole(tmp_path: Path) -> None:
    directory = Directory(str(tmp_path))
    assert directory.create("log/1/0.json", b"one")
    assert not directory.create("log/1/0.json", b"two")
    assert directory.read("log/1/0.json") == b"one"
    assert directory.create_same("log/1/0.json", b"one")
    assert not directory.create_same("log/1/0.json", b"two")
    assert directory.names("log/1") == ["0.json"]
