from __future__ import annotations

import pytest

from changefeed.table import TableName
from verify.definitions import Definition, Pair
from verify.report import ALIKE, Aspect, DifferenceKind, DocumentDifference, DocumentsReport, Outcome
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
