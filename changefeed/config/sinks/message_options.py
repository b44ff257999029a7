"""`MessageOptions`: in which format a sink of messages writes them; `SinkOption`: one option of a sink's URI, in the words of its users. Pure.

sluice     rows, DDL, watermarks and schemas, in one order that a consumer can prove; in JSON or BSON
debezium   the envelope of Debezium's connector for MongoDB, in JSON; `json_mode` is its `json.serialization.mode`
mongodb    change events as MongoDB's own connectors read them, in JSON or BSON

`Images` says whether messages have the documents as they were before and after each change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

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
    """`tombstones`: after a delete in `debezium`, a message with its key and no value, so that a compacted topic forgets the key. `schemas`: each
    message of `debezium` has its schema beside it, as Kafka Connect's converter of JSON reads it.
    """

    format: FormatName = FormatName.SLUICE
    encoding: MessageEncoding = MessageEncoding.JSON
    json_mode: JsonMode = JsonMode.LEGACY
    tombstones: bool = True
    schemas: bool = False


class Images(StrEnum):
    NONE = "none"
    AVAILABLE = "available"
    """Where the source has them."""
    REQUIRED = "required"
    """A change without one stops its table."""


@dataclass(frozen=True, slots=True)
class SinkOption:
    """One of a URI, as a user is told of it. `read`: what its value means; raises a `Mistake`."""

    name: str
    values: str
    default: str
    about: str
    read: Callable[[str], Any] = field(default=str, repr=False, compare=False)

    @classmethod
    def one_of(cls, name: str, kind: type[StrEnum], default: str, about: str) -> SinkOption:
        """Its values are few."""

        def read(value: str) -> StrEnum:
            if value not in tuple(kind):
                raise Mistake(f"found {name}={value}; allowed are {', '.join(kind)}{did_you_mean(value, kind)}")
            return kind(value)

        return cls(name, ", ".join(kind), default, about, read)


def refuse_unknown(name: str, allowed: Sequence[str]) -> None:
    if name not in allowed:
        raise Mistake(f"found the option {shown(name)}; allowed are {', '.join(allowed)}{did_you_mean(name, allowed)}")
