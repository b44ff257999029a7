"""`FeedReader`: the port of readers of messages, with what they find (`StoredMessage`, `Watermark`) and show (`Shown`), in one order. Pure.

At one position the order is

    what empties a table              `CopyBegins`     the schema of a table that begins     DDL     changes     copied documents     `Copied`

A copied document stands at the time at which it was read, among the table's changes. Changes before it may not fit the document, or find
none: the copy has their effect. `Copied` says from where on each change fits.

    schema u1 @100     change 7 @100.5, fits nothing     copied 7 @101     Copied u1 @101     change 7 @102
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from json.encoder import encode_basestring
from typing import Any, NamedTuple, Protocol, TypeAlias

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from sluice_client.cluster_time import ClusterTime
from sluice_client.extended_json import NoJson, to_json
from sluice_client.extended_json_parser import bson_of, members_of
from sluice_client.feed_errors import PermanentError
from sluice_client.pos import pos_of, position_of
from sluice_client.position import Position, TableId

VERSION = 1
"""Of the format of messages."""
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)
_OF_USERS = frozenset({"key", "before", "after", "update", "spec", "schema"})
_JSON_BEGINS = b'{"v"'
"""BSON begins with its size: these four bytes would be more than half a gigabyte."""


class MessageGap(PermanentError):
    """Messages between two positions are missing, though the owner said that everything is there."""

    code = "gap"


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """`raw` is the message as it is stored, without a line's end."""

    pos: str
    table: str
    raw: bytes

    @property
    def is_json(self) -> bool:
        return self.raw.startswith(_JSON_BEGINS)

    @property
    def fields(self) -> dict[str, Any]:
        """Documents of users are raw, so that their bytes are what was written."""
        return {name: _field(name, value) for name, value in self._parts.items()}

    @property
    def names(self) -> list[str]:
        """The tables that it names."""
        parts = self._parts
        return [parts[name] for name in ("ns", "to") if name in parts]

    @property
    def _parts(self) -> Mapping[str, Any]:
        """With documents as they are parsed."""
        return dict(members_of(self.raw)) if self.is_json else RawBSONDocument(self.raw, _RAW)

    @property
    def json(self) -> str:
        """As it would have been stored as JSON: documents of users are canonical, what is around them is plain."""
        return self.raw.decode() if self.is_json else _json(RawBSONDocument(self.raw, _RAW), to_json)

    @property
    def line(self) -> str:
        """What is shown of it: its JSON. A document that has none, for it has text that is not UTF-8, is {"$bson": "<base64>"}."""
        return self.raw.decode() if self.is_json else _json(RawBSONDocument(self.raw, _RAW), _shown)


def _field(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return RawBSONDocument(bson_of(value), _RAW) if name in _OF_USERS else dict(value)
    return dict(value) if isinstance(value, RawBSONDocument) and name not in _OF_USERS else value


def _json(fields: Mapping[str, Any], document: Callable[[bytes], str]) -> str:
    texts = (f"{encode_basestring(name)}: {_json_of(name, value, document)}" for name, value in fields.items())
    return f"{{{', '.join(texts)}}}"


def _json_of(name: str, value: Any, document: Callable[[bytes], str]) -> str:
    if isinstance(value, RawBSONDocument):
        return document(bytes(value.raw)) if name in _OF_USERS else _json(value, document)
    return json.dumps(value, ensure_ascii=False)


def _shown(document: bytes) -> str:
    try:
        return to_json(document)
    except NoJson:
        return f'{{"$bson": "{b64encode(document).decode()}"}}'


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

    def met(self, other: Watermark) -> Watermark:
        """What both say."""
        at = min(self.at, other.at)
        places = {table: min(self.of(table), other.of(table)) for table in self.behind.keys() | other.behind.keys()}
        return Watermark(at, {table: place for table, place in places.items() if place < at})

    def covers(self, other: Watermark) -> bool:
        """Whether it says all that the other one says."""
        return self.joined(other) == self

    def fields(self, feed: str) -> dict[str, Any]:
        """Of its message, in their order."""
        behind = {str(table): pos_of(place) for table, place in sorted(self.behind.items())} if self.behind else "all"
        return {"v": VERSION, "feed": feed, "op": "w", "pos": pos_of(self.at), "tables": behind}

    def message(self, feed: str) -> bytes:
        return json.dumps(self.fields(feed), ensure_ascii=False).encode()

    @classmethod
    def parse(cls, message: bytes | str) -> Watermark:
        return cls.of_fields(json.loads(message))

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> Watermark:
        behind = {} if fields["tables"] == "all" else fields["tables"]
        return cls(position_of(fields["pos"]), {TableId(table): position_of(pos) for table, pos in behind.items()})


NOTHING = Watermark(Position(ClusterTime(0, 0)))


@dataclass(frozen=True, slots=True)
class Copied:
    """The table's copy is complete: from here on it is as it was at the source."""

    table: TableId


@dataclass(frozen=True, slots=True)
class CopyBegins:
    """Up to `Copied`, changes of the table may not fit."""

    table: TableId


Content: TypeAlias = StoredMessage | CopyBegins | Copied


class DdlMessage(StrEnum):
    """The `type` of a message of DDL that begins, moves, ends or empties tables."""

    CREATE = "create"
    RENAME = "rename"
    DROP = "drop"
    DROP_DATABASE = "dropDatabase"
    EMPTIED = "recopy"
    """It is copied again."""


class Rank(IntEnum):
    EMPTIED = 0
    BEGINS = 1
    SCHEMA = 2
    DDL = 3
    ROW = 4
    COPIED = 5


class Shown(NamedTuple):
    """They come in the order of these fields; but for rows, no two are alike in the first three."""

    at: str
    rank: Rank
    table: str
    number: int
    content: Content


class Round(NamedTuple):
    """What stands between two watermarks."""

    before: Watermark
    now: Watermark


class FeedReader(Protocol):
    @property
    def mark(self) -> Watermark:
        """Everything before it was shown."""
        ...

    @property
    def bookmark(self) -> str:
        """From where another reader finds everything that was not shown yet. Opaque, and may be empty."""
        ...

    @property
    def more(self) -> bool:
        """The newest watermark that it has found is more than one round away."""
        ...

    def look(self) -> Round | None:
        """None if there is nothing new."""
        ...

    def read(self, round: Round) -> Iterator[Shown]:
        """A round that was read before shows the same, but for the ends of copies that are known only now."""
        ...

    def skim(self, mark: Watermark, bookmark: str) -> Iterator[Shown]:
        """Everything before the mark but rows and copies, for a reader that goes on there."""
        ...
