"""`ShardRowReader`: the rows of one shard in a range of effective times, in that order, each once.

The range is [a, b), below `resolved`. A transaction across shards counts by its commit timestamp C, and its commit entry may stand at b or
beyond, up to `until` (`Prepares.until`). So the commits are looked up first:

    find [a, until)   commitTransaction, of these C in [a, b):          302.40, logged at 302.42
    find [a, b)       everything else, and at each C the operations of its prepare, found by prevOpTime

Entries come as they are, also those that are no write of a user to its owner (`ShardRow.of_user`): rows that a migration copies or cleans
up (`fromMigrate`), and those of `system.` collections, of which resharding fills one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, count, pairwise, repeat
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost
from changefeed.table import TableId
from source.connection import Client
from source.errors import translated
from source.oplog.command_entry import CommandEntry, is_command
from source.oplog.find import entries, entry_at
from source.oplog.row_entry import ROWS, made_entry, scan
from source.oplog.transaction import operations
from source.raw.bson_bytes import elements, fields_of
from source.raw.row_header import Header
from source.sharded.row_scan import from_migrate
from source.stream.events.raw_event import table_name

_MOST_ROWS = 2_000
_TS, _WALL, _PREVIOUS = b"\x11ts\0", b"\x09wall\0", b"\x03prevOpTime\0"
_UINT64: Callable[[bytes, int], tuple[int]] = Struct("<Q").unpack_from
_time = attrgetter("time")
_COMMITS: Mapping[str, object] = {"op": "c", "o.commitTransaction": {"$exists": True}}


class ShardRow(NamedTuple):
    """`entry` has the effective time as its `ts`, and its index among the operations of a transaction as its place. It may be no row.

    What it is, is seen where it is used: a header costs more than all of its way to there.
    """

    time: int
    """The effective time, as a number: millions of rows are compared."""
    shard: str
    entry: bytes

    @property
    def header(self) -> Header:
        return scan(self.entry)

    @property
    def ts(self) -> ClusterTime:
        return ClusterTime.from_int(self.time)

    @property
    def uuid(self) -> TableId:
        return TableId(self.header.uuid.hex())

    @property
    def of_user(self) -> bool:
        """Whether it is a write of a user to its owner."""
        header = self.header
        return header.type in ROWS and _of_user(header.ns) and not from_migrate(self.entry)


_new_row: Callable[[tuple[int, str, bytes]], ShardRow] = partial(tuple.__new__, ShardRow)


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
    """For one thread."""

    def __init__(self, client: Client, shard: str) -> None:
        self._client = client
        self._shard = shard

    def read(self, range: RowRange) -> Generator[ShardRow, None, None]:
        """Those of users."""
        for rows in self.batches(range):
            yield from (row for row in rows if row.of_user)

    def batches(self, range: RowRange) -> Generator[list[ShardRow], None, None]:
        """In lists of some megabytes. After an error, the range is read anew from an effective time of the caller's choice."""
        if range.start_ts >= range.end_ts:
            return
        with translated(f"reading rows of {self._shard}"):
            try:
                yield from self._read(range)
            except HistoryLost as error:
                raise HistoryLost(
                    f"shard {self._shard}: {error}; remove the changefeed and create it again with --start initial"
                ) from error

    def _read(self, range: RowRange) -> Iterator[list[ShardRow]]:
        commits = self._commits(range)
        with closing(entries(self._client, range.start_ts, range.end_ts, {})) as replies:
            for reply in replies:
                for begin in count(0, _MOST_ROWS):
                    part = reply[begin : begin + _MOST_ROWS]
                    if not part:
                        break
                    yield self._in_time(part, commits)
        while commits:
            yield list(self._committed(commits.pop()))

    def _in_time(self, part: list[bytes], commits: list[_Commit]) -> list[ShardRow]:
        times = times_of(part)
        rows = list(map(_new_row, zip(times, repeat(self._shard), part)))
        commands = [at for at, entry in enumerate(part) if is_command(entry)]
        if commands:
            ends = [*commands, len(rows)]
            split = [rows[: commands[0]], *(rows[at + 1 : end] for at, end in pairwise(ends))]
            rows = list(split[0])
            for at, following in zip(commands, split[1:], strict=True):
                rows += [*self._rows(part[at]), *following]
        while commits and commits[-1].ts.to_int() < times[-1]:
            commit = commits.pop()
            after = bisect_right(rows, commit.ts.to_int(), key=_time)
            rows[after:after] = self._committed(commit)
        return rows

    def _commits(self, range: RowRange) -> list[_Commit]:
        """The latest first."""
        if not range.commits:
            return []
        found: list[_Commit] = []
        with closing(entries(self._client, range.start_ts, range.until_ts, _COMMITS)) as replies:
            for raw in chain.from_iterable(replies):
                ts = _commit_ts(raw)
                if range.start_ts <= ts < range.end_ts:
                    found.append(_Commit(ts, CommandEntry.of(raw)))
        return sorted(found, key=lambda commit: (commit.ts, commit.entry.ts), reverse=True)

    def _rows(self, entry: bytes) -> Iterator[ShardRow]:
        command = CommandEntry.of(entry)
        if command.visible and not _is_commit(entry) and not from_migrate(entry):
            yield from self._made(command, command.ts)

    def _committed(self, commit: _Commit) -> Iterator[ShardRow]:
        yield from self._made(commit.entry, commit.ts)

    def _made(self, command: CommandEntry, at_ts: ClusterTime) -> Iterator[ShardRow]:
        time = at_ts.to_int()
        ts = time.to_bytes(8, "little")
        for index, (operation, upserts) in enumerate(operations(partial(entry_at, self._client), command)):
            yield ShardRow(time, self._shard, made_entry(operation, ts, index, upserts=upserts))


@lru_cache(maxsize=10_000)
def _of_user(ns: bytes) -> bool:
    name = table_name(ns)
    return name is not None and not name.system


def times_of(entries: list[bytes]) -> list[int]:
    """Usually the time has a fixed place before the end: `ts`, `t`, `v` and `wall` have fixed sizes, and so has what follows of a retryable write."""
    return [
        _UINT64(entry, len(entry) - 45)[0]
        if entry[-49:-45] == _TS and entry[-15:-9] == _WALL
        else _UINT64(entry, len(entry) - 85)[0]
        if entry[-89:-85] == _TS and entry[-55:-49] == _WALL and entry[-41:-29] == _PREVIOUS
        else _ts_of(entry).to_int()
        for entry in entries
    ]


def _ts_of(entry: bytes) -> ClusterTime:
    found = [entry[at:end] for name, _, at, end in elements(entry) if name == b"ts"]
    return ClusterTime.from_int(int.from_bytes(found[-1], "little"))


def _is_commit(entry: bytes) -> bool:
    return b"commitTransaction" in fields_of(fields_of(entry)[b"o"][3:])


def _commit_ts(entry: bytes) -> ClusterTime:
    o = fields_of(fields_of(entry)[b"o"][3:])
    if b"commitTimestamp" not in o:
        return _ts_of(entry)
    return ClusterTime.from_int(int.from_bytes(o[b"commitTimestamp"][-8:], "little"))
