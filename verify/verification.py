"""`Verification`: compares all tables of a changefeed once, from the catalogs to the last range."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar

import structlog

from changefeed.config.configuration import Configuration, OnOccupied
from changefeed.config.tables.pattern import PatternList, TablePattern
from changefeed.errors import RetryableError, SluiceError
from changefeed.table import TableKind, TableName, identified
from credentials.secrets import hash_key
from sink.mongodb.connection import Client
from source.columns import Columns, columns_of
from source.compared import ComparedSource
from verify.at_point import unread
from verify.definitions import Definition, definition_results, excuses, origin, pairs, settled_definitions
from verify.document_check import RANGE_BYTES, DocumentCheck, Sides
from verify.portion import Portion
from verify.raw_document import as_it_is, fields_sorted
from verify.replication import ROWS_AT_ONCE, Passing, Replication, repair_obstacle
from verify.report import Aspect, DifferenceKind, DocumentsReport, Outcome, Report, TableReport, VerifyProgress
from verify.table_reader import IdRange, Stopped, read_target
from verify.table_result import TableResult

_RETRIES = 5

T = TypeVar("T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The options of a verification. `tables` are patterns on names at the source, as in the filter; none means all."""

    tables: tuple[TablePattern, ...] = ()
    max_differences: int = 20
    """The limit for each table."""
    parallelism: int = 4
    ignore_field_order: bool = False
    patience: timedelta = timedelta(seconds=60)
    """How long replication may take to pass a difference."""
    range_bytes: int = RANGE_BYTES
    names: frozenset[TableName] | None = None
    """At the target. None: all."""
    portion: Portion = field(default_factory=Portion)
    """Only that. One that may end early is read by one thread."""

    def chose(self, name: TableName) -> bool:
        return not self.tables or PatternList.of(self.tables).means(name)


class Listener(Protocol):
    """Called on the thread that runs the verification."""

    def progress(self, progress: VerifyProgress) -> None: ...

    def table(self, report: TableReport) -> None: ...


@dataclass(slots=True)
class _Table:
    """A table whose ranges are being read. `ranges` are those not started."""

    check: DocumentCheck
    result: TableResult
    ranges: list[IdRange]
    running: int = 0
    reported: bool = False


