"""Random DDL histories against a model that replays everything from scratch."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from schema_store.versions import SchemaVersions
from tests.unit.schema_store.histories import History, assert_agrees, histories


@settings(max_examples=200, deadline=None)
@given(histories())
def test_all_answers_at_all_positions_are_those_of_a_replay_from_scratch(history: History) -> None:
    versions = SchemaVersions.of(history.bases).apply_all(history.events)
    assert_agrees(versions, history, history.positions())


@settings(max_examples=100, deadline=None)
@given(histories())
def test_one_event_at_a_time_gives_the_same_as_all_at_once(history: History) -> None:
    versions = SchemaVersions.of(history.bases)
    for event in history.events:
        versions = versions.apply(event)
    assert versions == SchemaVersions.of(history.bases).apply_all(history.events)


@settings(max_examples=100, deadline=None)
@given(histories())
def test_any_event_applied_again_changes_nothing(history: History) -> None:
    versions = SchemaVersions.of(history.bases).apply_all(history.events)
    for event in history.events:
        assert versions.apply(event) == versions


@settings(max_examples=150, deadline=None)
@given(histories(), st.data())
def test_collecting_garbage_below_any_position_keeps_all_answers_from_there_on(
    history: History, data: st.DataObject
) -> None:
    positions = history.positions()
    before = data.draw(st.sampled_from(positions))
    versions = SchemaVersions.of(history.bases).apply_all(history.events).gc(before)
    assert_agrees(versions, history, [position for position in positions if position >= before])
    assert versions.apply_all(history.events) == versions


@settings(max_examples=100, deadline=None)
@given(histories(), st.data())
def test_garbage_can_be_collected_in_the_middle_of_a_history(history: History, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(history.events)))
    before = history.events[cut - 1].position if cut else history.positions()[0]
    versions = SchemaVersions.of(history.bases).apply_all(history.events[:cut]).gc(before)
    versions = versions.apply_all(history.events[cut:])
    assert_agrees(versions, history, [position for position in history.positions() if position >= before])
