"""`Reader`: the messages of a changefeed in the order of its source, each once, from nothing but its files.

`look` finds the newest watermark; `read` gives everything between the last one and that, or raises `MessageGap`, in the order of `shown.py`.

Memory holds what manifests say behind the mark, and of the
messages those whose windows overlap. What a round costs does not depend on how many there were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import Any

from sluice_client.feed_directory import FeedDirectory
from sluice_client.feed_reader import (
    NOTHING,
    Content,
    Copied,
    CopyBegins,
    DdlMessage,
    Rank,
    Round,
    Shown,
    StoredMessage,
    Watermark,
)
from sluice_client.manifest import FileSpans, Receipt, Span, chain
from sluice_client.pos import pos_after, pos_of, position_of
from sluice_client.position import Position, TableId


@dataclass(frozen=True, slots=True)
class _Ddl:
    at: Position
    type: str
    tables: tuple[TableId, ...]
    """Created, emptied or ended by it."""
    about: tuple[TableId, ...]
    """Its table. Of a dropDatabase those that it ends, which come to it together."""
    message: StoredMessage

    def reached(self, mark: Watermark) -> bool:
        return self.at < min(map(mark.of, self.about), default=mark.at)

    @property
    def anew(self) -> bool:
        """Its table begins again: with a schema, and a copy."""
        return self.type == DdlMessage.EMPTIED and bool(self.message.fields.get("anew"))


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
        self._ddls: dict[str, _Ddl] = {}
        """By the names of their files."""
        self._unshown: set[str] = set()
        """Of these, those behind the mark."""
        self._lives: list[tuple[TableId, _Life]] = []
        self._known = (0, 0)
        """How many DDLs and schemas the lives are made of."""

    def look(self) -> Round | None:
        """None if there is nothing new."""
        mark = self._directory.mark()
        if mark is None or (now := self.mark.joined(mark)) == self.mark:
            return None
        self._directory.look(_lowest(self.mark))
        return Round(self.mark, now)

    def read(self, round: Round) -> Iterator[Shown]:
        yield from self.plan(round).in_order(self._directory)
        self.passed(round.now)

    @property
    def bookmark(self) -> str:
        """A directory is listed from its beginning."""
        return ""

    @property
    def more(self) -> bool:
        """A round goes up to the newest watermark."""
        return False

    def skim(self, mark: Watermark, bookmark: str = "") -> Iterator[Shown]:  # noqa: ARG002 - it has none
        self._directory.look(_lowest(mark))
        yield from self.plan(Round(NOTHING, mark), rows=False).in_order(self._directory)
        self.passed(mark)

    def passed(self, mark: Watermark) -> None:
        """Everything before was shown."""
        self.mark = mark
        self._unshown = {name for name in self._unshown if not self._ddls[name].reached(mark)}
        for table in list(self._directory.ranges.keys() | self._directory.copies.keys()):
            self._directory.forget(table, mark.of(table))

    def plan(self, round: Round, *, rows: bool = True) -> RoundPlan:
        """What the round shows. `look` comes first."""
        before, now = round
        queue = RoundPlan()
        self._learn()
        for ddl in map(self._ddls.__getitem__, self._unshown):
            table = ddl.about[0] if ddl.about else TableId("")
            if ddl.reached(now) and not ddl.reached(before):
                queue.add(
                    ddl.message.pos, Rank.EMPTIED if ddl.type == DdlMessage.EMPTIED else Rank.DDL, table, ddl.message
                )
                if ddl.anew:
                    version = self._directory.schema_at(table, ddl.message)
                    queue.add(version.pos, Rank.SCHEMA, table, version)
        for table, life in self._lives:
            start, end = before.of(table), now.of(table)
            if life.end is not None and life.end < start:
                continue
            if life.schema is not None and life.start not in life.anew and start <= life.start < end:
                queue.add(life.schema.pos, Rank.SCHEMA, table, life.schema)
            if life.view or not rows:
                continue
            lived = max(life.start, start), min(life.end or end, end)
            for span, files in chain(self._directory.ranges.get(table, ()), *lived):
                queue.wait_for(files, table, Span(pos_of(span.start), pos_of(span.end)))
            for begin, until in pairwise((life.start, *life.restarts, life.end or end)):
                self._add_copy(queue, table, life, begin, (pos_of(max(begin, start)), pos_of(min(until, end))))
        return queue

    def _add_copy(self, queue: RoundPlan, table: TableId, life: _Life, begin: Position, span: tuple[str, str]) -> None:
        """The copy that began there, if one did. `span`: until the table was emptied again. What was read just before the beginning is of the
        beginning. Nothing of it may be there yet, or ever, if it is interrupted.
        """
        if span[0] >= span[1]:
            return
        first = pos_of(begin)
        found = self._directory.copies.get(table, ())
        copies = {copy: max(first, pos_after(copy.after)) for copy in found if copy.start == begin}
        if first == span[0] and life.copied_from(begin):
            queue.add(first, Rank.BEGINS, table, CopyBegins(table))
        for copy, at in copies.items():
            if span[0] <= at < span[1]:
                queue.wait_for(copy.files, table, Span(pos_after(copy.after), span[1], at))
        over = max((pos_after(copy.until) for copy in copies), default=first)  # what is forgotten was before the span
        copy_of = table, begin
        if over < span[1] and copy_of in self._directory.copied and copy_of not in self._copied:
            self._copied.add(copy_of)
            queue.add(max(first, over, span[0]), Rank.COPIED, table, Copied(table))

    def _learn(self) -> None:
        """What DDLs and schemas say, if there are new ones."""
        known = len(self._directory.ddls), sum(map(len, self._directory.schemas.values()))
        if known == self._known:
            return
        for name in self._directory.ddls.keys() - self._ddls.keys():
            self._ddls[name] = _ddl(self._directory.ddls[name])
            self._unshown.add(name)
        self._lives, self._known = list(self._found_lives(self._ddls.values())), known

    def _found_lives(self, ddls: Iterable[_Ddl]) -> Iterator[tuple[TableId, _Life]]:
        """A table that is not created is described where it begins, before a watermark passes that."""
        created: dict[TableId, Position] = {}
        ended: dict[TableId, list[Position]] = defaultdict(list)
        emptied: dict[TableId, list[Position]] = defaultdict(list)
        anew: dict[TableId, set[Position]] = defaultdict(set)
        for ddl in sorted(ddls, key=lambda each: each.at):
            for table in ddl.tables:
                match ddl.type:
                    case DdlMessage.CREATE:
                        created[table] = ddl.at
                    case DdlMessage.EMPTIED:
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


class RoundPlan:
    """What stands between two watermarks: messages that are known, and which files have the others."""

    def __init__(self) -> None:
        self.ready: list[Shown] = []
        self.files: dict[str, FileSpans] = {}
        self._numbers = count()

    def add(self, at: str, rank: Rank, table: str, content: Content) -> None:
        heappush(self.ready, Shown(at, rank, table, next(self._numbers), content))

    def wait_for(self, files: Iterable[Receipt], table: TableId, span: Span) -> None:
        for file in files:
            self.files.setdefault(file.name, FileSpans(file, {})).spans.setdefault(table, []).append(span)

    def in_order(self, directory: FeedDirectory) -> Iterator[Shown]:
        """Messages by their pos. A file is read when the messages before it are out."""
        waiting = [
            (min(max(span.start, span.at) for spans in wanted.values() for span in spans), name)
            for name, (_, wanted) in self.files.items()
        ]
        waiting.sort(reverse=True)
        while self.ready or waiting:
            while waiting and (not self.ready or waiting[-1][0] <= self.ready[0].at):
                file, wanted = self.files[waiting.pop()[1]]
                for message in directory.messages(file):
                    for span in wanted.get(message.table, ()):
                        if span.start <= message.pos < span.end:
                            self.add(max(message.pos, span.at), Rank.ROW, message.table, message)
                            break
            if self.ready:
                yield heappop(self.ready)


def _lowest(mark: Watermark) -> Position:
    return min([mark.at, *mark.behind.values()])


def _within(after: Position | None, end: Position | None, at: Position) -> bool:
    """After the end of the life before, and not after its own."""
    return (after is None or at > after) and (end is None or at <= end)


def _ddl(message: StoredMessage) -> _Ddl:
    fields: dict[str, Any] = message.fields
    kind, about = str(fields["type"]), fields["ids"] if "ids" in fields else [str(fields.get("id"))]
    ids: list[str] = []
    match kind:
        case DdlMessage.CREATE:
            ids = [] if "viewOn" in fields["spec"] else about
        case DdlMessage.EMPTIED | DdlMessage.DROP | DdlMessage.DROP_DATABASE:
            ids = about
        case DdlMessage.RENAME:
            ids = [fields["dropped"]] if fields["dropped"] else []
    return _Ddl(position_of(message.pos), kind, tuple(map(TableId, ids)), tuple(map(TableId, about)), message)
