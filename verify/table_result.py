"""`TableResult`: combines the reports of one table's ranges. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from verify.definitions import Definition
from verify.report import Aspect, DifferenceKind, DocumentsReport, Outcome, Result, TableReport


@dataclass(slots=True)
class TableResult:
    definition: Definition
    excuses: Mapping[DifferenceKind, str]
    most: int
    _found: DocumentsReport = field(default_factory=DocumentsReport)

    def add(self, part: DocumentsReport) -> None:
        self._found = self._found.plus(part)

    def leave_out(self) -> None:
        """Records that a range was not read because there are enough differences, or since it cannot be."""
        self._found = replace(self._found, complete=False)

    @property
    def enough(self) -> bool:
        return len(self._found.differences) >= self.most or bool(self._found.missed or self._found.unreadable)

    @property
    def differs(self) -> bool:
        return bool(self._found.differences) or any(
            each.outcome is Outcome.DIFFERENT for each in self.definition.results.values()
        )

    def cannot_be_read(self, why: str) -> None:
        self._found = replace(self._found, unreadable=why)

    def report(self, *, documents: bool) -> TableReport:
        pair = self.definition.pair
        results = dict(self.definition.results)
        counted = None
        if self._found.unreadable:
            results = {Aspect.TABLE: Result(Outcome.NOT_COMPARABLE, (self._found.unreadable,))}
        elif documents:
            counted = self._found.at_most(self.most)
            results[Aspect.DOCUMENTS] = self._documents(counted)
            if counted.missed:
                results[Aspect.TABLE] = Result(Outcome.UNSETTLED, (counted.missed,))
        return TableReport(
            name=pair.name,
            sources=tuple(schema.name for schema in pair.sources),
            results=results,
            documents=counted,
        )

    def _documents(self, counted: DocumentsReport) -> Result:
        kinds = Counter(each.kind for each in counted.differences)
        reordered = kinds[DifferenceKind.REORDERED]
        settled = len(counted.differences) - kinds[DifferenceKind.UNSETTLED] - reordered
        reasons = tuple(f"{count} {kind}: {self.excuses[kind]}" for kind, count in sorted(counted.excused.items()))
        if reordered:
            reasons = (f"{_how_many(reordered, complete=counted.complete)} only in the order of fields", *reasons)
        if (settled or reordered) and counted.obstacle:
            reasons = (f"not repaired: {counted.obstacle}", *reasons)
        if settled:
            return Result(Outcome.DIFFERENT, (_how_many(settled, complete=counted.complete), *reasons))
        if kinds[DifferenceKind.UNSETTLED]:
            return Result(Outcome.UNSETTLED, (f"{kinds[DifferenceKind.UNSETTLED]} kept changing", *reasons))
        if reordered:
            return Result(Outcome.REORDERED, reasons)
        if not counted.complete:
            why = counted.missed and "not all were compared"
            return Result(Outcome.UNSETTLED, (why or "too many documents were being replicated", *reasons))
        return Result(Outcome.NOT_COMPARABLE, reasons) if reasons else Result(Outcome.EQUAL)


def _how_many(count: int, *, complete: bool) -> str:
    text = f"{count} document{'' if count == 1 else 's'}"
    return f"{text} differ{'s' if count == 1 else ''}" if complete else f"{text} or more differ"
