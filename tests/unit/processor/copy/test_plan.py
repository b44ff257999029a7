"""One table's copy, decision by decision; times are increments of one second."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import EMPTY, Document
from changefeed.errors import InvariantError
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.copy import CopiedChunk
from changefeed.table import TableId, TableName
from processor.copy.plan import (
    Begin,
    BuildIndexes,
    CatchUp,
    CopyAction,
    CopyChunks,
    CopyInputs,
    Empty,
    EndCopy,
    Finish,
    ForgetChunks,
    MoveCheckpoint,
    Wait,
    decide,
    follows_to,
    read_not_before,
)
from processor.copy.table_copy import TableCopy

TABLE = TableId("ab" * 16)


def at(increment: int, token: str = "") -> Position:
    return Position(ClusterTime(100, increment), token)


def copy(*times: int | None) -> TableCopy:
    """Three chunks, copied at these times."""
    planned = TableCopy.planned(at(1), [Document.of({"_id": 1}), Document.of({"_id": 2})], whole=False)
    chunks = {
        number: CopiedChunk(after=ClusterTime(100, time), until=ClusterTime(100, time), documents=1, bytes=1)
        for number, time in enumerate(times)
        if time is not None
    }
    return replace(planned, copied=chunks)


def inputs(barrier: int, *, checkpoint: Position | None = None, running: tuple[int, ...] = ()) -> CopyInputs:
    return CopyInputs(
        table=TABLE,
        start=at(1),
        checkpoint=checkpoint or at(1),
        barrier=at(barrier),
        running=dict.fromkeys(running, at(1)),
        parallelism=2,
    )


def ddl(type: DdlType, time: int = 7, drop_target: TableId | None = None, **description: Any) -> DdlEvent:
    return DdlEvent(
        position=at(time, "82"),
        type=type,
        db="shop",
        table=TableName("shop", "orders"),
        id=TABLE if drop_target is None else TableId("cd" * 16),
        drop_target=drop_target,
        description=Document.of(description) if description else EMPTY,
    )


ENDING = (DdlType.DROP, DdlType.DROP_DATABASE, DdlType.LEAVE)


def held(by: DdlEvent, *, checkpoint: Position | None = None, running: tuple[int, ...] = ()) -> CopyInputs:
    return replace(
        inputs(0, checkpoint=checkpoint, running=running),
        barrier=by.position,
        held_by=by,
        ends=by.type in ENDING or by.drop_target == TABLE,
    )


RENAME = ddl(DdlType.RENAME)
UNIQUE = ddl(DdlType.CREATE_INDEXES, indexes=[{"key": {"u": 1}, "name": "u_1", "unique": True}])
PLAIN = ddl(DdlType.CREATE_INDEXES, indexes=[{"key": {"u": 1}, "name": "u_1"}])


def test_a_table_is_prepared_copied_caught_up_and_indexed_and_then_done() -> None:
    assert decide(None, inputs(1)) == Begin(at(1))
    assert decide(copy(), inputs(5)) == CopyChunks((0, 1))
    assert decide(copy(4), inputs(5, running=(1,))) == CopyChunks((2,))
    assert decide(copy(4), inputs(5, running=(1, 2))) == Wait()
    assert decide(copy(4, 9, 6), inputs(9)) == Wait()
    assert decide(copy(4, 9, 6), inputs(10)) == CatchUp(at(10)), "an idle source shows no later position for seconds"
    assert decide(copy(4, 9, 6), inputs(11)) == CatchUp(at(10))
    assert decide(copy(4, 9, 6), inputs(12, checkpoint=at(8))) == CatchUp(at(10))
    assert decide(copy(4, 9, 6), inputs(12, checkpoint=at(10))) == BuildIndexes(at(10))
    assert decide(copy(4, 9, 6), replace(inputs(12, checkpoint=at(8)), indexed=True)) == CatchUp(at(10))
    assert decide(copy(4, 9, 6), replace(inputs(12, checkpoint=at(10)), indexed=True)) == Finish()
    with pytest.raises(InvariantError):
        decide(copy(4, 9, 6).done(), inputs(12, checkpoint=at(10)))


def test_finished_chunks_are_not_copied_again_after_a_restart() -> None:
    assert decide(copy(None, 5, None), inputs(9)) == CopyChunks((0, 2))
    assert decide(copy(3, 5, None), inputs(9)) == CopyChunks((2,))


@pytest.mark.parametrize("by", [RENAME, UNIQUE, PLAIN, ddl(DdlType.DROP)], ids=str)
def test_a_table_that_was_emptied_for_a_ddl_is_not_made_anew_by_a_restarted_node(by: DdlEvent) -> None:
    assert decide(TableCopy.restarting(by.position), held(by)) == MoveCheckpoint(by.position)
    assert decide(TableCopy.restarting(by.position), held(by, checkpoint=by.position)) == Wait()


@pytest.mark.parametrize(
    "by",
    [
        ddl(DdlType.DROP),
        ddl(DdlType.DROP_DATABASE),
        ddl(DdlType.RENAME, drop_target=TABLE),
    ],
    ids=str,
)
@pytest.mark.parametrize("found", [None, copy(), copy(4, 5, 6), copy(4, 9, 6), TableCopy.restarting(at(3, "82"))])
def test_the_end_of_a_table_is_reached_with_nothing_more_copied(found: TableCopy | None, by: DdlEvent) -> None:
    assert decide(found, held(by, running=(2,))) == Wait()
    assert decide(found, held(by)) == EndCopy(by.position)
    assert decide(found, held(by, checkpoint=by.position)) == Wait()


@pytest.mark.parametrize("by", [ddl(DdlType.DROP), RENAME, UNIQUE, PLAIN], ids=str)
@pytest.mark.parametrize("found", [copy(4, 5), copy(4, 5, 6), copy(4, 9, 6)])
def test_a_ddl_waits_for_the_window_that_is_catching_up(found: TableCopy, by: DdlEvent) -> None:
    assert decide(found, replace(held(by), catching_up=True)) == Wait()


@pytest.mark.parametrize(
    "by",
    [
        RENAME,
        UNIQUE,
        ddl(DdlType.CREATE_INDEXES, indexes=[{"key": {"u": 1}, "name": "u_1", "prepareUnique": True}]),
        ddl(DdlType.MODIFY, index={"name": "u_1", "hidden": True}),
        ddl(DdlType.SHARD_COLLECTION),
        ddl(DdlType.RESHARD_COLLECTION),
        ddl(DdlType.REFINE_SHARD_KEY),
    ],
    ids=str,
)
@pytest.mark.parametrize("found", [copy(), copy(4, 5), copy(4, 9, 6), copy(4, 7, 6)])
def test_a_ddl_that_matters_begins_the_copy_anew_when_it_is_done(found: TableCopy, by: DdlEvent) -> None:
    assert decide(found, held(by, running=(2,))) == Wait()
    assert decide(found, held(by)) == Empty(by.position)
    again = TableCopy.restarting(by.position)
    assert decide(again, held(by, checkpoint=by.position)) == Wait()
    assert decide(again, replace(inputs(9, checkpoint=by.position), barrier=by.position)) == Wait()
    assert decide(again, inputs(9, checkpoint=by.position)) == Begin(by.position)


@pytest.mark.parametrize("type", [DdlType.SHARD_COLLECTION, DdlType.RESHARD_COLLECTION, DdlType.REFINE_SHARD_KEY])
def test_messages_tell_another_shard_key_beside_a_copy(type: DdlType) -> None:
    assert decide(copy(4, 5), replace(held(ddl(type)), apart=True)) == CatchUp(at(7, "82"))


def test_a_ddl_behind_all_that_was_copied_changes_nothing() -> None:
    for by in (RENAME, UNIQUE, PLAIN):
        assert decide(copy(4, 5, 6), held(by)) == CatchUp(at(7))
        assert decide(copy(4, 5, 6), held(by, checkpoint=at(7))) == BuildIndexes(at(7))


@pytest.mark.parametrize(
    "by",
    [PLAIN, ddl(DdlType.DROP_INDEXES), ddl(DdlType.MODIFY, validator={}), ddl(DdlType.MODIFY)],
    ids=str,
)
def test_a_harmless_ddl_is_passed_over_with_what_is_copied(by: DdlEvent) -> None:
    assert decide(copy(4, 9), held(by, running=(2,))) == Wait()
    assert decide(copy(4, 9), held(by)) == CatchUp(by.position)
    assert decide(copy(4, 9), held(by, checkpoint=by.position)) == Wait()
    assert decide(copy(4, 9), inputs(9, checkpoint=by.position)) == CopyChunks((2,))
    assert decide(copy(4, 9, 12), inputs(20, checkpoint=by.position)) == CatchUp(at(13))


@pytest.mark.parametrize("by", [PLAIN, ddl(DdlType.MODIFY, validator={})], ids=str)
def test_a_chunk_that_was_read_across_a_harmless_ddl_is_read_again(by: DdlEvent) -> None:
    """Only changes after the DDL explain the chunk's rows, and the table would wait at the DDL for them for ever."""

    def read(after: int, until: int) -> TableCopy:
        times = CopiedChunk(after=ClusterTime(100, after), until=ClusterTime(100, until), documents=1, bytes=1)
        return replace(copy(4), copied={**copy(4).copied, 1: times})

    assert decide(read(5, 9), held(by, running=(2,))) == Wait()
    assert decide(read(5, 9), held(by)) == ForgetChunks((1,))
    assert decide(read(5, 9).without((1,)), held(by)) == CatchUp(by.position)
    assert decide(read(5, 6), held(by)) == CatchUp(by.position), "it ends before the DDL"
    assert decide(read(7, 9), held(by)) == CatchUp(by.position), "it begins at the DDL"
    assert decide(read(0, 9), held(by)) == CatchUp(by.position), "messages: no change depends on what was read"
    assert decide(read(0, 9), replace(held(by), others=True)) == ForgetChunks((1,)), "the target's table has other rows"


