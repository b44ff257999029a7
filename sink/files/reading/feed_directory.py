"""`FeedDirectory`: what is in the directory of a changefeed, read again with each look. A file that was read once is not read again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import bson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.errors import NotFoundError
from changefeed.position import Position
from changefeed.table import TableId
from sink.events.message import watermark_message
from sink.events.pos import position_of
from sink.files.compression import decompressed, plain_name
from sink.files.identity import FeedIdentity
from sink.files.manifest import CHECKPOINT, COPIED, DDL, IDENTITY, LOG, SCHEMA, Manifest, table_of
from sink.files.reading.chain import MessageGap
from sink.files.stores.store import Store
from sink.receipt import Receipt

_JSON = json_util.CANONICAL_JSON_OPTIONS.with_options(datetime_conversion=DatetimeConversion.DATETIME_MS)
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)
_NEWEST_MARKS = 16


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """`raw` is the message as it is in its file, without the line's end."""

    pos: str
    table: str
    raw: bytes

    @property
    def fields(self) -> dict[str, Any]:
        """Dates are `DatetimeMS`."""
        if self.raw.startswith(b"{"):
            fields: dict[str, Any] = json_util.loads(self.raw, json_options=_JSON)
            return fields
        return bson.decode(self.raw, CodecOptions(dict, datetime_conversion=DatetimeConversion.DATETIME_MS))

    @property
    def names(self) -> list[str]:
        """The tables that it names."""
        fields = self.fields
        return [fields[name] for name in ("ns", "to") if name in fields]


@dataclass(frozen=True, slots=True)
class Watermark:
    """Everything before `at` is there; of the tables named, everything before their own positions."""

    at: Position
    behind: Mapping[TableId, Position] = field(default_factory=dict)

    def of(self, table: TableId) -> Position:
        return self.behind.get(table, self.at)

    def joined(self, other: Watermark) -> Watermark:
        """What both say together. A mark of an owner that has lost its term may come after newer ones."""
        at = max(self.at, other.at)
        places = {table: max(self.of(table), other.of(table)) for table in self.behind.keys() | other.behind.keys()}
        return Watermark(at, {table: place for table, place in places.items() if place < at})

    def message(self, feed: str) -> bytes:
        return watermark_message(feed, self.at, self.behind).json()

    @classmethod
    def parse(cls, message: bytes | str) -> Watermark:
        fields = json.loads(message)
        behind = {} if fields["tables"] == "all" else fields["tables"]
        return cls(position_of(fields["pos"]), {TableId(table): position_of(pos) for table, pos in behind.items()})


class FeedDirectory:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, str] = {}
        """The last manifest of each node that was read."""
        self.manifests: list[Manifest] = []
        self.ddls: dict[str, StoredMessage] = {}
        self.schemas: dict[TableId, dict[Position, StoredMessage]] = {}
        self.copied: set[tuple[TableId, Position]] = set()
        """The copies that are complete, each with where it began."""

    def identity(self) -> FeedIdentity:
        content = self._store.read(IDENTITY)
        if content is None:
            raise NotFoundError(
                f"{self._store}: expected {IDENTITY} of a changefeed, found none; no changefeed has written here yet"
            )
        fields = json.loads(content)
        return FeedIdentity(feed=fields["feed"], life=fields["life"])

    def mark(self) -> Watermark | None:
        """Read it before `look`."""
        marks = [self._store.read(f"{CHECKPOINT}/{name}") for name in self._store.names(CHECKPOINT)[-_NEWEST_MARKS:]]
        known = [Watermark.parse(mark) for mark in marks if mark is not None]
        return reduce(Watermark.joined, known) if known else None

    def look(self) -> None:
        for epoch in self._store.names(LOG):
            for name in self._store.names(f"{LOG}/{epoch}", after=self._seen.get(epoch, "")):
                self.manifests.append(Manifest.parse(self._needed(f"{LOG}/{epoch}/{name}")))
                self._seen[epoch] = name
        for name in self._store.names(DDL):
            if name not in self.ddls:
                self.ddls[name] = _parsed(self._needed(f"{DDL}/{name}"))
        for folder in self._store.names(COPIED):
            starts = self._store.names(f"{COPIED}/{folder}")
            self.copied |= {(table_of(folder), position_of(name.removesuffix(".json"))) for name in starts}
        for folder in self._store.names(SCHEMA):
            versions = self.schemas.setdefault(table_of(folder), {})
            for name in self._store.names(f"{SCHEMA}/{folder}"):
                at = position_of(name.removesuffix(".json"))
                if at not in versions:
                    versions[at] = _parsed(self._needed(f"{SCHEMA}/{folder}/{name}"))

    def messages(self, file: Receipt) -> Iterator[StoredMessage]:
        stored = self._needed(file.name)
        if len(stored) != file.bytes or zlib.crc32(stored) != file.crc32:
            raise MessageGap(
                f"{self._store}/{file.name}: expected {file.bytes} bytes with the checksum {file.crc32}, found {len(stored)} with "
                f"{zlib.crc32(stored)}; the file is damaged: restore it"
            )
        content = decompressed(stored, file.name)
        if plain_name(file.name).endswith(".json"):
            return map(_parsed, content.splitlines())
        return map(_decoded, _documents(content))

    def _needed(self, name: str) -> bytes:
        content = self._store.read(name)
        if content is None:
            raise MessageGap(
                f"{self._store}/{name}: expected this file, which another one names; found none: restore it"
            )
        return content


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
