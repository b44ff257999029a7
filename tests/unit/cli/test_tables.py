"""What a terminal of a given width shows of a list."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli.commands.node import LISTED as NODES
from cli.tables import Column, Page, Styled, fact_lines, table_lines
from cli.views import LISTED


@dataclass(frozen=True)
class Row:
    id: str
    state: str = "normal"
    version: str = "0.1.0"
    error: str = ""


COLUMNS = (
    Column("ID", lambda row: row.id),
    Column("STATE", lambda row: Styled(row.state, "green")),
    Column("VERSION", lambda row: row.version, right=True, optional=True),
    Column("ERROR", lambda row: row.error, text=True),
)
LONG = "the source does not answer: connection refused by all three members of the replica set"


def lines(rows: list[Row], width: int | None) -> list[str]:
    return list(table_lines(rows, COLUMNS, Page(width)))


def test_a_pipe_gets_every_column_on_one_line() -> None:
    heading, first, second = lines([Row("a", error=LONG), Row("b" * 90)], None)
    assert heading == f"{'ID':<90}  STATE   VERSION  ERROR"
    assert first == f"{'a':<90}  normal    0.1.0  {LONG}"
    assert second == f"{'b' * 90}  normal    0.1.0"


def test_a_text_is_wrapped_at_its_spaces() -> None:
    assert lines([Row("a", error=LONG)], 80) == [
        "ID  STATE   VERSION  ERROR",
        "a   normal    0.1.0  the source does not answer: connection refused by all three",
        "                     members of the replica set",
    ]


def test_a_narrow_terminal_loses_optional_columns_and_then_shows_the_text_below() -> None:
    node = "processor-0-" + "7" * 28
    assert lines([Row(node, error=LONG)], 80)[0] == f"{'ID':<40}  STATE   ERROR"
    assert lines([Row(node, error=LONG)], 60) == [
        f"{'ID':<40}  STATE",
        f"{node}  normal",
        "    error: the source does not answer: connection refused by",
        "    all three members of the replica set",
    ]


def test_a_text_of_many_lines_is_not_squeezed_into_a_narrow_column() -> None:
    heading, first, *rest = lines([Row("a", error=LONG * 9)], 80)
    assert (heading, first) == ("ID  STATE", "a   normal")
    assert len(rest) < 12


def test_a_changefeed_in_trouble_fits_a_terminal() -> None:
    waits = "1 table with a refused DDL, 1 row rejected"
    feed = pb.Changefeed(
        id="orders-to-dr",
        state="CHANGEFEED_STATE_WARNING",
        obeyed=True,
        attention=waits,
        checkpoint="1795224774.9",
        error=pb.ErrorReport(code="row_rejected"),
    )
    shown = list(table_lines([feed], LISTED, Page(80)))
    assert max(map(len, shown)) <= 80
    assert [title in shown[0] for title in ("STATE", "LAG", "STOPPED", "REJECTED", "CHECKPOINT")] == [True] * 4 + [
        False
    ]
    assert (
        " ".join(line.split("  ")[1 if line[0].strip() else -1].strip() for line in shown[1:3]) == f"warning, {waits}"
    )


def test_a_node_in_trouble_fits_a_terminal() -> None:
    error = pb.ErrorReport(message="the source cannot be reached: check that its members run")
    node = pb.Node(
        id="play-c79a225c4af0108",
        tables=1200,
        spark=True,
        source_reachable=False,
        target_reachable=True,
        last_error=error,
    )
    shown = list(table_lines([node], NODES, Page(80)))
    assert max(map(len, shown)) <= 80
    assert "not reached" in shown[1]
    assert error.message in " ".join(map(str.strip, shown[2:]))


def test_a_column_of_text_that_says_nothing_takes_no_room_on_a_terminal() -> None:
    assert lines([Row("a")], 80)[0] == "ID  STATE   VERSION"
    assert lines([Row("a")], None)[0] == "ID  STATE   VERSION  ERROR"


@given(st.lists(st.text(min_size=1, max_size=120), min_size=1, max_size=5), st.integers(1, 250))
def test_an_id_is_whole_on_its_line_at_every_width(ids: list[str], width: int) -> None:
    shown = [line for line in lines([Row(id, error=LONG) for id in ids], width) if "normal" in line]
    assert len(shown) == len(ids)
    assert all(line.isprintable() for line in shown)


def test_a_name_that_is_more_than_one_line_or_obeyed_by_a_terminal_is_shown_as_its_escape() -> None:
    _, line = lines([Row("a\nroot.\x1b[31m")], None)
    assert line.startswith(r"a\nroot.\u001b[31m")


def test_letters_that_take_two_cells_are_counted_as_two() -> None:
    _, wide, narrow = lines([Row("注文"), Row("abcd")], None)
    assert wide.index("normal") + 2 == narrow.index("normal")


def test_colours_are_for_terminals_and_take_no_room() -> None:
    heading, line = table_lines([Row("a")], COLUMNS, Page(80, colours=True))
    assert "\x1b[32mnormal\x1b[0m    0.1.0" in line
    assert heading.startswith("\x1b[1mID\x1b[0m  ")


def test_facts_stand_behind_their_names_and_are_wrapped_there() -> None:
    facts = [("id", "orders"), ("empty", ""), ("error", LONG), ("configuration", "id: orders\nsource: x")]
    assert list(fact_lines(facts, Page(60))) == [
        "id             orders",
        "error          the source does not answer: connection",
        "               refused by all three members of the replica",
        "               set",
        "configuration  id: orders",
        "               source: x",
    ]
