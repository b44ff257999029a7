"""`FeedDirectory`: what is in the directory of a changefeed, read again with each look. A file that was read once is not read again."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import chain
from typing import NamedTuple, TypeVar

import zstandard
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from sluice_client.feed_errors import NotFoundError
from sluice_client.feed_history import FeedHistory
from sluice_client.feed_reader import NOTHING, MessageGap, Round, StoredMessage, Watermark
from sluice_client.feed_store import FeedStore
from sluice_client.manifest import (
    CHECKPOINT,
    COPIED,
    DDL,
    GROUP,
    IDENTITY,
    LOG,
    SCHEMA,
    CopyReceipt,
    GroupSum,
    Manifest,
    Receipt,
    group_folder,
    manifest_name,
    names_from,
    number_name,
    number_of,
    schema_name,
)
from sluice_client.pos import pos_after, pos_of, position_of
from sluice_client.position import Position, TableId, Window

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)
_NEWEST_MARKS = 16

T = TypeVar("T")


class FeedLife(NamedTuple):
    """Whose files these are, since which start. A changefeed that is restarted has another life, and other files."""

    feed: str
    life: str


class _NodeLog:
    """The manifests of one node. The first look reads them from the sums, as far as there are some; later ones read what has come."""

    def __init__(self, epoch: str) -> None:
        self._epoch = epoch
        self._next: int | None = None
        self.ended = False

    def new(self, store: FeedStore, low: Position, count: int) -> Iterator[Manifest]:
        """Those that show something at `low` or later, and maybe others. `count`: so many there must be at least."""
        if self._next is None:
            sums = GroupSum.all_of(store.names(f"{LOG}/{self._epoch}"))
            self._next = 0
            while (found := sums.get(self._next // GROUP)) is not None:
                if found.until >= low.ts:
                    yield from _understood(store, found.name(self._epoch), _manifests)
                self._next += GROUP
                self.ended = found.ends
        while not self.ended:
            group, place = divmod(self._next, GROUP)
            listed = store.names(group_folder(self._epoch, group), after=number_name(self._next - 1) if place else "")
            until = max([min(count, (group + 1) * GROUP), *(number_of(name) + 1 for name in listed[-1:])])
            for number in range(self._next, until):
                manifest = _understood(store, manifest_name(self._epoch, number), Manifest.parse)
                self._next, self.ended = number + 1, manifest.sealed
                yield manifest
            if self._next < (group + 1) * GROUP:
                return


class FeedDirectory:
    """`ranges`, `copies`: what manifests say, by table. What is before a mark is forgotten once it was shown."""

    def __init__(self, store: FeedStore) -> None:
        self._store = store
        self._logs: dict[str, _NodeLog] = {}
        self._marks: dict[str, Watermark] = {}
        self._proven = NOTHING
        """What is there for sure: what marks said before the last look."""
        self._counts: dict[str, int] = {}
        self._ends = 0
        """On how many manifests of each node, and on how many ended logs, the marks rest."""
        self._read: set[str] = set()
        """Of schemas and ends of copies."""
        self.ranges: defaultdict[TableId, list[tuple[Window, tuple[Receipt, ...]]]] = defaultdict(list)
        self.copies: defaultdict[TableId, list[CopyReceipt]] = defaultdict(list)
        self.history = FeedHistory(self._missing)

    def identity(self) -> FeedLife:
        content = self._store.read(IDENTITY)
        if content is None:
            raise NotFoundError(
                f"{self._store}: expected {IDENTITY} of a changefeed, found none; no changefeed has written here yet"
            )
        return _understood(self._store, IDENTITY, _life, content)

    def mark(self) -> Watermark | None:
        """Read it before `look`, which finds everything that it rests on."""
        names = self._store.names(CHECKPOINT)[-_NEWEST_MARKS:]
        found = {name: self._marks.get(name) or self._parsed_mark(name) for name in names}
        self._marks = {name: mark for name, mark in found.items() if mark is not None}
        return reduce(Watermark.joined, self._marks.values()) if self._marks else None

    def _parsed_mark(self, name: str) -> Watermark | None:
        path = f"{CHECKPOINT}/{name}"
        content = self._store.read(path)
        return None if content is None else _understood(self._store, path, self._mark_of, content)

    def _mark_of(self, content: bytes) -> Watermark:
        fields = json.loads(content)
        self._counts |= {epoch: max(count, self._counts.get(epoch, 0)) for epoch, count in fields["logs"].items()}
        self._ends = max(self._ends, fields["ended"])
        return Watermark.of_fields(fields)

    def look(self, low: Position) -> None:
        """`low`: everything before was shown. A DDL, and the schema with which a table begins, are there before a mark passes them."""
        self._proven = reduce(Watermark.joined, self._marks.values(), NOTHING)
        complete = self._new(COPIED, "", _copy)  # a log that is read after this names all files of these copies
        for epoch in sorted({*self._store.names(LOG), *(epoch for epoch, count in self._counts.items() if count)}):
            log, count = self._logs.setdefault(epoch, _NodeLog(epoch)), self._counts.get(epoch, 0)
            for manifest in log.new(self._store, low, count):
                for table, window in manifest.ranges.items():
                    self.ranges[table].append((window, manifest.files))
                for copy in manifest.copies:
                    self.copies[copy.table].append(copy)
        if (ended := sum(log.ended for log in self._logs.values())) < self._ends:
            raise MessageGap(
                f"{self._store}/{LOG}: expected the logs of {self._ends} nodes that are gone, each up to its end, found {ended}; "
                f"folders there were removed: restore them"
            )
        after = names_from(low) if self.history.ddls or self.history.schemas else ""
        for message in chain(self._new(DDL, after, _parsed), self._new(SCHEMA, after, _parsed)):
            self.history.take(message)
        for table, start in complete:
            read_until = (pos_after(copy.until) for copy in self.copies.get(table, ()) if copy.start == start)
            self.history.copied[table][pos_of(start)] = max(read_until, default="")

    def prove(self, round: Round) -> None:
        """Who planned the round may have seen more: on a network file system a listing may be old, and files may have been removed."""
        if not round.before.joined(self._proven).covers(round.now):
            raise MessageGap(
                f"{self._store}/{CHECKPOINT}: expected a watermark at {pos_of(round.now.at)}, which was there before, found "
                f"{pos_of(self._proven.at)} as the newest; run it again when this machine sees all files, restore them, or begin anew"
            )

    def forget(self, table: TableId, before: Position) -> None:
        """What manifests say of the table until there."""
        if table in self.ranges:
            self.ranges[table] = [each for each in self.ranges[table] if each[0].end > before]
        if table in self.copies:
            self.copies[table] = [copy for copy in self.copies[table] if max(copy.start.ts, copy.until) >= before.ts]

    def _missing(self, begins: StoredMessage) -> str:
        file = schema_name(TableId(begins.table), position_of(begins.pos))
        return (
            f"{self._store}/{file}: expected this file, since {begins.fields['ns']} begins again at {begins.pos}; found none: "
            f"restore it"
        )

    def _new(self, part: str, after: str, parse: Callable[[bytes], T]) -> list[T]:
        """What was not read yet."""
        names = {f"{part}/{name}" for name in self._store.names(part, after=after)} - self._read
        new = [_understood(self._store, name, parse) for name in sorted(names)]
        self._read |= names
        return new

    def messages(self, file: Receipt) -> Iterator[StoredMessage]:
        return stored_messages(file.name, checked(self._store, file))


def checked(store: FeedStore, file: Receipt) -> bytes:
    """The file as its writer stored it."""
    stored = needed(store, file.name)
    if len(stored) != file.bytes or zlib.crc32(stored) != file.crc32:
        raise MessageGap(
            f"{store}/{file.name}: expected {file.bytes} bytes with the checksum {file.crc32}, found {len(stored)} with "
            f"{zlib.crc32(stored)}; the file is damaged: restore it"
        )
    return stored


def stored_messages(name: str, stored: bytes) -> Iterator[StoredMessage]:
    if name.endswith(".parquet"):
        from sluice_client.parquet_rows import parquet_messages  # noqa: PLC0415 - pyarrow takes time and memory to load

        return parquet_messages(stored)
    content = decompressed(stored, name)
    if name.removesuffix(".gz").removesuffix(".zst").endswith(".json"):
        return map(_parsed, content.splitlines())
    return map(_decoded, _documents(content))


def decompressed(stored: bytes, name: str) -> bytes:
    if name.endswith(".gz"):
        return gzip.decompress(stored)
    if name.endswith(".zst"):
        return zstandard.ZstdDecompressor().decompressobj().decompress(stored)
    return stored


def needed(store: FeedStore, name: str) -> bytes:
    content = store.read(name)
    if content is None:
        raise MessageGap(f"{store}/{name}: expected this file, which another one names; found none: restore it")
    return content


def _understood(store: FeedStore, name: str, parse: Callable[[bytes], T], content: bytes | None = None) -> T:
    """What the file says. `content`: what was read of it."""
    content = needed(store, name) if content is None else content
    try:
        return parse(content)
    except (ValueError, LookupError, TypeError) as error:
        raise MessageGap(f"{store}/{name}: {error}; the file is damaged: restore it") from error


def _life(content: bytes) -> FeedLife:
    fields = json.loads(content)
    return FeedLife(fields["feed"], fields["life"])


def _manifests(content: bytes) -> list[Manifest]:
    return [Manifest.parse(line) for line in content.splitlines()]


def _copy(content: bytes) -> tuple[TableId, Position]:
    fields = json.loads(content)
    return TableId(fields["id"]), position_of(fields["start"])


def _parsed(line: bytes) -> StoredMessage:
    fields = json.loads(line)
    return StoredMessage(fields["pos"], fields.get("id") or "", line)


def _decoded(raw: bytes) -> StoredMessage:
    fields = RawBSONDocument(raw, _RAW)
    return StoredMessage(fields["pos"], fields["id"], raw)


def _documents(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        end = at + int.from_bytes(content[at : at + 4], "little")
        yield content[at:end]
        at = end
