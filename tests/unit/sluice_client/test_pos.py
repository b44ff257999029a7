from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_client.cluster_time import ClusterTime
from sluice_client.pos import pos_of, position_of
from sluice_client.position import Position
from source.oplog.row_entry import place
from tests.json_schema import violations

_SCHEMA = Path(__file__).parents[3] / "docs" / "reference" / "event-message.schema.json"
_POS = json.loads(_SCHEMA.read_text(encoding="utf-8"))["$defs"]["pos"]

_time = st.builds(ClusterTime, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
_near = st.builds(ClusterTime, st.just(1795224774), st.integers(8, 10))
_oplog = st.one_of(st.just(""), st.integers(0, 2**32 - 1).map(place), st.integers(0, 2).map(place))
_stream = st.one_of(
    st.just(""), st.sampled_from(["8264AB01", "8264AB0146", "8264AC", "8264AB0146FE04"]).map("{}00000000".format)
)


@pytest.mark.parametrize("tokens", [_oplog, _stream])
def test_bytes_sort_as_positions_do(tokens: st.SearchStrategy[str]) -> None:
    @given(st.lists(st.builds(Position, st.one_of(_time, _near), tokens), min_size=2))
    def check(positions: list[Position]) -> None:
        assert sorted(positions, key=lambda each: pos_of(each).encode()) == sorted(positions)

    check()


@given(st.builds(Position, _time, st.one_of(_oplog, _stream)))
def test_a_pos_gives_its_position_again(position: Position) -> None:
    assert position_of(pos_of(position)) == position


def test_one_of_several_ddls_of_an_operation_has_a_pos() -> None:
    """As of the views that a drop of system.views ends."""
    places = [Position(ClusterTime(100, 1), token) for token in ("00000000", "00000000.0001", "00000001")]
    texts = list(map(pos_of, places))
    assert texts == sorted(texts)
    assert list(map(position_of, texts)) == places
    assert all(not list(violations(text, _POS, _POS)) for text in texts)


@given(st.builds(Position, _time, _oplog))
def test_with_the_oplog_all_have_one_width(position: Position) -> None:
    assert len(pos_of(position)) == 31


def test_the_layout_is_as_documented() -> None:
    assert pos_of(Position(ClusterTime(1795224774, 9), "00000002")) == "6B00F4C600000009.40000000000002"
    assert pos_of(Position(ClusterTime(1795224774, 9))) == "6B00F4C600000009.00000000000000"


@pytest.mark.parametrize(
    "text", ["", "6B00F4C600000009", "6b0114c600000009.00000000000000", "6B00F4C600000009.11000000000000"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a pos"):
        position_of(text)
