"""Where a batch ends, and how its files are shared out. Pure.

A batch is what stands between two watermarks. `DdlStop` is where a query with ddl=stop ends. `whole_files` ends a batch where files end, as
long as the limits allow one; `within_files` ends it between two cluster times. So a transaction, whose changes have one time, is never divided,
and one that is more than the limit is a batch of its own.

    limit 100 rows     file a [1, 5) 60 rows     file b [1, 5) 30     file c [5, 9) 80        -> ends at 5
                       file a [1, 5) 900 rows: 40 at time 1, 50 at 2, 300 at 3, ..            -> ends before 3, then behind 3, ..

BatchLimits count what is read: a file from which another table takes all rows counts whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_sluice.reader_options import BatchLimits
from sluice_client.feed_errors import PermanentError
from sluice_client.feed_reader import DdlMessage, Rank, Shown, StoredMessage, Watermark
from sluice_client.manifest import FileSpans
from sluice_client.pos import position_of
from sluice_client.position import Position, TableId

_TIME = 16
"""Characters of a pos that are the cluster time."""
PARTITION_BYTES, PARTITION_ROWS, MOST_PARTITIONS = 32 << 20, 50_000, 256
_STOPS = frozenset(DdlMessage) - {DdlMessage.CREATE}


class DdlStop(PermanentError):
    """A query has come to a DDL, and everything before it was given."""

    code = "ddl_stop"


def up_to(before: Watermark, newest: Watermark, end: Position) -> Watermark:
    """The batch that begins at `before`, and ends there or at the newest watermark."""
    return before.joined(newest.met(Watermark(end)))


class FileCost(NamedTuple):
    """What a file adds to a batch that reaches beyond `start`; it has nothing behind `end`."""

    start: str
    end: str
    rows: int
    bytes: int


def cost_of(file: FileSpans) -> FileCost:
    spans = [span for spans in file.spans.values() for span in spans]
    starts = min(max(span.start, span.at) for span in spans)
    return FileCost(starts, max(span.at or span.end for span in spans), file.file.rows, file.file.bytes)


def whole_files(files: Sequence[FileCost], limits: BatchLimits) -> tuple[Position | None, Position | None]:
    """The last place where files end within the limits, if there is one, and the next one behind it, if there is one."""
    ends = sorted({_behind(file.end) for file in files})
    rows = size = count = done = 0
    waiting = sorted(files)
    last: Position | None = None
    for end in ends:
        while done < len(waiting) and waiting[done].start < _text(end):
            rows, size, count, done = rows + waiting[done].rows, size + waiting[done].bytes, count + 1, done + 1
        if _beyond(rows, limits.rows) or _beyond(size, limits.bytes) or _beyond(count, limits.files):
            return last, end
        last = end
    return last, None


def within_files(rows: Iterable[tuple[str, float]], limits: BatchLimits) -> Position | None:
    """The last place between two times within the limits, but behind the first time. None if all fit. `rows`: pos and bytes of each."""
    counts: dict[str, int] = defaultdict(int)
    sizes: dict[str, float] = defaultdict(float)
    for pos, size in rows:
        counts[pos[:_TIME]] += 1
        sizes[pos[:_TIME]] += size
    all_rows = all_bytes = 0.0
    last: str | None = None
    for time in sorted(counts):
        all_rows, all_bytes = all_rows + counts[time], all_bytes + sizes[time]
        if last is not None and (_beyond(all_rows, limits.rows) or _beyond(all_bytes, limits.bytes)):
            return _after_time(last)
        last = time
    return None


def _beyond(value: float, limit: int) -> bool:
    return bool(limit) and value > limit


def _text(end: Position) -> str:
    return f"{end.ts.to_int():016X}."


def _behind(pos: str) -> Position:
    """The first place at or behind this one that is between two times."""
    return _after_time(pos) if pos[_TIME + 1 : _TIME + 3] != "00" else position_of(pos)


def _after_time(pos: str) -> Position:
    return Position(position_of(f"{pos[:_TIME]}.00000000000000").ts.next())


@dataclass(frozen=True, slots=True)
class Stop:
    at: Position
    text: str
    """What the user is told there."""
    here: bool
    """Everything before it was given."""


def next_stop(ready: Iterable[Shown], before: Watermark, passed: Position | None) -> Stop | None:
    """The first DDL that ends, renames or empties a table. `passed`: up to which the user has seen them."""
    for shown in sorted(ready):
        message = shown.content
        if not isinstance(message, StoredMessage) or shown.rank not in (Rank.EMPTIED, Rank.DDL):
            continue
        fields, at = message.fields, position_of(shown.at)
        if fields["type"] in _STOPS and not (passed is not None and at <= passed):
            name = fields.get("ns") or fields.get("db")
            text = (
                f"{name}: {fields['type']} at {shown.at}; everything before it was given. Do what it asks for, and start the query again with "
                f".option('start', '{shown.at}')"
            )
            return Stop(at, text, here=before.of(TableId(shown.table)) >= at)
    return None


def shared_out(files: Mapping[str, FileSpans]) -> list[list[FileSpans]]:
    """Into partitions: few enough for a driver, of about one size. Rows that are like each other take few bytes, and as much time."""
    ordered = sorted(files.values(), key=lambda each: (cost_of(each).start, each.file.name))
    shares = [max(each.file.bytes / PARTITION_BYTES, each.file.rows / PARTITION_ROWS) for each in ordered]
    most = max(1.0, 2 * sum(shares) / MOST_PARTITIONS)
    parts: list[list[FileSpans]] = []
    size = most
    for each, share in zip(ordered, shares, strict=True):
        if size + share > most:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += share
    return parts


def by_table(files: Mapping[str, FileSpans]) -> dict[str, list[FileSpans]]:
    """What each table takes of each file."""
    found: dict[str, list[FileSpans]] = defaultdict(list)
    for each in sorted(files.values(), key=lambda each: (cost_of(each).start, each.file.name)):
        for table, spans in each.spans.items():
            found[table].append(FileSpans(each.file, {table: spans}))
    return found
