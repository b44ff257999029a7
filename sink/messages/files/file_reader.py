"""`Reader`: the messages of a changefeed in the order of its source, each once, from nothing but its files.

`look` finds the newest watermark; `read` gives everything between the last one and that, or raises `MessageGap`, in the order of `shown.py`.

Where a table was emptied or dropped, what is missing before that does not matter. Memory holds the manifests, and of the messages those
whose windows overlap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import Any, NamedTuple

from changefeed.position import Position, Window
from changefeed.table import TableId
from sink.messages.feed_reader import NOTHING, Content, Copied, CopyBegins, Rank, Round, Shown, StoredMessage, Watermark
from sink.messages.files.feed_directory import FeedDirectory
from sink.messages.files.manifest import Manifest, chain
from sink.messages.message_key import pos_after, pos_of, position_of
from sink.receipt import CopyReceipt, Receipt


class _Span(NamedTuple):
    """A file shows messages of a table from `start` to before `end`; all of them at `at` or after it."""

    start: str
    end: str
    at: str = ""


@dataclass(frozen=True, slots=True)
class _Ddl:
    at: Position
    type: str
    tables: tuple[TableId, ...]
    """Created, emptied or ended by it."""
    about: tuple[TableId, ...]
    """Its table, if it is about one."""
    message: StoredMessage

    @property
    def anew(self) -> bool:
        """Its table begins again: with a schema, and a copy."""
        return self.type == "recopy" and bool(self.message.fields.get("anew"))


@dataclass(frozen=True, slots=True)
class _Life:
    """What is known about one table. `restarts`: where it was emptied. `anew`: where it began again.

    A table that leaves the changefeed and comes back, by renames or by its filter, has two lives.
    """

    start: Position
    restarts: tuple[Position, ...]
    anew: frozenset[Position]
    end: Position | None
    schema: StoredMessage | None

    @property
    def view(self) -> bool:
        """It has no rows."""
        return self.schema is not None and self.schema.fields["schema"]["kind"] == "view"

    def copied_from(self, begin: Position) -> bool:
        """Whether a copy begins there, where the table began or was emptied."""
        return begin != self.start or begin in self.anew or (self.schema is not None and "copy" in self.schema.fields)


class Reader:
    def __init__(self, directory: FeedDirectory, after: Watermark | None = None) -> None:
        self._directory = directory
        self.mark = after or NOTHING
        """Everything before it was shown."""
        self._copied: set[tuple[TableId, Position]] = set()
        """The copies whose ends were shown."""

    def look(self) -> Round | None:
        """None if there is nothing new."""
        mark = self._directory.mark()
        self._directory.look()
        if mark is None or (now := self.mark.joined(mark)) == self.mark:
            return None
        return Round(self.mark, now)

    def read(self, round: Round) -> Iterator[Shown]:
        yield from self._queue(round, rows=True).in_order()
        self.mark = round.now

    @property
    def bookmark(self) -> str:
        """A directory is listed from its beginning."""
        return ""

    @property
    def more(self) -> bool:
        """A round goes up to the newest watermark."""
        return False

    def skim(self, mark: Watermark, bookmark: str = "") -> Iterator[Shown]:  # noqa: ARG002 - it has none
        self._directory.look()
        yield from self._queue(Round(NOTHING, mark), rows=False).in_order()
        self.mark = mark

    def _queue(self, round: Round, *, rows: bool) -> _Queue:
        before, now = round
        queue = _Queue(self._directory)
        ddls = [_ddl(message) for message in self._directory.ddls.values()]
        for ddl in ddls:
            table = next(iter(ddl.about), TableId(""))
            if before.of(table) <= ddl.at < now.of(table):
                queue.add(ddl.message.pos, Rank.RECOPY if ddl.type == "recopy" else Rank.DDL, table, ddl.message)
                if ddl.anew:
                    version = self._directory.schema_at(table, ddl.message)
                    queue.add(version.pos, Rank.SCHEMA, table, version)
        ranges = _ranges(self._directory.manifests)
        for table, life in self._lives(ddls):
            start, end = before.of(table), now.of(table)
            if life.schema is not None and life.start not in life.anew and start <= life.start < end:
                queue.add(life.schema.pos, Rank.SCHEMA, table, life.schema)
            if life.view or not rows:
                continue
            for span, manifest in _shown(table, life, ranges[table], Window(start, end)):
                queue.wait_for(manifest.files, table, _Span(pos_of(span.start), pos_of(span.end)))
            for begin, until in pairwise((life.start, *life.restarts, life.end or end)):
                self._add_copy(queue, table, life, begin, (pos_of(max(begin, start)), pos_of(min(until, end))))
        return queue

    def _add_copy(self, queue: _Queue, table: TableId, life: _Life, begin: Position, span: tuple[str, str]) -> None:
        """The copy that began there, if one did. `span`: until the table was emptied again. What was read just before the beginning is of the
        beginning. Nothing of it may be there yet, or ever, if it is interrupted.
        """
        if span[0] >= span[1]:
            return
        first = pos_of(begin)
        copies = {copy: max(first, pos_after(copy.after)) for copy in self._copies(table) if copy.start == begin}
        if first == span[0] and life.copied_from(begin):
            queue.add(first, Rank.BEGINS, table, CopyBegins(table))
        for copy, at in copies.items():
            if span[0] <= at < span[1]:
                queue.wait_for(copy.files, table, _Span(pos_after(copy.after), span[1], at))
        over = max((max(first, pos_after(copy.until)) for copy in copies), default="")
        copy_of = table, begin
        if copies and over < span[1] and copy_of in self._directory.copied and copy_of not in self._copied:
            self._copied.add(copy_of)
            queue.add(max(over, span[0]), Rank.COPIED, table, Copied(table))

    def _copies(self, table: TableId) -> Iterator[CopyReceipt]:
        return (copy for manifest in self._directory.manifests for copy in manifest.copies if copy.table == table)

    def _lives(self, ddls: Iterable[_Ddl]) -> Iterator[tuple[TableId, _Life]]:
        """A table that is not created is described where it begins, before a watermark passes that."""
        created: dict[TableId, Position] = {}
        ended: dict[TableId, list[Position]] = defaultdict(list)
        emptied: dict[TableId, list[Position]] = defaultdict(list)
        anew: dict[TableId, set[Position]] = defaultdict(set)
        for ddl in sorted(ddls, key=lambda each: each.at):
            for table in ddl.tables:
                match ddl.type:
                    case "create":
                        created[table] = ddl.at
                    case "recopy":
                        emptied[table].append(ddl.at)
                        anew[table] |= {ddl.at} if ddl.anew else set()
                    case _:
                        ended[table].append(ddl.at)
        for table in created.keys() | self._directory.schemas.keys():
            versions = self._directory.schemas.get(table, {})
            for after, end in pairwise((None, *ended[table], None)):
                within = partial(_within, after, end)
                was_created = table in created and within(created[table])
                start = created[table] if was_created else min(filter(within, versions), default=None)
                if start is not None:
                    schema, again = None if was_created else versions[start], frozenset(filter(within, anew[table]))
                    yield table, _Life(start, tuple(filter(within, emptied[table])), again, end, schema)


class _Queue:
    """Messages by their pos. A file is read when the messages before it are out."""

    def __init__(self, directory: FeedDirectory) -> None:
        self._directory = directory
        self._ready: list[Shown] = []
        self._files: dict[str, tuple[Receipt, dict[str, list[_Span]]]] = {}
        self._numbers = count()

    def add(self, at: str, rank: Rank, table: str, content: Content) -> None:
        heappush(self._ready, Shown(at, rank, table, next(self._numbers), content))

    def wait_for(self, files: Iterable[Receipt], table: TableId, span: _Span) -> None:
        for file in files:
            _, wanted = self._files.setdefault(file.name, (file, {}))
            wanted.setdefault(table, []).append(span)

    def in_order(self) -> Iterator[Shown]:
        waiting = [
            (min(max(span.start, span.at) for spans in wanted.values() for span in spans), name)
            for name, (_, wanted) in self._files.items()
        ]
        waiting.sort(reverse=True)
        while self._ready or waiting:
            while waiting and (not self._ready or waiting[-1][0] <= self._ready[0].at):
                file, wanted = self._files[waiting.pop()[1]]
                for message in self._directory.messages(file):
                    for span in wanted.get(message.table, ()):
                        if span.start <= message.pos < span.end:
                            self.add(max(message.pos, span.at), Rank.ROW, message.table, message)
                            break
            if self._ready:
                yield heappop(self._ready)


def _ranges(manifests: Iterable[Manifest]) -> defaultdict[TableId, list[tuple[Window, Manifest]]]:
    ranges: defaultdict[TableId, list[tuple[Window, Manifest]]] = defaultdict(list)
    for manifest in manifests:
        for table, window in manifest.ranges.items():
            ranges[table].append((window, manifest))
    return ranges


def _shown(
    table: TableId, life: _Life, ranges: list[tuple[Window, Manifest]], round: Window
) -> Iterator[tuple[Window, Manifest]]:
    """A table that is emptied or ends may have a gap before that."""
    bounds = [life.start, *life.restarts, life.end or round.end]
    for number, (begin, until) in enumerate(pairwise(bounds)):
        start, end = max(begin, round.start), min(until, round.end)
        if start < end:
            whole = number == len(bounds) - 2 and (life.end is None or life.end > round.end)
            yield from chain(table, ranges, start, end, whole=whole)


def _within(after: Position | None, end: Position | None, at: Position) -> bool:
    """After the end of the life before, and not after its own."""
    return (after is None or at > after) and (end is None or at <= end)


def _ddl(message: StoredMessage) -> _Ddl:
    fields: dict[str, Any] = message.fields
    kind, about = str(fields["type"]), str(fields.get("id"))
    ids: list[str] = []
    match kind:
        case "create":
            ids = [] if "viewOn" in fields["spec"] else [about]
        case "recopy" | "drop":
            ids = [about]
        case "rename":
            ids = [fields["dropped"]] if fields["dropped"] else []
        case "dropDatabase":
            ids = fields["ids"]
    return _Ddl(position_of(message.pos), kind, tuple(map(TableId, ids)), (TableId(about),), message)
