"""`FeedDirectory`: what is in the directory of a changefeed, read again with each look. A file that was read once is not read again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from functools import reduce

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.errors import NotFoundError
from changefeed.position import Position
from changefeed.table import TableId
from sink.messages.feed_reader import MessageGap, StoredMessage, Watermark
from sink.messages.files.data_files import decompressed, plain_name
from sink.messages.files.feed_log import FeedIdentity
from sink.messages.files.manifest import CHECKPOINT, COPIED, DDL, IDENTITY, LOG, SCHEMA, Manifest, schema_name
from sink.messages.files.store import Store
from sink.messages.message_key import position_of
from sink.receipt import Receipt

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)
_NEWEST_MARKS = 16


class FeedDirectory:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, str] = {}
        """The last manifest of each node that was read."""
        self._read: set[str] = set()
        """Of schemas and ends of copies."""
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
        for content in self._new(COPIED):
            fields = json.loads(content)
            self.copied.add((TableId(fields["id"]), position_of(fields["start"])))
        for content in self._new(SCHEMA):
            message = _parsed(content)
            self.schemas.setdefault(TableId(message.table), {})[position_of(message.pos)] = message

    def schema_at(self, table: TableId, recopy: StoredMessage) -> StoredMessage:
        """What the table is where this DDL says that it begins again. It was written before the DDL."""
        at = position_of(recopy.pos)
        found = self.schemas.get(table, {}).get(at)
        if found is None:
            raise MessageGap(
                f"{self._store}/{schema_name(table, at)}: expected this file, since {recopy.fields['ns']} begins again at {recopy.pos}; found none: "
                f"restore it"
            )
        return found

    def _new(self, part: str) -> Iterator[bytes]:
        """Of each table, what was not read yet."""
        for folder in self._store.names(part):
            for name in (f"{part}/{folder}/{each}" for each in self._store.names(f"{part}/{folder}")):
                if name not in self._read:
                    yield self._needed(name)
                    self._read.add(name)

    def messages(self, file: Receipt) -> Iterator[StoredMessage]:
        stored = self._needed(file.name)
        if len(stored) != file.bytes or zlib.crc32(stored) != file.crc32:
            raise MessageGap(
                f"{self._store}/{file.name}: expected {file.bytes} bytes with the checksum {file.crc32}, found {len(stored)} with "
                f"{zlib.crc32(stored)}; the file is damaged: restore it"
            )
        if file.name.endswith(".parquet"):
            return _of_parquet(stored)
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


def _of_parquet(stored: bytes) -> Iterator[StoredMessage]:
    from sink.messages.files.parquet import parquet_messages  # noqa: PLC0415 - pyarrow takes time and memory to load

    return (StoredMessage(message.pos, message.table, message.bson) for message in parquet_messages(stored))


def _documents(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        end = at + int.from_bytes(content[at : at + 4], "little")
        yield content[at:end]
        at = end