def test_a_table_with_rows_of_others_is_prepared_before_a_harmless_ddl() -> None:
    """It cannot be created anew for it."""
    for by in (PLAIN, ddl(DdlType.DROP_INDEXES), ddl(DdlType.MODIFY, validator={})):
        assert decide(None, replace(held(by), others=True)) == Begin(at(1))
        assert decide(copy(), replace(held(by), others=True)) == CatchUp(by.position)
    drop = replace(held(ddl(DdlType.DROP)), others=True)
    assert decide(None, replace(drop, index_to_come=True)) == Begin(at(1))
    assert decide(copy(), replace(drop, index_to_come=True)) == decide(None, drop) == EndCopy(at(7, "82"))
    assert decide(None, replace(held(UNIQUE), others=True)) == Empty(at(7, "82")), "it is refused there"


def test_no_chunk_is_read_while_a_window_may_pass_its_changes() -> None:
    """A DDL that held the table is skipped while the window goes to it."""
    assert decide(copy(4), replace(inputs(9), catching_up=True)) == Wait()
    assert decide(copy(4), replace(inputs(9), catching_up=True, others=True)) == Wait()
    assert decide(copy(4), inputs(9)) == CopyChunks((1, 2))
    followed = replace(far(300), catching_up=True)
    assert decide(long_copy((130, 130)), followed) == CopyChunks((1, 2)), "they are read behind the window"


