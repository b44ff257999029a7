"""`FeedHistory`: what the topic of DDL says about the life of each table. Pure. It keeps all of it: a table costs a few messages.

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
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId, TableName
from sluice_client.feed_reader import Copied, CopyBegins, DdlMessage, MessageGap, Rank, Round, Shown, StoredMessage
from sluice_client.pos import pos_after, pos_of, position_of

_NO_PLACE = pos_of(Position(ClusterTime(0, 0)))
_END = "~"
"""Behind each pos."""


class FeedHistory:
    def __init__(self) -> None:
        self.names: dict[TableName, None] = {}
        """Those that tables with rows have had, in the order in which they were said."""
        self._start = ""
        """Where the changefeed begins."""
        self._ddls: dict[tuple[str, str, str], StoredMessage] = {}
        self._schemas: dict[str, dict[str, StoredMessage]] = defaultdict(dict)
        self._created: dict[str, str] = {}
        self._emptied: dict[str, set[str]] = defaultdict(set)
        self._ended: dict[str, set[str]] = defaultdict(set)
        self._anew: set[tuple[str, str]] = set()
        """Where tables were not just emptied, but began again."""
        self._copied: dict[str, dict[str, str]] = defaultdict(dict)
        self._shown: set[tuple[str, str]] = set()
        """The copies whose ends were shown."""

    def begin(self, pos: str) -> None:
        """The changefeed begins there, or later. What a begin at an earlier place has said of tables, which failed, does not count."""
        self._start = max(self._start, pos)
        for table, versions in list(self._schemas.items()):
            kept = {at: version for at, version in versions.items() if self._counts(version)}
            if kept:
                self._schemas[table] = kept
            else:
                del self._schemas[table]

    def _counts(self, version: StoredMessage) -> bool:
        """Views are also told at no place, beside a copy that begins."""
        return version.pos >= self._start or version.pos == _NO_PLACE

    def take(self, message: StoredMessage) -> None:
        """A repeat changes nothing."""
        fields, table = message.fields, message.table
        match fields["op"]:
            case "b" if self._counts(message):
                self._schemas[table].setdefault(message.pos, message)
                if fields["schema"]["kind"] != "view":
                    self._name(fields["ns"])
            case "c":
                self._copied[table][fields["start"]] = message.pos
            case "ddl":
                self._ddls.setdefault((message.pos, str(fields["type"]), table), message)
                self._take_ddl(fields, table, message.pos)

    def _take_ddl(self, fields: Mapping[str, Any], table: str, pos: str) -> None:
        match fields["type"]:
            case DdlMessage.CREATE if "viewOn" not in fields["spec"]:
                self._created[table] = pos
                self._name(fields["ns"])
            case DdlMessage.RENAME:
                self._name(fields["to"])
                if fields["dropped"]:
                    self._ended[fields["dropped"]].add(pos)
            case DdlMessage.DROP | DdlMessage.DROP_DATABASE:
                for ended in fields.get("ids", [table]):
                    self._ended[ended].add(pos)
            case DdlMessage.EMPTIED:
                self._emptied[table].add(pos)
                if fields.get("anew"):
                    self._anew.add((table, pos))

    def _name(self, text: str) -> None:
        self.names[TableName.parse(text)] = None

    def begins(self, table: str) -> list[str]:
        """Where it began, and where it was emptied."""
        start = self._created.get(table) or min(self._schemas.get(table, ()), default="")
        return sorted({start, *self._returns(table), *(self._emptied.get(table, ()))})

    def _returns(self, table: str) -> Iterator[str]:
        """Where it has come back after it had ended: the first schema after each end."""
        versions = sorted(self._schemas.get(table, ()))
        for end, until in pairwise([*sorted(self._ended.get(table, ())), _END]):
            yield from [at for at in versions if end < at < until][:1]

    def place_of_copy(self, table: str, pos: str) -> str:
        """Where a document stands that was copied there."""
        begun = [begin for begin in self.begins(table) if begin and just_before(begin) <= pos]
        return max(pos, begun[-1]) if begun else pos

    def ends_copy(self, table: str, version: str, at: str) -> bool:
        """Whether a copy of that version of the table has ended before the place of one of its documents: who read it did not know of that end yet."""
        ends = self._emptied.get(table, ()), self._ended.get(table, ())
        return any(version < end <= at for some in ends for end in some)

    def skimmed(self, round: Round) -> list[Shown]:
        """DDL and schemas."""
        return sorted(self._said(round))

    def shown(self, round: Round) -> list[Shown]:
        """Everything but rows, in order."""
        return sorted([*self._said(round), *self._copies(round)])

    def _said(self, round: Round) -> Iterator[Shown]:
        for number, ((pos, type, table), message) in enumerate(self._ddls.items()):
            if _within(round, pos, *([table] if table else message.fields["ids"])):
                yield Shown(pos, Rank.EMPTIED if type == DdlMessage.EMPTIED else Rank.DDL, table, number, message)
        for table, versions in self._schemas.items():
            firsts = {*self._returns(table), *(() if table in self._created else (min(versions),))}
            for first in firsts:
                if (table, first) not in self._anew and _within(round, first, table):
                    yield Shown(first, Rank.SCHEMA, table, 0, versions[first])
        for table, start in self._anew:
            if _within(round, start, table):
                yield Shown(start, Rank.SCHEMA, table, 0, self._schema_at(table, start))

    def _is_copied_from(self, table: str, begin: str) -> bool:
        """Whether a copy begins where the table began or was emptied."""
        schema = self._schemas.get(table, {}).get(begin)
        return begin in self._emptied.get(table, ()) or (schema is not None and "copy" in schema.fields)

    def _schema_at(self, table: str, start: str) -> StoredMessage:
        found = self._schemas.get(table, {}).get(start)
        if found is None:
            raise MessageGap(
                f"table {table}: expected its schema at {start} in the topic of DDL, since it begins again there; found none: some messages of that "
                f"topic were removed"
            )
        return found

    def _copies(self, round: Round) -> Iterator[Shown]:
        before, now = round
        for table in self._schemas.keys() | self._created.keys():
            id = TableId(table)
            first, last = pos_of(before.of(id)), pos_of(now.of(id))
            for begin, until in pairwise([*self.begins(table), _END]):
                if first <= begin < last and self._is_copied_from(table, begin):
                    yield Shown(begin, Rank.BEGINS, table, 0, CopyBegins(id))
                for start, end in self._copied.get(table, {}).items():
                    at = max(begin, first, end)
                    if begin <= start < until and at < min(until, last) and (table, start) not in self._shown:
                        self._shown.add((table, start))
                        yield Shown(at, Rank.COPIED, table, 0, Copied(id))


def _within(round: Round, pos: str, *tables: str) -> bool:
    """Tables that a dropDatabase ends come to it together."""
    before, now = (min(map(mark.of, map(TableId, tables)), default=mark.at) for mark in (round.before, round.now))
    return pos_of(before) <= pos < pos_of(now)


def just_before(begin: str) -> str:
    """The first place of documents that were copied for this begin."""
    return pos_after(position_of(begin).ts.previous())
