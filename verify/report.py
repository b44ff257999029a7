"""What a verification found. Pure.

    outcome          of one aspect of one table
    equal            shown to be equal
    not comparable   the changefeed leaves something out, so the sides may differ; the reason says what
    unsettled        it kept changing, or replication did not come past it in time: neither equal nor different
    different        at rest, or after replication has passed it, the sides differ

A table's outcome is the worst of its aspects, the whole's that of its tables. Only `unsettled` and `different` are failures: a
verification succeeds when everything that can be equal is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from changefeed.table import TableName


class Outcome(StrEnum):
    """From best to worst."""

    EQUAL = "equal"
    NOT_COMPARABLE = "not comparable"
    UNSETTLED = "unsettled"
    DIFFERENT = "different"


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    return max(outcomes, key=list(Outcome).index, default=Outcome.EQUAL)


class Aspect(StrEnum):
    TABLE = "table"
    """That it stands on both sides, as the same kind of table."""
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
    UNSETTLED = "unsettled"


@dataclass(frozen=True, slots=True)
class DocumentDifference:
    """`key` is the `_id` as Extended JSON."""

    kind: DifferenceKind
    key: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsReport:
    """Counts are of documents read; `complete` is false when reading ended at the most differences asked for."""

    source: int = 0
    target: int = 0
    differences: tuple[DocumentDifference, ...] = ()
    excused: Mapping[DifferenceKind, int] = field(default_factory=dict)
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """`name` is the table's at the target. An aspect that was not looked at is not in `results`."""

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
        return self.outcome in (Outcome.EQUAL, Outcome.NOT_COMPARABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyProgress:
    """Ranges are those of the tables begun so far, documents those read at the source."""

    tables: int
    tables_done: int
    ranges: int
    ranges_done: int
    documents: int
