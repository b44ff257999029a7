from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from changefeed.position import Position
from changefeed.records.sync_point import ExceptedTable, SyncPoint
from changefeed.table import TableId, TableName, TableSchema
from verify.at_point import AtPoint, unread
from verify.definitions import Definition, Pair
from verify.report import ALIKE, Aspect, DocumentsReport, Outcome

A, B = TableId("a" * 32), TableId("b" * 32)
OF_A, OF_B = TableName("shop", "a"), TableName("shop", "b")


def schema(id: TableId, name: TableName) -> TableSchema:
    return TableSchema(id=id, name=name, valid_from=Position(ClusterTime(1, 1)))


def definition(id: TableId, name: TableName) -> Definition:
    return Definition(Pair(name=name, origins=(name,), sources=(schema(id, name),)), {Aspect.TABLE: ALIKE})


def outcomes(
    *present: Definition,
    there: tuple[TableSchema, ...] = (schema(A, OF_A), schema(B, OF_B)),
    changed: Mapping[TableId, str] | None = None,
    excepted: tuple[ExceptedTable, ...] = (),
) -> dict[TableName, tuple[Outcome, str]]:
    point = SyncPoint(
        source=ClusterTime(120, 0),
        target=ClusterTime(120, 9),
        excepted=excepted,
        made_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    at = AtPoint(point, there, lambda: changed or {}, lambda name: name)
    results = {each.pair.name: each.results[Aspect.TABLE] for each in at.settled(present, lambda _: True)}
    return {name: (result.outcome, " ".join(result.details)) for name, result in results.items()}


def test_tables_that_have_stayed_as_they_were_are_compared() -> None:
    found = outcomes(definition(A, OF_A), definition(B, OF_B))
    assert {outcome for outcome, _ in found.values()} == {Outcome.EQUAL}


def test_a_table_that_the_point_excepts_is_named_with_the_reason() -> None:
    excepted = ExceptedTable(source=(OF_B,), target=(OF_B,), why="it is stopped")
    found = outcomes(definition(A, OF_A), definition(B, OF_B), excepted=(excepted,))
    assert found[OF_B] == (Outcome.NOT_COMPARABLE, "the point excepts it: it is stopped")
    assert found[OF_A][0] is Outcome.EQUAL


def test_a_table_that_a_ddl_has_touched_since_is_not_compared() -> None:
    """Some servers would show its later rows."""
    found = outcomes(definition(A, OF_A), definition(B, OF_B), changed={A: "a rename came later"})
    assert found[OF_A] == (Outcome.NOT_COMPARABLE, "a rename came later")


def test_a_table_of_later_and_one_that_is_gone_are_named() -> None:
    found = outcomes(definition(B, OF_B), there=(schema(A, OF_A),))
    assert found[OF_B] == (Outcome.NOT_COMPARABLE, "it was created since then")
    assert found[OF_A][0] is Outcome.NOT_COMPARABLE


def test_what_a_server_cannot_read_as_of_then_is_told_from_other_errors() -> None:
    def raised(code: int) -> SourceUnavailable:
        error = SourceUnavailable("no")
        error.__cause__ = OperationFailure("no", code)
        return error

    def said(code: int) -> DocumentsReport:
        found = unread(raised(code))
        assert found is not None
        return found

    assert "capped" in said(246).unreadable
    assert "merged" in said(250).unreadable
    assert "history" in said(239).missed
    assert unread(raised(11602)) is None
