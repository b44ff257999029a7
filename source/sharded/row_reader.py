"""`ShardRowReader`: the rows of one shard in a range of effective times, in that order, each once.

The range is [a, b), below `resolved`. A transaction across shards counts by its commit timestamp C, and its commit entry may stand at b or
beyond, up to `until` (`Prepares.until`). So the commits are looked up first:

    find [a, until)   commitTransaction, of these C in [a, b):          302.40, logged at 302.42
    find [a, b)       everything else, and at each C the operations of its prepare, found by prevOpTime

Left out is what is no write of a user to its owner: rows that a migration copies or cleans up (`fromMigrate`), and those of
`system.` collections, of which resharding fills one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, count
from typing import NamedTuple

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SourceUnsupported
from changefeed.table import TableId
from source.connection import Client
from source.errors import translated
from source.oplog.command_entry import CommandEntry, is_command
from source.oplog.find import entries, entry_at
from source.oplog.row_entry import UNKNOWN, made_entry, scan
from source.oplog.transaction import operations
from source.raw.bson_bytes import elements, fields_of
from source.raw.row_header import Header
from source.stream.events.raw_event import table_name

_FROM_MIGRATE = b"\x08fromMigrate\0\x01"
_ROWS = frozenset({b"insert", b"update", b"replace", b"delete"})
_MOST_ROWS = 2_000
_new = tuple.__new__
_COMMITS: Mapping[str, object] = {"op": "c", "o.commitTransaction": {"$exists": True}}


class ShardRow(NamedTuple):
    """`entry` has the effective time as its `ts`, and its index among the operations of the transaction as its place."""

    time: int
    """The effective time, as a number: millions of rows are compared."""
    shard: str
    header: Header
    entry: bytes

    @property
    def ts(self) -> ClusterTime:
        return ClusterTime.from_int(self.time)

    @property
    def uuid(self) -> TableId:
        return TableId(self.header.uuid.hex())


@dataclass(frozen=True, slots=True)
class RowRange:
    """Effective times [start_ts, end_ts), and where the last commit of one of them may stand."""

    start_ts: ClusterTime
    end_ts: ClusterTime
    until_ts: ClusterTime


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
        for rows in self.batches(range):
            yield from rows

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
                    yield list(self._in_time(part, commits))
        while commits:
            yield list(self._committed(commits.pop()))

    def _in_time(self, part: list[bytes], commits: list[_Commit]) -> Iterator[ShardRow]:
        row = self._row
        for entry in part:
            if commits:
                ts = _ts_of(entry)
                while commits and commits[-1].ts < ts:
                    yield from self._committed(commits.pop())
            if is_command(entry):
                yield from self._rows(entry)
            elif (found := row(entry)) is not None:
                yield found

    def _commits(self, range: RowRange) -> list[_Commit]:
        """The latest first."""
        found: list[_Commit] = []
        with closing(entries(self._client, range.start_ts, range.until_ts, _COMMITS)) as replies:
            for raw in chain.from_iterable(replies):
                ts = _commit_ts(raw)
                if range.start_ts <= ts < range.end_ts:
                    found.append(_Commit(ts, CommandEntry.of(raw)))
        return sorted(found, key=lambda commit: (commit.ts, commit.entry.ts), reverse=True)

    def _rows(self, entry: bytes) -> Iterator[ShardRow]:
        command = CommandEntry.of(entry)
        if command.visible and not _is_commit(entry) and not _from_migrate(entry):
            yield from self._made(command, command.ts)

    def _committed(self, commit: _Commit) -> Iterator[ShardRow]:
        yield from self._made(commit.entry, commit.ts)

    def _made(self, command: CommandEntry, at_ts: ClusterTime) -> Iterator[ShardRow]:
        ts = at_ts.to_int().to_bytes(8, "little")
        for index, (operation, upserts) in enumerate(operations(partial(entry_at, self._client), command)):
            found = self._row(made_entry(operation, ts, index, upserts=upserts))
            if found is not None:
                yield found

    def _row(self, entry: bytes) -> ShardRow | None:
        """None: it is no write of a user to its owner."""
        header = scan(entry)
        type, time, _, ns, *_ = header
        if type in _ROWS:
            if _of_user(ns) and not (_FROM_MIGRATE in entry and _from_migrate(entry)):
                return _new(ShardRow, (time, self._shard, header, entry))
            return None
        if type.startswith(UNKNOWN):
            raise SourceUnsupported(
                f"shard {self._shard}: the oplog has an operation of unknown type {header.type.decode()!r} at {header.position}"
            )
        return None


@lru_cache(maxsize=10_000)
def _of_user(ns: bytes) -> bool:
    name = table_name(ns)
    return name is not None and not name.system


def _from_migrate(entry: bytes) -> bool:
    """A document may contain the bytes too."""
    return _FROM_MIGRATE in entry and fields_of(entry).get(b"fromMigrate") == _FROM_MIGRATE


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
