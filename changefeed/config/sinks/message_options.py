"""`MessageOptions`: in which format a sink of messages writes them; `SinkOption`: one option of a sink's URI, in the words of its users. Pure.

sluice     rows, DDL, watermarks and schemas, in one order that a consumer can prove; in JSON or BSON
debezium   the envelope of Debezium's connector for MongoDB, in JSON; `json_mode` is its `json.serialization.mode`
mongodb    change events as MongoDB's own connectors read them, in JSON or BSON

`Images` says whether messages have the documents as they were before and after each change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from changefeed.config.options import Mistake, did_you_mean, shown


class FormatName(StrEnum):
    SLUICE = "sluice"
    DEBEZIUM = "debezium"
    MONGODB = "mongodb"


class MessageEncoding(StrEnum):
    JSON = "json"
    BSON = "bson"


class JsonMode(StrEnum):
    LEGACY = "legacy"
    EXTENDED = "extended"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """`tombstones`: after a delete in `debezium`, a message with its key and no value, so that a compacted topic forgets the key."""

    format: FormatName = FormatName.SLUICE
    encoding: MessageEncoding = MessageEncoding.JSON
    json_mode: JsonMode = JsonMode.LEGACY
    tombstones: bool = True


class Images(StrEnum):
    NONE = "none"
    AVAILABLE = "available"
    """Where the source has them."""
    REQUIRED = "required"
    """A change without one stops its table."""


E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOption:
    name: str
    values: str
    default: str
    about: str


def one_of(kind: type[E], name: str) -> Callable[[str], E]:
    """Reads an option whose values are few."""

    def read(value: str) -> E:
        if value not in tuple(kind):
            raise Mistake(f"found {name}={value}; allowed are {', '.join(kind)}{did_you_mean(value, kind)}")
        return kind(value)

    return read


def refuse_unknown(name: str, allowed: Sequence[str]) -> None:
    if name not in allowed:
        raise Mistake(f"found the option {shown(name)}; allowed are {', '.join(allowed)}{did_you_mean(name, allowed)}")
