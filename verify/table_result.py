"""`TableResult`: combines the reports of one table's ranges. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from verify.definitions import Definition
from verify.report import Aspect, DifferenceKind, DocumentDifference, DocumentsReport, Outcome, Result, TableReport


@dataclass(slots=True)
class TableResult:
    definition: Definition
    excuses: Mapping[DifferenceKind, str]
    most: int
    _counts: Counter[str] = field(default_factory=Counter)
    _differences: list[DocumentDifference] = field(default_factory=list)
    _excused: Counter[DifferenceKind] = field(default_factory=Counter)
    _complete: bool = True
    _obstacle: str = ""

    def add(self, part: DocumentsReport) -> None:
        self._counts.update(source=part.source, target=part.target, repaired=part.repaired)
        self._obstacle = self._obstacle or part.obstacle
        self._differences += part.differences
        self._excused.update(part.excused)
        self._complete = self._complete and part.complete

    def leave_out(self) -> None:
        """Records that a range was not read because there are enough differences."""
        self._complete = False

    @property
    def enough(self) -> bool:
        return len(self._differences) >= self.most

    def report(self, *, documents: bool) -> TableReport:
        pair = self.definition.pair
        results = dict(self.definition.results)
        counted = DocumentsReport(
            source=self._counts["source"],
            target=self._counts["target"],
            differences=tuple(self._differences[: self.most]),
            excused=dict(self._excused),
            complete=self._complete and len(self._differences) <= self.most,
            repaired=self._counts["repaired"],
            obstacle=self._obstacle,
        )
        if documents:
            results[Aspect.DOCUMENTS] = self._documents(counted)
        return TableReport(
            name=pair.name,
            sources=tuple(schema.name for schema in pair.sources),
            results=results,
            documents=counted if documents else None,
        )

    def _documents(self, counted: DocumentsReport) -> Result:
        settled = [each for each in counted.differences if each.kind is not DifferenceKind.UNSETTLED]
        reasons = tuple(f"{count} {kind}: {self.excuses[kind]}" for kind, count in sorted(counted.excused.items()))
        if settled and counted.obstacle:
            reasons = (f"not repaired: {counted.obstacle}", *reasons)
        if settled:
            return Result(Outcome.DIFFERENT, (_how_many(len(settled), complete=counted.complete), *reasons))
        if counted.differences:
            return Result(Outcome.UNSETTLED, (f"{len(counted.differences)} kept changing", *reasons))
        if not counted.complete:
            return Result(Outcome.UNSETTLED, ("too many documents were being replicated", *reasons))
        return Result(Outcome.NOT_COMPARABLE, reasons) if reasons else Result(Outcome.EQUAL)


def _how_many(count: int, *, complete: bool) -> str:
    text = f"{count} document{'' if count == 1 else 's'}"
    return f"{text} differ{'s' if count == 1 else ''}" if complete else f"{text} or more differ"
