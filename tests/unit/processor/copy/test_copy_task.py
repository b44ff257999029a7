"""How one chunk is copied: what is removed before it is read, and when nothing more of it is written."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.documents.row_key import KeyRange
from changefeed.errors import DdlUnsupported, FencedError
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from processor.copy import copy_task
from processor.copy.copy_task import CopyPlace, copy_chunk, slices
from processor.copy.steps import CopyChunk, CopyStep, Prepare
from processor.copy.target_table import Creation, make_empty
from sink.blackhole import BlackholeDdlApplier
from sink.receipt import Receipt
from source.tables.chunk_reader import Chunk, ReadWay, SnapshotLost

START, READ, UNTIL = ClusterTime(100, 1), ClusterTime(110, 1), ClusterTime(112, 1)
NAME = TableName("shop", "a")
SCHEMA = TableSchema(id=TableId("a" * 32), name=NAME, valid_from=Position(START))
CREATION = Creation(schema=SCHEMA, name=NAME, route=lambda name: name)
RANGE = KeyRange(lower=Document.of({"_id": 10}), upper=Document.of({"_id": 20}))
STEP = CopyChunk(
    schema=SCHEMA,
    range=RANGE,
    whole=False,
    not_before=Position(START),
    copied_from=Position(START),
    divide_after=None,
)


@dataclass
class Copying:
    """Source and target of one chunk. `done`: what happened, in order."""

    batches_of: Sequence[Sequence[int]] = ((10, 11), (12,))
    snapshots: bool = False
    lost: bool = False
    """The snapshot breaks off behind the first batch."""
    wanted: int = 99
    """How often the chunk is still wanted."""
    done: list[str] = field(default_factory=list)

    def chunk(self, chunk: Chunk, way: ReadWay) -> Rows:
        return Rows(self, way)

    def empty(self) -> bool:
        return True

    def clear(self, range: KeyRange) -> int:
        self.done.append(f"clear {range}")
        return 0

    def load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        self.done += [f"load {bson.decode(document)['_id']}" for document in documents]

    def finish(self) -> tuple[Receipt, ...]:
        return ()

    def check_wanted(self) -> None:
        self.wanted -= 1
        if self.wanted < 0:
            raise FencedError("nobody wants the chunk any more")

    @property
    def place(self) -> CopyPlace:
        return CopyPlace(
            source=self,  # type: ignore[arg-type]  # has what the copy of a chunk uses of a source
            loader=self,
            creation=CREATION,
            ddl=BlackholeDdlApplier(),
            check_wanted=self.check_wanted,
        )


@dataclass
class Rows:
    copying: Copying
    way: ReadWay
    ended: bool = False
    after: ClusterTime = READ

    @property
    def until(self) -> ClusterTime:
        return self.after if self.way is ReadWay.SNAPSHOT else UNTIL

    def batches(self) -> Iterator[list[bytes]]:
        for keys in self.copying.batches_of:
            yield [bson.encode({"_id": key}) for key in keys]
            if self.copying.lost and self.way is ReadWay.SNAPSHOT:
                raise SnapshotLost("the snapshot is too old")

    def end(self) -> None:
        self.ended = True


LOADED = ["load 10", "load 11", "load 12"]
CLEARED = f"clear {RANGE}"


def test_a_chunk_is_cleared_before_it_is_read() -> None:
    """An earlier attempt may have left a document that the source has deleted since."""
    copying = Copying()
    read = copy_chunk(STEP, copying.place)
    assert copying.done == [CLEARED, *LOADED]
    assert (read.copied.after, read.copied.until, read.copied.documents) == (READ, UNTIL, 3)


def test_nothing_is_cleared_where_nothing_was_loaded_since_the_table_was_prepared() -> None:
    copying = Copying()
    copy_chunk(replace(STEP, fresh=True), copying.place)
    assert copying.done == LOADED


def test_what_was_loaded_of_a_lost_snapshot_is_cleared_though_it_was_the_first() -> None:
    copying = Copying(snapshots=True, lost=True)
    copy_chunk(replace(STEP, fresh=True), copying.place)
    assert copying.done == [*LOADED[:2], CLEARED, *LOADED]


def test_brief_steps_of_one_kind_begin_together_and_others_alone() -> None:
    prepare, brief = Prepare(schema=SCHEMA, ours=False), replace(STEP, brief=True)
    steps: list[CopyStep] = [prepare, prepare, brief, brief, brief, STEP, STEP]
    assert list(slices(steps, most=2)) == [[prepare, prepare], [brief, brief], [brief], [STEP], [STEP]]


def test_brief_steps_are_done_at_once_and_answered_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [replace(STEP, brief=True, divide_after=number) for number in range(3)]
    second = threading.Event()

    def done(_: object, step: CopyStep) -> None:
        if step is steps[0]:
            assert second.wait(60), "the second one begins while the first one waits"
        if step is steps[1]:
            second.set()
            raise DdlUnsupported("of one table")

    monkeypatch.setattr(copy_task, "_done", done)
    resources = SimpleNamespace(copy_log=None)
    [first, error, last] = copy_task._answers(resources, steps)  # type: ignore[arg-type]  # has what steps without a table to make use
    assert (first, last) == (None, None)
    assert isinstance(error, ErrorReport)
    assert error.code == DdlUnsupported.code


def test_a_chunk_that_is_read_again_without_its_snapshot_is_cleared_again() -> None:
    copying = Copying(snapshots=True, lost=True)
    copy_chunk(STEP, copying.place)
    again = copying.done.index(CLEARED, 1)
    assert copying.done[again:] == [CLEARED, *LOADED]


@pytest.mark.parametrize("kind", ["shared", "kept", "logged"])
def test_nothing_is_cleared_where_rows_of_others_may_be_and_all_changes_since_the_start_are_replayed(kind: str) -> None:
    copying = Copying()
    creation = replace(CREATION, shared=kind == "shared", kept=kind == "kept", logged=kind == "logged")
    read = copy_chunk(STEP, replace(copying.place, creation=creation))
    assert copying.done == LOADED
    assert (read.copied.after, read.read_after) == (START.previous(), READ)


@pytest.mark.parametrize(("wanted", "loaded"), [(0, []), (1, []), (2, LOADED[:2])])
def test_nothing_is_loaded_of_a_chunk_that_nobody_wants_any_more(wanted: int, loaded: list[str]) -> None:
    copying = Copying(wanted=wanted)
    with pytest.raises(FencedError):
        copy_chunk(STEP, copying.place)
    assert [done for done in copying.done if done != CLEARED] == loaded


def test_a_table_with_the_rows_of_others_is_not_emptied_and_these_are_named() -> None:
    ddl, others = BlackholeDdlApplier(), [TableName("crm", "a")]
    with pytest.raises(DdlUnsupported, match=r"crm\.a"):
        make_empty(replace(CREATION, shared=True), ddl, others)
    make_empty(replace(CREATION, shared=True), ddl)