def test_a_harmless_ddl_finds_a_table_that_is_copied_whole_empty_or_full_but_never_away() -> None:
    """The only chunk of such a table recreates the target's table, and may be interrupted in between."""
    by = ddl(DdlType.MODIFY, validationLevel="off")
    planned = TableCopy.planned(at(1), [], whole=True)
    assert decide(planned, held(by, running=(0,))) == Wait()
    assert decide(planned, held(by)) == Empty(by.position)
    chunk = CopiedChunk(after=ClusterTime(100, 9), until=ClusterTime(100, 9), documents=1, bytes=1)
    assert decide(replace(planned, copied={0: chunk}), held(by)) == CatchUp(by.position)


def test_an_index_of_before_the_end_of_a_table_finds_it_at_the_target() -> None:
    """The step that recreates the target's table may have been interrupted: before any record, after a restart, and in a whole table's only chunk."""
    by, whole = ddl(DdlType.DROP), TableCopy.planned(at(1), [], whole=True)
    for found in (None, TableCopy.restarting(at(3, "82")), whole):
        assert decide(found, replace(held(by), index_to_come=True)) == Empty(by.position)
        assert decide(found, replace(held(by, running=(0,)), index_to_come=True)) == Wait()
        assert decide(found, held(by)) == EndCopy(by.position)
    assert decide(copy(4), replace(held(by), index_to_come=True)) == EndCopy(by.position)