@dataclass(slots=True)
class Verification:
    """Runs once. The caller closes the clients."""

    configuration: Configuration
    source: ComparedSource
    target: Client
    listener: Listener
    wishes: Wishes = field(default_factory=Wishes)
    replication: Replication = field(default_factory=Replication)
    _stop: threading.Event = field(default_factory=threading.Event)
    _passing: Passing | None = None
    _reports: list[TableReport] = field(default_factory=list)
    _progress: VerifyProgress = field(default_factory=VerifyProgress)

    def run(self, stop: threading.Event | None = None) -> Report:
        """`stop` ends it early, with `Stopped`."""
        self._stop = stop or self._stop
        passing = Passing(self.source, self.replication.checkpoints, self.wishes.patience)
        definitions = settled_definitions(partial(self._patiently, self._look), passing.wait)
        if self.replication.at is not None:
            definitions = tuple(self.replication.at.settled(definitions, self._chose))
        self._progress.tables = len(definitions)
        self._report_progress()
        sides = Sides(
            source=self.source,
            target=self.target,
            stop=self._stop,
            passing=passing if self.replication.at is None else Passing(self.source, None, self.wishes.patience),
            columns_of=self._columns_of,
            point=self.replication.at.point if self.replication.at is not None else None,
            took=self.wishes.portion.took,
        )
        self._passing = passing
        with ThreadPoolExecutor(self.wishes.parallelism, "verify") as threads:
            try:
                self._compare_documents(definitions, sides, threads)
            except BaseException:
                self._stop.set()
                raise
        return Report(tables=tuple(self._reports))

    def _columns_of(self, name: TableName) -> Columns | None:
        return columns_of(self.configuration.columns_of(name), hash_key)

    def _look(self) -> list[Definition]:
        """Reads the catalogs. All tables of the source are read: a chosen table may share its target name with another one."""
        tables = identified(self.source.read_tables(self._is_routed), self.replication.known())
        routed = {self.configuration.routes.target(schema.name) for schema in tables}
        written = {name.db for name in routed}
        target = read_target(self.target, lambda name: name in routed or self._may_be_left(name), written)
        found = pairs(self.configuration, tables, target, self._chose)
        return [Definition(pair, definition_results(pair, self.configuration)) for pair in found]

    def _chose(self, name: TableName) -> bool:
        return self.wishes.chose(name) and self._is_within(self.configuration.routes.target(name))

    def _is_routed(self, name: TableName) -> bool:
        return self.configuration.filter.wants_table(name) and self._is_within(self.configuration.routes.target(name))

    def _may_be_left(self, name: TableName) -> bool:
        return self._is_within(name) and origin(self.configuration, name) is not None

    def _is_within(self, name: TableName) -> bool:
        wanted = self.wishes.names is None or name in self.wishes.names
        return wanted and self.wishes.portion.within(name)

    def _compare_documents(
        self, definitions: tuple[Definition, ...], sides: Sides, threads: ThreadPoolExecutor
    ) -> None:
        """Submits at most two ranges for each thread, so that a table is opened only shortly before its ranges are read."""
        running: dict[Future[DocumentsReport], _Table] = {}
        for table, keys in self._work(definitions, sides):
            running[threads.submit(self._compared, table.check, keys)] = table
            if len(running) >= 2 * self.wishes.parallelism:
                self._collect(running)
        while running:
            self._collect(running)

    def _work(self, definitions: tuple[Definition, ...], sides: Sides) -> Iterator[tuple[_Table, IdRange]]:
        portion = self.wishes.portion
        for definition in sorted(definitions, key=lambda each: each.pair.name):
            if portion.ends(definition.pair.name):
                return
            table = self._patiently(partial(self._open, definition, sides))
            if table is None:
                portion.begun += 1
                self._report(TableResult(definition, {}, self.wishes.max_differences).report(documents=False))
                continue
            while table.ranges:
                if portion.ends(definition.pair.name, table.ranges):
                    table.ranges.clear()
                    break
                keys = table.ranges.pop()
                portion.begun += 1
                if table.result.enough:
                    table.result.leave_out()
                    self._progress.ranges_done += 1
                    continue
                table.running += 1
                yield table, keys
            self._report_when_done(table)

    def _open(self, definition: Definition, sides: Sides) -> _Table | None:
        """None when the table has no documents to compare."""
        pair = definition.pair
        if definition.results[Aspect.TABLE].outcome is not Outcome.EQUAL or pair.sources[0].kind is TableKind.VIEW:
            return None
        wishes = self.wishes
        check = DocumentCheck.of(
            pair,
            sides,
            canonical=fields_sorted if wishes.ignore_field_order else as_it_is,
            excuses=excuses(pair, self.configuration),
            most=wishes.max_differences
            if self.replication.repairs is None
            else max(wishes.max_differences, ROWS_AT_ONCE),
        )
        ranges = wishes.portion.of(pair.name, partial(check.ranges, wishes.range_bytes))
        self._progress.ranges += len(ranges)
        return _Table(check, TableResult(definition, check.excuses, wishes.max_differences), ranges)

    def _compared(self, check: DocumentCheck, keys: IdRange) -> DocumentsReport:
        """With repairs, the range is compared again after each, as long as rows became equal. One repair has a bounded number of rows."""
        found, repaired, why = self._patiently(partial(self._read, check, keys)), 0, ""
        while self.replication.repairs is not None and not why and (rows := rows_that_differ(found)):
            tables = [schema.id for schema in check.pair.sources]
            go_on = partial(check.sides.passing.wait, tables)
            why = repair_obstacle(check.pair) or self.replication.repairs.repair(tables, rows, go_on)
            if why:
                break
            found = self._patiently(partial(check.compare, keys))
            left = len(set(rows) & set(rows_that_differ(found)))
            repaired += len(rows) - left
            if left == len(rows):
                why = self._why_left
        return replace(found, repaired=repaired, obstacle=why)

    def _read(self, check: DocumentCheck, keys: IdRange) -> DocumentsReport:
        try:
            return check.compare(keys)
        except SluiceError as error:
            if self.replication.at is None or (part := unread(error)) is None:
                raise
            return part

    @property
    def _why_left(self) -> str:
        kept = "; rows of the target alone are kept (on_occupied: keep)"
        extra = kept if self.configuration.on_occupied is OnOccupied.KEEP else ""
        return f"their table's node has read them at the source, and they still differ{extra} (docs/reference/verify.md says which rows it leaves)"

    def _patiently(self, work: Callable[[], T]) -> T:
        """Retries retryable errors: a verification may take hours, and a short outage of one side must not end it."""
        for _ in range(_RETRIES):
            try:
                return work()
            except RetryableError as error:
                _log.warning("verification_tries_again", changefeed=self.configuration.id, error=str(error))
                if self._stop.wait(error.retry_after.total_seconds()):
                    raise Stopped from error
        return work()

    def _collect(self, running: dict[Future[DocumentsReport], _Table]) -> None:
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            table = running.pop(future)
            part = future.result()
            table.running -= 1
            table.result.add(part)
            self._progress.documents += part.source
            self._progress.ranges_done += 1
            self._report_when_done(table)

    def _report_when_done(self, table: _Table) -> None:
        if not (table.ranges or table.running or table.reported):
            table.reported = True
            if self.replication.at is not None and self._passing is not None and table.result.differs:
                self._passing.wait()  # a DDL that came while it was read is recorded then
                if why := self.replication.at.changed_since(table.check.pair):
                    table.result.cannot_be_read(why)
            self._report(table.result.report(documents=True))
        self._report_progress()

    def _report(self, report: TableReport) -> None:
        self._reports.append(report)
        self._progress.tables_done += 1
        self.listener.table(report)

    def _report_progress(self) -> None:
        self.listener.progress(replace(self._progress))


def rows_that_differ(found: DocumentsReport | None) -> list[bytes]:
    """Their keys. Rows that only the target has come first: they may have unique values that others need."""
    return [
        each.raw
        for each in sorted(
            found.differences if found is not None else (), key=lambda each: each.kind is not DifferenceKind.EXTRA
        )
        if each.kind is not DifferenceKind.UNSETTLED
    ]
