"""`ShardRowReader`: the rows of one shard in a range of effective times, in that order, each once.

The range is [a, b), below `resolved`. A transaction across shards counts by its commit timestamp C, and its commit entry may stand at b or
beyond, up to `until` (`Prepares.until`). So the commits are looked up first:

    find [a, until)   commitTransaction, of these C in [a, b):          302.40, logged at 302.42
    find [a, b)       everything else, and at each C the operations of its prepare, found by prevOpTime

Entries come as they are, their headers with their places (`row_places.py`), also those that are no write of a user to its owner (`of_user` there): rows that a
migration copies or cleans up (`fromMigrate`), and those of `system.` collections, of which resharding fills one. Each is scanned here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost
from source.connection import Client
from source.errors import translated
from source.oplog.command_entry import CommandEntry
from source.oplog.find import MOST_ENTRIES, entries, entry_at, operations
from source.oplog.row_entry import about_command, made_entry
from source.raw_row import Header
from source.sharded.rows.merge import ShardRow, Stretch
from source.sharded.rows.row_places import RowPlaces
from source.sharded.rows.row_scan import from_migrate

_COMMAND = b"command"
_TYPE, _TIME, _TOKEN = map(itemgetter, range(3))
"""Of a header."""
_STRETCH = 1_000
"""Rows that are scanned, merged and taken together: their headers stay in the processor's cache meanwhile."""
_COMMITS: Mapping[str, object] = {"op": "c", "o.commitTransaction": {"$exists": True}}


@dataclass(frozen=True, slots=True)
class RowRange:
    """Effective times [start_ts, end_ts), and where the last commit of one of them may stand. `commits`: whether there may be any."""

    start_ts: ClusterTime
    end_ts: ClusterTime
    until_ts: ClusterTime
    commits: bool = True


@dataclass(frozen=True, slots=True)
class _Commit:
    ts: ClusterTime
    entry: CommandEntry


class ShardRowReader:
    """For one thread. Each entry has its effective time as its `ts`."""

    def __init__(
        self,
        client: Client,
        shard: str,
        scan: Callable[[tuple[bytes, bytes]], Callable[[bytes], Header]],
        *,
        shares_with: int = 1,
        about: bool = False,
    ) -> None:
        """`scan`: of places of rows alone, see `row_scan`. `about`: the operations of transactions say whose they are, and when they were written. `shares_with`: so many shards are read at a time, this one included, and have as many entries in memory as one."""
        self._client = client
        self._shard = shard
        self._about = about
        self._places = RowPlaces(shard)
        self._scan = scan(self._places.alone)
        self._most = max(MOST_ENTRIES // shares_with, _STRETCH)

    def read(self, range: RowRange) -> Generator[Stretch, None, None]:
        """In stretches of a thousand, or of a transaction. After an error, the range is read anew from an effective time of the caller's choice."""
        if range.start_ts >= range.end_ts:
            return
        with translated(f"reading rows of {self._shard}"):
            try:
                yield from self._read(range)
            except HistoryLost as error:
                raise HistoryLost(
                    f"shard {self._shard}: {error}; remove the changefeed and create it again with --start initial"
                ) from error

    def _read(self, range: RowRange) -> Iterator[Stretch]:
        commits = self._commits(range)
        with closing(entries(self._client, range.start_ts, range.end_ts, {}, most=self._most)) as replies:
            for reply in replies:
                for piece in _pieces(reply):
                    yield self._in_time(piece, commits)
        yield list(self._committed(commits, range.end_ts.to_int()))

    def _in_time(self, piece: list[bytes], commits: list[_Commit]) -> Stretch:
        headers = list(map(self._scan, piece))
        if _COMMAND not in map(_TYPE, headers) and not (commits and commits[-1].ts.to_int() <= headers[-1].time):
            return list(zip(map(_TIME, headers), map(_TOKEN, headers), piece, headers, strict=True))
        found: Stretch = []
        for entry, header in zip(piece, headers, strict=True):
            found += self._committed(commits, header.time)
            rows = [(entry, header)] if header.type != _COMMAND else self._operations(entry)
            while commits and commits[-1].ts.to_int() == header.time:
                rows += self._made(commits.pop())
            found += self._places.together(rows)
        return found

    def _committed(self, commits: list[_Commit], before: int) -> Iterator[ShardRow]:
        """What took effect before that time, where no entry stands."""
        while commits and commits[-1].ts.to_int() < before:
            at_ts, rows = commits[-1].ts, list[tuple[bytes, Header]]()
            while commits and commits[-1].ts == at_ts:
                rows += self._made(commits.pop())
            yield from self._places.together(rows)

    def _commits(self, range: RowRange) -> list[_Commit]:
        """The latest first."""
        if not range.commits:
            return []
        found: list[_Commit] = []
        with closing(entries(self._client, range.start_ts, range.until_ts, _COMMITS)) as replies:
            for raw in chain.from_iterable(replies):
                command = CommandEntry.of(raw)
                if command.commit_ts is not None and range.start_ts <= command.commit_ts < range.end_ts:
                    found.append(_Commit(command.commit_ts, command))
        return sorted(found, key=lambda commit: (commit.ts, commit.entry.ts), reverse=True)

    def _operations(self, entry: bytes) -> list[tuple[bytes, Header]]:
        command = CommandEntry.of(entry)
        if command.visible and command.commit_ts is None and not from_migrate(entry):
            return list(self._made(_Commit(command.ts, command)))
        return []

    def _made(self, commit: _Commit) -> Iterator[tuple[bytes, Header]]:
        ts, about = commit.ts.to_int().to_bytes(8, "little"), about_command(commit.entry.entry) if self._about else b""
        for index, (operation, upserts) in enumerate(operations(partial(entry_at, self._client), commit.entry)):
            entry = made_entry(operation, ts, index, upserts=upserts, about=about)
            yield entry, self._scan(entry)


def _pieces(reply: list[bytes]) -> Iterator[list[bytes]]:
    return (reply[at : at + _STRETCH] for at in range(0, len(reply), _STRETCH))
