"""`FeedBatches`: the batches of a changefeed, planned from its files at the driver. `FeedPartition`: what one task reads of a batch.

What is between two watermarks is the same whenever it is read: files are never changed, and everything before a watermark is there. So a batch
that Spark asks for again, after a crash or in another process, is the same batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_sluice.batches import DdlStop, by_table, cost_of, next_stop, shared_out, up_to, whole_files, within_files
from pyspark_sluice.reader_options import BatchLimits, ReaderOptions
from sluice_client.feed_directory import FeedDirectory, FeedLife, checked
from sluice_client.feed_errors import ConfigurationError, NotFoundError
from sluice_client.feed_history import NO_PLACE
from sluice_client.feed_reader import NOTHING, Rank, Round, Shown, StoredMessage, Watermark
from sluice_client.feed_store import open_feed
from sluice_client.file_reader import Reader, RoundPlan
from sluice_client.manifest import FileSpans
from sluice_client.pos import pos_of, position_of
from sluice_client.position import Position

Offset: TypeAlias = dict[str, Any]
"""A watermark, and whose it is."""


class FeedPartition(InputPartition):
    """`told`: DDL and schemas, as they are stored."""

    def __init__(self, options: ReaderOptions, files: list[FileSpans], told: list[StoredMessage]) -> None:
        self.options = options
        self.files = files
        self.told = told

    def read(self) -> Iterator[pa.RecordBatch]:
        from pyspark_sluice.arrow_rows import in_order, rows_of_file, rows_of_messages  # noqa: PLC0415 - it takes time to load, and only tasks need it

        store, wants = open_feed(self.options.path), self.options.wants
        files = (rows_of_file(file.name, checked(store, file), spans, wants) for file, spans in self.files)
        batches = chain(rows_of_messages(self.told, wants), chain.from_iterable(files))
        yield from (batch for batch in (in_order(list(batches)) if self.options.ordered else batches) if len(batch))


class FeedBatches:
    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._store = open_feed(options.path)
        self._directory = FeedDirectory(self._store)
        self._life = self._identity()
        self._reader = Reader(self._directory)
        self._looked: Watermark | None = None
        """From where on manifests are known."""
        self._names: tuple[int, Mapping[str, frozenset[str]]] = 0, {}

    def newest(self) -> Watermark:
        """Its changefeed may have been removed, and another one begun in its place: whose it is, is read behind it."""
        newest = self._directory.mark() or NOTHING
        self._check_life(self._life, self._identity())
        return newest

    def first(self) -> Watermark:
        """Where a new query begins."""
        newest = self.newest()
        found = self._options.first(newest)
        self._look(found)
        names = {name for names in self._known_names().values() for name in names}
        self._options.check_tables(names)
        oldest = self._oldest()
        if isinstance(self._options.start, Position) and oldest is not None and found.at < oldest:
            problem = (
                f"start: the files begin at {pos_of(oldest)} ({oldest.ts.to_iso()}), which is behind {pos_of(found.at)}; "
                f"write earliest, or a later start"
            )
            raise ConfigurationError([problem])
        return found

    def end(self, before: Watermark, newest: Watermark, limits: BatchLimits) -> Watermark:
        """Of the batch that begins at `before`."""
        if before.covers(newest):
            return before
        newest = before.joined(newest)
        plan = self._plan(before, newest)
        if self._options.stop_at_ddl and (stop := next_stop(plan.ready, before, self._options.passed_ddl)):
            if stop.here:
                raise DdlStop(stop.text)
            newest = up_to(before, newest, stop.at)
            plan = self._plan(before, newest)
        if not limits:
            return newest
        last, beyond = whole_files(list(map(cost_of, plan.files.values())), limits)
        if beyond is None:
            return newest
        if last is not None and (found := up_to(before, newest, last)) != before:
            return found
        found = up_to(before, newest, beyond)
        inside = within_files(self._rows(self._plan(before, found)), limits)
        return found if inside is None else up_to(before, newest, inside)

    def partitions(self, before: Watermark, now: Watermark) -> list[FeedPartition]:
        if before.covers(now):
            return []
        plan = self._plan(before, now)
        self._check_life(self._life, self._identity())
        told = [
            (shown.table, shown.content) for shown in sorted(plan.ready) if isinstance(shown.content, StoredMessage)
        ]
        if self._options.ordered:
            files = by_table(plan.files)
            by: dict[str, list[StoredMessage]] = defaultdict(list)
            for table, message in told:
                by[table].append(message)
            return [
                FeedPartition(self._options, files.get(each, []), by[each]) for each in sorted(files.keys() | by.keys())
            ]
        parts = [FeedPartition(self._options, files, []) for files in shared_out(plan.files) or [[]][: len(told)]]
        if told:
            parts[0].told = [message for _, message in told]
        return parts

    def passed(self, mark: Watermark) -> None:
        """No batch will begin before it."""
        self._reader.passed(mark)
        self._looked = mark

    def offset(self, mark: Watermark) -> Offset:
        behind = {str(table): pos_of(place) for table, place in sorted(mark.behind.items())}
        return {**self._life._asdict(), "pos": pos_of(mark.at), "behind": behind}

    def mark(self, offset: Offset) -> Watermark:
        self._check_life(FeedLife(offset["feed"], offset["life"]), self._life)
        return Watermark.of_fields({"pos": offset["pos"], "tables": offset["behind"]})

    def _identity(self) -> FeedLife:
        try:
            return self._directory.identity()
        except NotFoundError as error:
            raise ConfigurationError([f"path: {error}; name the place that is the sink of the changefeed"]) from None

    def _check_life(self, read: FeedLife, found: FeedLife) -> None:
        if read != found:
            problem = (
                f"path: {self._store} has changefeed {found.feed!r} as it began at {found.life}, a feed of another life; this query has read "
                f"{read.feed!r} as it began at {read.life}: read the place that it was made of, or begin with another checkpoint"
            )
            raise ConfigurationError([problem])

    def _plan(self, before: Watermark, now: Watermark) -> RoundPlan:
        """Without what is of other tables."""
        self._look(before)
        plan = self._reader.plan(Round(before, now))
        if not self._options.tables:
            return plan
        names = self._known_names()
        wanted = {table for table, known in names.items() if any(map(self._options.wants, known))}
        plan.ready = [shown for shown in plan.ready if self._wants(shown, names)]
        for name, file in list(plan.files.items()):
            spans = {table: found for table, found in file.spans.items() if table in wanted or table not in names}
            if spans:
                plan.files[name] = FileSpans(file.file, spans)
            else:
                del plan.files[name]
        return plan

    def _look(self, before: Watermark) -> None:
        low = min([before.at, *before.behind.values()])
        if self._looked is None or low < min([self._looked.at, *self._looked.behind.values()]):
            self._directory = FeedDirectory(self._store)
            self._reader = Reader(self._directory)
            self._looked = before
        self._directory.mark()
        self._directory.look(low)

    def _wants(self, shown: Shown, names: Mapping[str, frozenset[str]]) -> bool:
        if not isinstance(shown.content, StoredMessage):
            return False
        fields = shown.content.fields
        said = {fields[name] for name in ("ns", "to") if name in fields}
        if shown.rank is Rank.DDL and "ids" in fields:
            said = {name for table in fields["ids"] for name in names.get(table, ())}
        return any(map(self._options.wants, said))

    def _known_names(self) -> Mapping[str, frozenset[str]]:
        """Which names each table has had."""
        history = self._directory.history
        messages = [
            *history.ddls.values(),
            *(each for versions in history.schemas.values() for each in versions.values()),
        ]
        if self._names[0] != len(messages):
            names: dict[str, set[str]] = defaultdict(set)
            for message in messages:
                names[message.table].update(message.names)
            self._names = len(messages), {table: frozenset(found) for table, found in names.items() if table}
        return self._names[1]

    def _oldest(self) -> Position | None:
        """Where the changefeed began. A view may be described before everything."""
        known = (at for versions in self._directory.history.schemas.values() for at in versions)
        oldest = min((at for at in known if at != NO_PLACE), default=None)
        return None if oldest is None else position_of(oldest)

    def _rows(self, plan: RoundPlan) -> Iterator[tuple[str, float]]:
        from pyspark_sluice.arrow_rows import positions_of_file  # noqa: PLC0415 - only limits need it

        for file, spans in plan.files.values():
            places = positions_of_file(file.name, checked(self._store, file), spans)
            yield from ((pos, file.bytes / max(1, file.rows)) for pos in places)
