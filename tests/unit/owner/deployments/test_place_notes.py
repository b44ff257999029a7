"""When the owner has an idle source write a note."""

from __future__ import annotations

from typing import cast

import pytest

from changefeed.errors import SourceUnavailable
from changefeed.records.requests import ChangefeedId
from owner.background import Background
from owner.deployments import place_notes
from owner.deployments.place_notes import PlaceNotes
from tests.unit.owner.deployments.at_once import AtOnce


class Source:
    def __init__(self) -> None:
        self.written, self.away, self.background = 0, False, AtOnce()
        self.notes = PlaceNotes(ChangefeedId("f"), cast("Background", self.background), self._write)

    def _write(self) -> None:
        self.written += 1
        if self.away:
            raise SourceUnavailable("away")

    def look(self, *wanted: bool) -> int:
        for each in wanted:
            self.notes.look(wanted=each)
        return self.written


@pytest.fixture
def source() -> Source:
    return Source()


def test_a_note_is_written_where_one_is_wanted_and_no_second_one_soon(source: Source) -> None:
    assert source.look(False, False) == 0
    assert source.look(True, True, False, True) == 1


def test_a_source_that_is_away_is_asked_again_later(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.away = True
    assert source.look(True, True) == 1
    monkeypatch.setattr(place_notes, "_EVERY_SECONDS", 0.0)
    source.notes._next_at = 0.0
    assert source.look(True, False, True) == 3


def test_an_answer_that_comes_when_nothing_is_wanted_any_more_is_not_taken_for_a_later_note(source: Source) -> None:
    source.background.slow = True
    assert source.look(True) == 0
    source.background.slow = False
    assert source.look(False) == 1
    source.notes._next_at = 0.0
    assert source.look(True) == 2
