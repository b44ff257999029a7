"""`FeedHistory`: what DDL, schemas and ends of copies say about the life of each table. Pure. It keeps all of it: a table costs a few messages.

    b u1 @100                   the table begins, with this schema; if "copy", with a copy. Later `b`s of it say what DDL has said
                                One before the start of the changefeed is of a begin that failed: the table may have ended since
    ddl create u2 @105          the table begins
    ddl drop u1 @107            the table ends. A `b` after it: the table has come back, and begins again
    ddl emptied u1 @110         the table is empty, and copied again; if "anew", a b of this pos says what it is now
    c u1 @120, start 110        that copy is complete: changes from 120 on fit. Sent late, it counts from the watermark on

A copied document (`r`) stands where it was read, but not before the table's begin: what was read just before it is of the begin. Of a copy that has
ended before that place, by being emptied or by the table's end, it does not count: it may be another table's, which had got the name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sluice_client.cluster_time import ClusterTime
from sluice_client.feed_reader import (
    Copied,
    CopyBegins,
    DdlMessage,
    MessageGap,
    Rank,
    Round,
    Shown,
    StoredMessage,
    Watermark,
)
from sluice_client.pos import pos_after, pos_of, position_of
from sluice_client.position import Position, TableId

NO_PLACE = pos_of(Position(ClusterTime(0, 0)))
END = "~"
"""Behind each pos."""


@dataclass(frozen=True, slots=True)
class Life:
    """A table that leaves the changefeed and comes back, by renames or by its filter, has two. `begins`: where it began, and where it was emptied."""

    begins: tuple[str, ...]
    end: str
    created: bool
    """By a DDL. Otherwise its first schema says that it begins."""


class FeedHistory:
    def __init__(self, missing: Callable[[StoredMessage], str]) -> None:
        """`missing`: says that nothing tells what a table is that begins again by this DDL."""
        self._missing = missing
        self.names: dict[str, None] = {}
        """Those that tables with rows have had, in the order in which they were said."""
        self.ddls: dict[tuple[str, str, str], StoredMessage] = {}
        self.schemas: dict[str, dict[str, StoredMessage]] = defaultdict(dict)
        self.copied: dict[str, dict[str, str]] = defaultdict(dict)
        """From where on changes fit the copies that are complete, by where they began."""
        self.views: set[str] = set()
        """They have no rows."""
        self._ahead: dict[tuple[str, str, str], int] = {}
        """The DDLs that no round has passed yet, each with its number."""
        self._start = ""
        """Where the changefeed begins."""
        self._created: dict[str, str] = {}
        self._emptied: dict[str, set[str]] = defaultdict(set)
        self._ended: dict[str, set[str]] = defaultdict(set)
        self._anew: set[tuple[str, str]] = set()
        """Where tables were not just emptied, but began again."""
        self._shown: set[tuple[str, str]] = set()
        """The copies whose ends were shown."""
        self._lives: dict[str, list[Life]] = {}
        self._changed: set[str] = set()
        """Tables of which something was said that their lives do not have yet."""

    def begin(self, pos: str) -> None:
        """The changefeed begins there, or later. What a begin at an earlier place has said of tables, which failed, does not count."""
        self._start = max(self._start, pos)
        for table, versions in list(self.schemas.items()):
            kept = {at: version for at, version in versions.items() if self._counts(version)}
            if kept:
                self.schemas[table] = kept
            else:
                del self.schemas[table]
            self._changed.add(table)

    def _counts(self, version: StoredMessage) -> bool:
        """Views are also told at no place, beside a copy that begins."""
        return version.pos >= self._start or version.pos == NO_PLACE

    def take(self, message: StoredMessage) -> None:
        """A repeat changes nothing."""
        fields, table = message.fields, message.table
        self._changed.add(table)
        match fields["op"]:
            case "b" if self._counts(message):
                self.schemas[table].setdefault(message.pos, message)
                if fields["schema"]["kind"] != "view":
                    self.names[fields["ns"]] = None
                else:
                    self.views.add(table)
            case "c":
                self.copied[table][fields["start"]] = message.pos
            case "ddl":
                key = message.pos, str(fields["type"]), table
                if key not in self.ddls:
                    self._ahead[key] = len(self.ddls)
                    self.ddls[key] = message
                self._take_ddl(fields, table, message.pos)

    def _take_ddl(self, fields: Mapping[str, Any], table: str, pos: str) -> None:
        match fields["type"]:
            case DdlMessage.CREATE if "viewOn" not in fields["spec"]:
                self._created[table] = pos
                self.names[fields["ns"]] = None
            case DdlMessage.RENAME:
                self.names[fields["to"]] = None
                if fields["dropped"]:
                    self._end(fields["dropped"], pos)
            case DdlMessage.DROP | DdlMessage.DROP_DATABASE:
                for ended in fields.get("ids", [table]):
                    self._end(ended, pos)
            case DdlMessage.EMPTIED:
                self._emptied[table].add(pos)
                if fields.get("anew"):
                    self._anew.add((table, pos))

    def _end(self, table: str, pos: str) -> None:
        self._ended[table].add(pos)
        self._changed.add(table)

    @property
    def lives(self) -> Mapping[str, list[Life]]:
        """Of each table, in order. A table that is not created is described where it begins, before a watermark passes that."""
        for table in self._changed:
            self._lives[table] = list(self._lives_of(table))
        self._changed.clear()
        return self._lives

    def _lives_of(self, table: str) -> Iterator[Life]:
        created, versions = self._created.get(table), sorted(self.schemas.get(table, ()))
        emptied = sorted(self._emptied.get(table, ()))
        for after, end in pairwise(["", *sorted(self._ended.get(table, ())), END]):
            was_created = created is not None and after < created <= end
            start = created if was_created else next((at for at in versions if after < at <= end), None)
            if start is not None:
                restarts = (at for at in emptied if after < at <= end)
                yield Life(tuple(dict.fromkeys((start, *restarts))), end, was_created)

    def begins(self, table: str) -> list[str]:
        """Where it began, and where it was emptied."""
        return [begin for life in self.lives.get(table, ()) for begin in life.begins]

    def place_of_copy(self, table: str, pos: str) -> str:
        """Where a document stands that was copied there."""
        begun = [begin for begin in self.begins(table) if just_before(begin) <= pos]
        return max(pos, begun[-1]) if begun else pos

    def ends_copy(self, table: str, version: str, at: str) -> bool:
        """Whether a copy of that version of the table has ended before the place of one of its documents: who read it did not know of that end yet."""
        ends = self._emptied.get(table, ()), self._ended.get(table, ())
        return any(version < end <= at for some in ends for end in some)

    def passed(self, mark: Watermark) -> None:
        """No later round asks for what is before it."""
        for pos, type, table in list(self._ahead):
            if pos < pos_of(_at(mark, self._about((pos, type, table)))):
                del self._ahead[pos, type, table]

    def _about(self, ddl: tuple[str, str, str]) -> list[str]:
        """Tables that a dropDatabase ends come to it together."""
        return [ddl[2]] if ddl[2] else self.ddls[ddl].fields["ids"]

    def skimmed(self, round: Round) -> list[Shown]:
        """DDL and schemas."""
        return sorted(self._said(round))

    def shown(self, round: Round) -> list[Shown]:
        """Everything but rows, in order."""
        return sorted([*self._said(round), *self._copies(round)])

    def _said(self, round: Round) -> Iterator[Shown]:
        for (pos, type, table), number in self._ahead.items():
            message, about = self.ddls[pos, type, table], self._about((pos, type, table))
            if _within(round, pos, about):
                rank = Rank.EMPTIED if type == DdlMessage.EMPTIED else Rank.DDL
                yield Shown(pos, rank, next(iter(about), ""), number, message)
                if (table, pos) in self._anew:
                    yield Shown(pos, Rank.SCHEMA, table, 0, self._schema_at(table, message))
        for table, lives in self.lives.items():
            for life in lives:
                first = life.begins[0]
                if not life.created and (table, first) not in self._anew and _within(round, first, [table]):
                    yield Shown(first, Rank.SCHEMA, table, 0, self.schemas[table][first])

    def _schema_at(self, table: str, begins: StoredMessage) -> StoredMessage:
        """What the table is where this DDL says that it begins again. It was said before the DDL."""
        if (found := self.schemas.get(table, {}).get(begins.pos)) is None:
            raise MessageGap(self._missing(begins))
        return found

    def _copies(self, round: Round) -> Iterator[Shown]:
        for table, lives in self.lives.items():
            id = TableId(table)
            first, last = pos_of(round.before.of(id)), pos_of(round.now.of(id))
            for begin, until in (each for life in lives for each in pairwise((*life.begins, life.end))):
                if first <= begin < last and self._is_copied_from(table, begin):
                    yield Shown(begin, Rank.BEGINS, table, 0, CopyBegins(id))
                for start, end in self.copied.get(table, {}).items():
                    at = max(begin, first, end)
                    if begin <= start < until and at < min(until, last) and (table, start) not in self._shown:
                        self._shown.add((table, start))
                        yield Shown(at, Rank.COPIED, table, 0, Copied(id))

    def _is_copied_from(self, table: str, begin: str) -> bool:
        """Whether a copy begins where the table began or was emptied."""
        schema = self.schemas.get(table, {}).get(begin)
        return begin in self._emptied.get(table, ()) or (schema is not None and "copy" in schema.fields)


def _within(round: Round, pos: str, tables: Iterable[str]) -> bool:
    return pos_of(_at(round.before, tables)) <= pos < pos_of(_at(round.now, tables))


def _at(mark: Watermark, tables: Iterable[str]) -> Position:
    """To where all of them have come."""
    return min(map(mark.of, map(TableId, tables)), default=mark.at)


def just_before(begin: str) -> str:
    """The first place of documents that were copied for this begin."""
    return pos_after(position_of(begin).ts.previous())