def test_a_table_is_not_created_anew_while_an_index_of_before_the_ddl_may_be_built_on_it() -> None:
    """The owner compares the target's table with the one that it saw before the build."""
    index = at(5, "82")
    for by in (RENAME, UNIQUE, PLAIN):
        for found in (copy(4), copy(4, 9, 12)):
            begun = replace(held(by, checkpoint=at(6)), index_to_come=True, index_begun=index)
            assert decide(found, begun) == Wait()
            restarted = replace(begun, checkpoint=at(2))
            assert decide(found, restarted) == CatchUp(index), "the build waits for the checkpoint"
            assert decide(found, replace(begun, index_begun=None)) != Wait(), "it waits for a user"
    drop = ddl(DdlType.DROP)
    assert decide(copy(4), replace(held(drop), index_to_come=True, index_begun=index)) == EndCopy(drop.position)


def test_a_ddl_that_comes_before_the_copy_has_begun_finds_an_empty_and_complete_table() -> None:
    for by in (RENAME, UNIQUE, PLAIN):
        decision: CopyAction = decide(None, held(by))
        assert decision == Empty(by.position)
        assert decide(TableCopy.restarting(at(3, "82")), held(by, checkpoint=at(3, "82"))) == Empty(by.position)


def second(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 1))


def long_copy(*times: tuple[int, int] | None) -> TableCopy:
    """Three chunks, read between these seconds."""
    chunks = {
        number: CopiedChunk(after=ClusterTime(time[0], 1), until=ClusterTime(time[1], 1), documents=1, bytes=1)
        for number, time in enumerate(times)
        if time is not None
    }
    return replace(copy(), copied=chunks)


def far(barrier: int, checkpoint: int = 100, running: dict[int, Position] | None = None) -> CopyInputs:
    return replace(
        inputs(0, checkpoint=second(checkpoint)), barrier=second(barrier), running=running or {}, follow_after=60
    )


def test_a_copy_that_takes_long_is_followed_as_far_as_its_missing_chunks_allow() -> None:
    found = long_copy((130, 130), None, None)
    assert read_not_before(far(300)) == second(300)
    assert follows_to(found, far(300)) == second(300)
    assert follows_to(found, far(300, running={1: second(290), 2: second(200)})) == second(200)
    assert follows_to(found, far(300, running={1: second(160)})) == second(100), "it is not worth a window"


def test_the_checkpoint_of_a_short_copy_stays_at_its_start() -> None:
    assert read_not_before(far(160)) == second(100)
    assert follows_to(long_copy((130, 130)), far(160)) == second(100)


def test_a_held_or_shared_table_is_not_followed() -> None:
    stays = replace(far(300), follow_after=None)
    assert read_not_before(stays) == second(100)
    assert follows_to(long_copy((130, 130)), stays) == second(100)


def test_no_window_ends_between_the_two_times_of_a_chunk() -> None:
    overlapping = long_copy((180, 250), (200, 290), None)
    assert follows_to(overlapping, far(300)) == second(300)
    assert follows_to(overlapping, far(270)) == Position(ClusterTime(180, 2))
    assert follows_to(overlapping, far(250)) == Position(ClusterTime(180, 2))
    assert follows_to(overlapping, far(170)) == second(170)


def test_a_copy_does_not_come_to_a_ddl_that_is_not_held_yet() -> None:
    """The barrier stands at the DDL before its record says what it holds."""
    barrier = Position(ClusterTime(300, 7), "82")
    assert follows_to(long_copy((130, 130)), replace(far(0), barrier=barrier)) == Position(ClusterTime(300, 7))


def test_a_copy_that_waited_begins_where_its_checkpoint_is() -> None:
    assert decide(None, far(300, checkpoint=250)) == Begin(second(250))
    assert decide(TableCopy.restarting(second(100)), far(300, checkpoint=250)) == Begin(second(250))


@pytest.mark.parametrize("type", [DdlType.CREATE, DdlType.DROP, DdlType.DROP_DATABASE])
def test_another_table_of_the_same_name_at_the_target_comes_or_goes_while_this_one_is_copied(type: DdlType) -> None:
    by = ddl(type)
    gathered = replace(inputs(0), barrier=by.position, held_by=by, others=True)
    assert decide(None, gathered) == Begin(at(1)), "the target's table is there before the other one needs it"
    assert decide(copy(4, 5), gathered) == CatchUp(by.position)
    assert decide(copy(4, 5), replace(gathered, ends=True)) == EndCopy(by.position)
    assert decide(copy(4, 5), replace(gathered, others=False)) == Empty(by.position)
