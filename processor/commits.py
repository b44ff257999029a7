"""`Commits`: commits what tasks wrote into an event sink, before anything of it counts.

    window    its receipts, with the range of each of its tables    then its checkpoint moves
    chunk     its receipts                                          then it is recorded as copied

A crash before the commit leaves files that nobody sees. A crash after it, before etcd knows, leaves a commit whose range is run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from changefeed.errors import InvariantError
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from coordination import failpoint
from processor.copy.chunk_copy import ReadChunk
from processor.copy.steps import CopyAnswers, CopyChunk, CopyStep
from processor.task.job import JobOutcome, JobSpec
from processor.task.job_context import JobContext
from sink.receipt import Commit, Committer, CopyReceipt


class Commits:
    """For one changefeed on one node. In any thread."""

    def __init__(self, committer: Committer, *, every_seconds: float) -> None:
        """`every_seconds`: how often the windows of tables that follow begin."""
        self._committer = committer
        self.every_seconds = every_seconds

    def window(self, context: JobContext, spec: JobSpec, outcome: JobOutcome) -> None:
        """The outcome has no error."""
        whole = spec.whole(context.tables)
        job = whole if outcome.ended is None else whole.cut(outcome.ended)
        ranges = {table: window for table in (*job.tables, *job.own_windows) if (window := job.of(table)) is not None}
        tables = _described(context, ((table, window.start) for table, window in ranges.items()))
        failpoint.reach("window_committing", context.changefeed)
        self._committer.commit(Commit(ranges=ranges, files=tuple(outcome.rows.receipts), tables=tables))
        failpoint.reach("window_committed", context.changefeed)

    def chunks(self, context: JobContext, steps: Sequence[CopyStep], answers: CopyAnswers) -> None:
        copies: list[CopyReceipt] = []
        begins: list[tuple[TableId, Position]] = []
        for step, answer in zip(steps, answers, strict=False):
            if isinstance(step, CopyChunk) and isinstance(answer, ReadChunk):
                assert answer.read_after is not None
                begins.append((step.schema.id, step.copied_from))
                copies.append(
                    CopyReceipt(
                        table=step.schema.id,
                        start=step.copied_from,
                        after=answer.read_after,
                        until=answer.copied.until,
                        files=answer.receipts,
                    )
                )
        if copies:
            failpoint.reach("chunks_committing", context.changefeed)
            tables = _described(context, begins)
            self._committer.commit(Commit(ranges={}, copies=tuple(copies), tables=tables))
            failpoint.reach("chunks_committed", context.changefeed)


def _described(
    context: JobContext, places: Iterable[tuple[TableId, Position]]
) -> tuple[tuple[TableSchema, TableName], ...]:
    route = context.configuration.routes.target
    found: list[tuple[TableSchema, TableName]] = []
    for table, at in places:
        schema = context.schemas.at(table, at)
        if schema is None:
            raise InvariantError(f"table {table} at {at}: expected the schema store to know it, observed no such table")
        found.append((schema, route(schema.name)))
    return tuple(found)
