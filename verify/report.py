"""`Report`: the result of a verification. Pure.

    outcome          of one aspect of one table
    equal            proved to be equal
    not comparable   the sides differ, and the configuration or the kind of table explains it; the reason is given
    order differs    documents have the same fields and values, and some have them in another order
    unsettled        it kept changing, or replication did not pass it in time: neither equal nor different
    different        the sides differ without a change, after replication has passed the difference

A table's outcome is the worst of its aspects, the report's outcome the worst of its tables. The last three are failures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from changefeed.table import TableName


class Outcome(StrEnum):
    """From best to worst."""

    EQUAL = "equal"
    NOT_COMPARABLE = "not comparable"
    REORDERED = "order differs"
    UNSETTLED = "unsettled"
    DIFFERENT = "different"


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    return max(outcomes, key=list(Outcome).index, default=Outcome.EQUAL)


class Aspect(StrEnum):
    TABLE = "table"
    """Whether both sides have the table, as the same kind of table."""
    OPTIONS = "options"
    INDEXES = "indexes"
    DOCUMENTS = "documents"


@dataclass(frozen=True, slots=True)
class Result:
    outcome: Outcome
    details: tuple[str, ...] = ()


ALIKE = Result(Outcome.EQUAL)


class DifferenceKind(StrEnum):
    MISSING = "missing"
    EXTRA = "extra"
    CHANGED = "changed"
    REORDERED = "reordered"
    """Only the order of fields differs."""
    UNSETTLED = "unsettled"


@dataclass(frozen=True, slots=True)
class DocumentDifference:
    """`key` is the `_id` as Extended JSON; `source`, `target` are the digests of what each side has, empty where it has none."""

    kind: DifferenceKind
    key: str
    details: tuple[str, ...] = ()
    source: str = field(default="", compare=False)
    target: str = field(default="", compare=False)
    raw: bytes = field(default=b"", compare=False)
    """The key as BSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsReport:
    """`source` and `target` count the documents read; `complete` is false when reading ended at the largest number of differences, or before the end."""

    source: int = 0
    target: int = 0
    differences: tuple[DocumentDifference, ...] = ()
    excused: Mapping[DifferenceKind, int] = field(default_factory=dict)
    complete: bool = True
    repaired: int = 0
    """Rows that differed, were repaired, and were then found equal."""
    obstacle: str = ""
    """Why rows that differ were not repaired."""
    missed: str = ""
    """Why a part was not read. What was read counts."""
    unreadable: str = ""
    """Why a side could not be read as of a sync point."""

    def plus(self, more: DocumentsReport) -> DocumentsReport:
        return DocumentsReport(
            source=self.source + more.source,
            target=self.target + more.target,
            differences=self.differences + more.differences,
            excused=Counter(self.excused) + Counter(more.excused),
            complete=self.complete and more.complete,
            repaired=self.repaired + more.repaired,
            obstacle=self.obstacle or more.obstacle,
            missed=self.missed or more.missed,
            unreadable=self.unreadable or more.unreadable,
        )

    def at_most(self, most: int) -> DocumentsReport:
        found = self.differences
        return replace(self, differences=found[:most], complete=self.complete and len(found) <= most)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """`name` is the table's name at the target. `results` lacks an aspect that was not compared."""

    name: TableName
    sources: tuple[TableName, ...]
    results: Mapping[Aspect, Result]
    documents: DocumentsReport | None = None

    @property
    def outcome(self) -> Outcome:
        return worst(result.outcome for result in self.results.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    tables: tuple[TableReport, ...]

    @property
    def outcome(self) -> Outcome:
        return worst(table.outcome for table in self.tables)

    @property
    def succeeded(self) -> bool:
        """A comparison of nothing proves nothing: most likely the filter or its names are wrong."""
        return bool(self.tables) and self.outcome in (Outcome.EQUAL, Outcome.NOT_COMPARABLE)


@dataclass(slots=True)
class VerifyProgress:
    """`ranges` counts those of the tables started so far, `documents` those read at the source."""

    tables: int = 0
    tables_done: int = 0
    ranges: int = 0
    ranges_done: int = 0
    documents: int = 0
