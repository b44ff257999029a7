"""Random DDL histories against a model that replays everything from scratch."""

from __future__ import annotations

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from schema_store.schema_base import NO_BASE
from schema_store.versions import SchemaVersions
from tests.unit.schema_store.histories import History, answers, assert_agrees, histories


@settings(max_examples=100)
@given(histories())
def test_all_answers_at_all_positions_are_those_of_a_replay_from_scratch(history: History) -> None:
    versions = SchemaVersions.of(history.bases).apply_all(history.events)
    assert_agrees(versions, history, history.positions())


@settings(max_examples=50)
@given(histories())
def test_one_event_at_a_time_gives_the_same_as_all_at_once(history: History) -> None:
    versions = SchemaVersions.of(history.bases)
    for event in history.events:
        versions = versions.apply(event)
    assert versions == SchemaVersions.of(history.bases).apply_all(history.events)


@settings(max_examples=50)
@given(histories())
def test_any_event_applied_again_changes_nothing(history: History) -> None:
    versions = SchemaVersions.of(history.bases).apply_all(history.events)
    for event in history.events:
        assert versions.apply(event) == versions


@settings(max_examples=75)
@given(histories(), st.data())
def test_collecting_garbage_below_any_position_keeps_all_answers_from_there_on(
    history: History, data: st.DataObject
) -> None:
    positions = history.positions()
    before = data.draw(st.sampled_from(positions))
    versions = SchemaVersions.of(history.bases).apply_all(history.events).gc(before)
    assert_agrees(versions, history, [position for position in positions if position >= before])
    assert versions.apply_all(history.events) == versions


@settings(max_examples=50)
@given(histories(), st.data())
def test_garbage_can_be_collected_in_the_middle_of_a_history(history: History, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(history.events)))
    before = history.events[cut - 1].position if cut else history.positions()[0]
    versions = SchemaVersions.of(history.bases).apply_all(history.events[:cut]).gc(before)
    versions = versions.apply_all(history.events[cut:])
    assert_agrees(versions, history, [position for position in history.positions() if position >= before])


@settings(max_examples=150)
@given(histories(), st.data())
def test_versions_with_new_bases_now_and_then_answer_like_those_with_one(history: History, data: st.DataObject) -> None:
    plain = merged = SchemaVersions.of(history.bases)
    positions = history.positions()
    for event in history.events:
        plain, merged = plain.apply(event), merged.apply(event)
        if data.draw(st.booleans()):
            positions = positions[data.draw(st.integers(0, positions.index(event.position))) :]
            plain, merged = plain.gc(positions[0]), merged.gc(positions[0])
        if data.draw(st.booleans()):
            merged = merged.merged()
        assert answers(merged, history, positions) == answers(plain, history, positions)
    repeated = merged.apply_all(history.events)
    assert answers(repeated, history, positions) == answers(plain, history, positions)


@settings(max_examples=50)
@given(histories())
def test_nothing_is_left_beside_the_base_when_nobody_asks_about_the_past(history: History) -> None:
    end = Position(ClusterTime(1_000, 1))
    versions = SchemaVersions.of(history.bases).apply_all(history.events).gc(end).merged()
    assert not versions.changed
    assert_agrees(versions, history, [end])
    assert len(versions.base) == len(versions.tables_at(end))


@settings(max_examples=25)
@given(histories())
def test_versions_without_their_base_get_an_equal_one_back(history: History) -> None:
    versions = SchemaVersions.of(history.bases).apply_all(history.events)
    base = pickle.loads(pickle.dumps(versions.base))
    assert pickle.loads(pickle.dumps(versions.over(NO_BASE))).over(base) == versions
