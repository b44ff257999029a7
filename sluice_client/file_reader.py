"""`Reader`: the messages of a changefeed in the order of its source, each once, from nothing but its files.

`look` finds the newest watermark; `read` gives everything between the last one and that, or raises `MessageGap`, in the order of `feed_reader.py`.

Memory holds what manifests say behind the mark, and of the
messages those whose windows overlap. What a round costs does not depend on how many there were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count, pairwise

from sluice_client.feed_directory import FeedDirectory
from sluice_client.feed_history import END
from sluice_client.feed_reader import NOTHING, Content, Rank, Round, Shown, Watermark
from sluice_client.manifest import FileSpans, Receipt, Span, chain
from sluice_client.pos import pos_after, pos_of, position_of
from sluice_client.position import Position, TableId


class Reader:
    def __init__(self, directory: FeedDirectory, after: Watermark | None = None) -> None:
        self._directory = directory
        self.mark = after or NOTHING
        """Everything before it was shown."""

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
        self._directory.mark()
        self._directory.look(_lowest(mark))
        yield from self.plan(Round(NOTHING, mark), rows=False).in_order(self._directory)
        self.passed(mark)

    def passed(self, mark: Watermark) -> None:
        """Everything before was shown."""
        self.mark = mark
        self._directory.history.passed(mark)
        for table in list(self._directory.ranges.keys() | self._directory.copies.keys()):
            self._directory.forget(table, mark.of(table))

    def plan(self, round: Round, *, rows: bool = True) -> RoundPlan:
        """What the round shows. `look` comes first."""
        self._directory.prove(round)
        before, now = round
        history, queue = self._directory.history, RoundPlan()
        for shown in history.shown(round) if rows else history.skimmed(round):
            queue.add(*shown[:3], shown.content)
        for id, lives in history.lives.items() if rows else ():
            table = TableId(id)
            start, end = before.of(table), now.of(table)
            for life in lives if id not in history.views else ():
                until = end if life.end == END else min(position_of(life.end), end)
                if until < start:
                    continue
                lived = max(position_of(life.begins[0]), start), until
                for span, files in chain(self._directory.ranges.get(table, ()), *lived):
                    queue.wait_for(files, table, Span(pos_of(span.start), pos_of(span.end)))
                for begin, over in pairwise((*life.begins, pos_of(until))):
                    self._add_copy(queue, table, begin, (max(begin, pos_of(start)), min(over, pos_of(until))))
        return queue

    def _add_copy(self, queue: RoundPlan, table: TableId, begin: str, span: tuple[str, str]) -> None:
        """Documents of the copy that began there, if one did. `span`: until the table was emptied again. What was read just before the beginning is
        of the beginning. Nothing of it may be there yet, or ever, if it is interrupted.
        """
        for copy in self._directory.copies.get(table, ()):
            at = max(begin, pos_after(copy.after))
            if pos_of(copy.start) == begin and span[0] <= at < span[1]:
                queue.wait_for(copy.files, table, Span(pos_after(copy.after), span[1], at))


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
