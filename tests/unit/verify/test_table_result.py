from __future__ import annotations

import pytest

from changefeed.table import TableName
from verify.definitions import Definition, Pair
from verify.report import ALIKE, Aspect, DifferenceKind, DocumentDifference, DocumentsReport, Outcome, Report
from verify.table_result import TableResult

NAME = TableName("shop", "a")


@pytest.mark.parametrize(
    ("kinds", "outcome", "said"),
    [
        ([], Outcome.EQUAL, ""),
        ([DifferenceKind.REORDERED], Outcome.REORDERED, "1 document differs only in the order of fields"),
        ([DifferenceKind.REORDERED, DifferenceKind.UNSETTLED], Outcome.UNSETTLED, "1 kept changing"),
        ([DifferenceKind.REORDERED, DifferenceKind.CHANGED], Outcome.DIFFERENT, "1 document differs"),
    ],
)
def test_documents_in_another_order_are_never_equal_and_are_counted(
    kinds: list[DifferenceKind], outcome: Outcome, said: str
) -> None:
    definition = Definition(Pair(name=NAME, origins=(NAME,)), {Aspect.TABLE: ALIKE})
    result = TableResult(definition, {}, most=20)
    result.add(DocumentsReport(differences=tuple(DocumentDifference(kind, "1") for kind in kinds)))
    found = result.report(documents=True).results[Aspect.DOCUMENTS]
    assert found.outcome is outcome
    assert said == (found.details[0] if found.details else "")


def test_a_table_whose_point_has_become_too_old_is_not_shown_to_be_equal_and_keeps_what_differs() -> None:
    definition = Definition(Pair(name=NAME, origins=(NAME,)), {Aspect.TABLE: ALIKE})
    result = TableResult(definition, {}, most=20)
    aged = DocumentsReport(complete=False, missed="it is too old")
    result.add(aged)
    assert result.enough, "further ranges are as old"
    assert result.report(documents=True).outcome is Outcome.UNSETTLED
    assert not Report(tables=(result.report(documents=True),)).succeeded

    result.add(DocumentsReport(differences=(DocumentDifference(DifferenceKind.CHANGED, "1"),)))
    found = result.report(documents=True)
    assert found.outcome is Outcome.DIFFERENT
    assert found.results[Aspect.TABLE].details == ("it is too old",)
    assert found.documents is not None
    assert found.documents.differences
