"""`PassPart`: compares, at one sync point, the part of all documents that comes next, and adds up what it finds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from changefeed.config.configuration import Configuration
from changefeed.records.sync_point import ComparedPart, FoundDifference, PartResult, PassPlace
from changefeed.table import TableKind, TableName
from sink.mongodb.connection import Client
from source.compared import ComparedSource
from verify.at_point import AtPoint
from verify.document_check import RANGE_BYTES
from verify.portion import Budget, Portion
from verify.replication import Replication
from verify.report import Aspect, DifferenceKind, Outcome, TableReport, VerifyProgress
from verify.table_reader import IdRange
from verify.verification import Verification, Wishes

_TABLES_AT_ONCE = 200
"""Their definitions are read together."""
_RANGE_SECONDS = 2.5
_SMALLEST_RANGE = 1 << 20
COMPARED_FOR = timedelta(seconds=200)
"""After the point's time at most; servers keep their history for 300 s."""
_MOST_SHOWN = 100
_PATIENCE = timedelta(seconds=20)
_DEFINITIONS = (Aspect.TABLE, Aspect.OPTIONS, Aspect.INDEXES)


@dataclass(slots=True, kw_only=True)
class PassPart:
    """`ranges`: what this process knows to be left of the table at `place`. `left_ranges`: the same for the next part."""

    configuration: Configuration
    source: ComparedSource
    target: Client
    replication: Replication
    ranges: Sequence[IdRange] = ()
    left_ranges: Sequence[IdRange] = field(default=(), init=False)
    _tables: list[TableReport] = field(default_factory=list)

    @property
    def at(self) -> AtPoint:
        assert self.replication.at is not None, "expected a point to compare at"
        return self.replication.at

    def progress(self, progress: VerifyProgress) -> None:
        """The part is short."""

    def table(self, report: TableReport) -> None:
        self._tables.append(report)

    def run(self, place: PassPlace | None, seconds: float, stop: threading.Event) -> PartResult | None:
        """`seconds`: how long it may go on. None: the point is too old to be read."""
        age = self.source.newest_time().seconds - self.at.point.source.seconds
        deadline = time.monotonic() + min(seconds, COMPARED_FOR.total_seconds() - age)
        if deadline <= time.monotonic():
            return None
        budget = Budget(self.configuration.verify.bytes_per_second, stop)
        left = place
        for names in self._groups(place):
            portion = Portion(
                names=names,
                deadline=deadline,
                took=budget.took,
                place=left,
                ranges=self.ranges,
                begun=len(self._tables),
            )
            self._verification(portion).run(stop)
            left, self.left_ranges = portion.left, portion.left_ranges
            if left is not None:
                break
        return PartResult(
            part=self._sum(budget, left),
            place=left,
            due_bytes=self._due_bytes() if place is None else 0,
            differences=tuple(self._differences())[:_MOST_SHOWN],
            left_out=dict(list(self._left_out())[:_MOST_SHOWN]),
        )

    def _verification(self, portion: Portion) -> Verification:
        range_bytes = int(self.configuration.verify.bytes_per_second * _RANGE_SECONDS / 2)
        wishes = Wishes(
            parallelism=1,
            patience=_PATIENCE,
            range_bytes=max(_SMALLEST_RANGE, min(RANGE_BYTES, range_bytes)),
            portion=portion,
        )
        return Verification(
            configuration=self.configuration,
            source=self.source,
            target=self.target,
            listener=self,
            wishes=wishes,
            replication=self.replication,
        )

    def _groups(self, place: PassPlace | None) -> Iterator[tuple[TableName | None, TableName | None]]:
        """Half-open ranges of names, with what is between the names of known tables: the target may have a table that it should not have."""
        routed = {self.configuration.routes.target(schema.name) for schema in self.at.tables}
        names = sorted(routed)
        first = sum(name < place.table for name in names) if place is not None else 0
        for at in range(first, max(len(names), first + 1), _TABLES_AT_ONCE):
            end = at + _TABLES_AT_ONCE
            yield names[at - 1] if at else None, names[end - 1] if end < len(names) else None

    def _due_bytes(self) -> int:
        """Of both sides."""
        return 2 * sum(self.source.size(each).bytes for each in self.at.tables if each.kind is not TableKind.VIEW)

    def _sum(self, budget: Budget, left: PassPlace | None) -> ComparedPart:
        documents = [each.documents for each in self._tables if each.documents is not None]
        kinds = [difference.kind for each in documents for difference in each.differences]
        reordered = kinds.count(DifferenceKind.REORDERED)
        return ComparedPart(
            tables=sum(left is None or each.name != left.table for each in self._tables),
            documents=sum(each.source for each in documents),
            bytes=budget.bytes,
            different=len(kinds) - reordered + sum(1 for _ in self._definitions()),
            reordered=reordered,
            left_out=sum(1 for _ in self._left_out()),
        )

    def _definitions(self) -> Iterable[tuple[TableName, Aspect]]:
        for each in self._tables:
            for aspect in _DEFINITIONS:
                if aspect in each.results and each.results[aspect].outcome is Outcome.DIFFERENT:
                    yield each.name, aspect

    def _left_out(self) -> Iterator[tuple[TableName, str]]:
        for each in self._tables:
            found = each.results.get(Aspect.TABLE)
            if found is not None and found.outcome in (Outcome.NOT_COMPARABLE, Outcome.UNSETTLED):
                yield each.name, "; ".join(found.details)

    def _differences(self) -> Iterator[FoundDifference]:
        """Those of the order of fields come last."""
        for name, aspect in self._definitions():
            yield FoundDifference(table=name, kind=str(aspect))
        found = [(each.name, one) for each in self._tables if each.documents for one in each.documents.differences]
        for name, one in sorted(found, key=lambda each: each[1].kind is DifferenceKind.REORDERED):
            yield FoundDifference(table=name, kind=str(one.kind), key=one.key, source=one.source, target=one.target)
