"""`MessageOptions`: in which format an event sink writes its messages. Pure.

sluice     rows, DDL, watermarks and schemas, in one order that a consumer can prove; in JSON or BSON
debezium   the envelope of Debezium's connector for MongoDB, in JSON; `json_mode` is its `json.serialization.mode`
mongodb    change events as MongoDB's own connectors read them, in JSON or BSON
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
