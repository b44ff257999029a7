"""The promise of a resume token, and when a note is written at a quiet source."""

from __future__ import annotations

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from source.stream.completeness import Note, end_of_source, note_wanted, resolved_after

START = Position(ClusterTime(400, 1))


def high_water_mark(time: ClusterTime) -> str:
    return f"82{time.to_int():016X}2B0429296E1404"


def event(time: ClusterTime, place: int = 0) -> str:
    return f"82{time.to_int():016X}2B042C0100{f'2B{place * 2:02X}' if place else '29'}6E5A1004{'AB' * 16}04"


def test_a_high_water_mark_resolves_what_is_before_it_only() -> None:
    resolved = resolved_after(START, token=high_water_mark(ClusterTime(463, 2)))
    assert resolved == Position(ClusterTime(463, 2))
    assert not Position(ClusterTime(463, 2), event(ClusterTime(463, 2))) < resolved


def test_after_an_event_the_token_stays_at_it_and_leaves_it_unresolved() -> None:
    token = event(ClusterTime(470, 2))
    shown = Position(ClusterTime(470, 2), token)
    resolved = resolved_after(START, token=token, last_event=shown)
    assert resolved == shown
    assert resolved_after(resolved, token=token) == shown


def test_a_later_entry_resolves_the_event() -> None:
    shown = Position(ClusterTime(470, 2), event(ClusterTime(470, 2)))
    assert resolved_after(shown, token=high_water_mark(ClusterTime(470, 3))) > shown


def test_a_batch_in_the_middle_of_a_transaction_resolves_up_to_its_last_event() -> None:
    time = ClusterTime(470, 2)
    first, second = Position(time, event(time, 1)), Position(time, event(time, 2))
    assert first < resolved_after(first, token=event(time, 2), last_event=second) == second


def test_resolved_never_goes_back_when_a_stream_is_reopened_lower() -> None:
    high = Position(ClusterTime(500, 7))
    assert resolved_after(high, token=high_water_mark(ClusterTime(480, 1))) == high
    assert resolved_after(high, token=None) == high


def wanted(
    *, resolved: Position, committed: tuple[int, int], before: tuple[int, int] | None, note: Note | None = None
) -> bool:
    return note_wanted(
        resolved=resolved,
        committed_ts=ClusterTime(*committed),
        previous_committed_ts=ClusterTime(*before) if before else None,
        last_note=note,
    )


def test_a_quiet_source_with_something_unresolved_is_made_to_write() -> None:
    assert wanted(resolved=Position(ClusterTime(470, 2)), committed=(470, 2), before=(470, 2))


def test_a_busy_source_resolves_itself() -> None:
    assert not wanted(resolved=Position(ClusterTime(470, 2)), committed=(470, 9), before=(470, 5))


def test_nothing_unresolved_needs_no_note() -> None:
    assert not wanted(resolved=Position(ClusterTime(470, 3)), committed=(470, 2), before=(470, 2))


def test_the_first_reply_cannot_tell_whether_the_source_is_quiet() -> None:
    assert not wanted(resolved=Position(ClusterTime(470, 2)), committed=(470, 2), before=None)


def test_a_note_of_sluice_needs_no_other_note() -> None:
    note = Note(after_ts=ClusterTime(470, 2), written_ts=ClusterTime(470, 3))
    assert not wanted(resolved=Position(ClusterTime(470, 3)), committed=(470, 3), before=(470, 3), note=note)


def test_a_write_after_a_note_needs_another_note() -> None:
    note = Note(after_ts=ClusterTime(470, 2), written_ts=ClusterTime(470, 3))
    assert wanted(resolved=Position(ClusterTime(470, 3)), committed=(470, 4), before=(470, 4), note=note)


def test_a_note_that_may_not_be_alone_needs_one_more() -> None:
    beside = Note(after_ts=ClusterTime(470, 2), written_ts=ClusterTime(470, 4))
    assert wanted(resolved=Position(ClusterTime(470, 4)), committed=(470, 4), before=(470, 4), note=beside)


def test_one_more_note_is_enough_even_if_that_one_was_not_alone_either() -> None:
    second = Note(after_ts=ClusterTime(470, 4), written_ts=ClusterTime(470, 7), second=True)
    assert not wanted(resolved=Position(ClusterTime(470, 7)), committed=(470, 7), before=(470, 7), note=second)


@pytest.mark.parametrize(
    ("after", "written", "alone"),
    [
        ((470, 2), (470, 3), True),
        ((470, 2), (471, 1), True),
        ((470, 2), (480, 1), True),
        ((470, 2), (470, 4), False),
        ((470, 2), (471, 2), False),
        ((470, 2), (470, 2), False),
        ((470, 1), (470, 1), False),
    ],
)
def test_a_note_is_alone_when_no_time_lies_between(
    after: tuple[int, int], written: tuple[int, int], *, alone: bool
) -> None:
    assert Note(after_ts=ClusterTime(*after), written_ts=ClusterTime(*written)).alone is alone


@pytest.mark.parametrize(
    ("note", "end"),
    [
        (None, (470, 4)),
        (Note(after_ts=ClusterTime(470, 1), written_ts=ClusterTime(470, 2)), (470, 4)),
        (Note(after_ts=ClusterTime(470, 2), written_ts=ClusterTime(470, 3)), (470, 3)),
        (Note(after_ts=ClusterTime(470, 1), written_ts=ClusterTime(470, 3)), (470, 4)),
        (Note(after_ts=ClusterTime(470, 1), written_ts=ClusterTime(470, 3), second=True), (470, 3)),
    ],
    ids=["no note", "a write after the note", "the note", "perhaps a write beside the note", "the second note"],
)
def test_everything_committed_is_below_the_end_except_a_note(note: Note | None, end: tuple[int, int]) -> None:
    assert end_of_source(ClusterTime(470, 3), note) == Position(ClusterTime(*end))
