"""`golden_lines`: the messages of one history in each format that a consumer is named for. `make sinks` gives the recorded ones to the real consumers.

SLUICE_RECORD_MESSAGES=1 pytest tests/unit/sink/messages/test_golden_messages.py    after a wanted change; then `make sinks`
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import bson
from bson.int64 import Int64

from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.event import RowType
from sink.messages.formats import message_format
from sink.messages.kafka.topics import Topics
from sink.row import RowChange, RowDetails
from tests.unit.sink.messages.changes import AT, NAME, TABLE, change

Line: TypeAlias = dict[str, str | None]

RECORDED = Path(__file__).parent / "fixtures" / "messages"
GOLDEN: Mapping[str, tuple[str, bool]] = {
    "mongodb": ("format=mongodb", False),
    "mongodb-images": ("format=mongodb", True),
    "debezium": ("format=debezium", False),
    "debezium-images": ("format=debezium", True),
    "debezium-extended-images": ("format=debezium&json_mode=extended", True),
    "debezium-schemas": ("format=debezium&schemas=true", False),
    "debezium-schemas-images": ("format=debezium&schemas=true", True),
}
"""The options, and whether changes have images."""

FIRST: dict[str, Any] = {"_id": 1, "a": 1, "list": [1, 2, 3], "s": {"x": 1}}
COLOURED = {**FIRST, "color": "weiß"}
SHORTER = {"_id": 1, "list": [1], "s": {"x": 1, "y": 2}, "color": "weiß"}
LAST: list[dict[str, Any]] = [SHORTER, {"_id": 2, "copied": True}, {"_id": 1004, "whole": '\u0001 "quoted" \\'}]
"""What a consumer has in the end."""


def golden_lines(name: str) -> list[Line]:
    query, images = GOLDEN[name]
    options = KafkaSinkOptions.parse(f"kafka://b/shop?{query}")
    format, topic = message_format("orders", options.prefix, options.messages), Topics(options).of(NAME)
    copied = format.copied(TABLE, bson.encode({"_id": 2, "copied": True}), bson.encode({"_id": 2}), AT.ts)
    messages = [*copied, *(message for each in _changes(images=images) for message in format.change(each))]
    return [{"topic": topic, "key": _text(key), "value": _text(value)} for key, value, _ in messages]


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode()


def _changes(*, images: bool) -> Iterator[RowChange]:
    """As the oplog tells them: a new field is removed and set."""

    def seen(changed: RowChange, before: dict[str, Any] | None, after: dict[str, Any] | None) -> RowChange:
        wall, transaction = 1558965508123, ("cf94b33330c24190b3fc85411a83bf36", 7)
        if not images:
            return changed._replace(details=RowDetails(wall, transaction))
        was, becomes = (None if document is None else bson.encode(document) for document in (before, after))
        return changed._replace(details=RowDetails(wall, transaction, was, becomes, "both"))

    yield seen(change(RowType.INSERT, 1, document=FIRST), None, None)
    added = {"updatedFields": {"color": "weiß"}, "removedFields": ["color"], "truncatedArrays": []}
    yield seen(change(RowType.UPDATE, 1, update=added), FIRST, COLOURED)
    changed = {"updatedFields": {"s.y": 2}, "removedFields": ["s.y", "a"]}
    shorter = {"truncatedArrays": [{"field": "list", "newSize": 1}]} if images else {"truncatedArrays": []}
    yield seen(change(RowType.UPDATE, 1, update=changed | shorter), COLOURED, SHORTER)
    yield seen(change(RowType.INSERT, 1004, document={"_id": 1004, "n": Int64(5)}), None, None)
    yield seen(change(RowType.REPLACE, 1004, document=LAST[2]), {"_id": 1004, "n": Int64(5)}, None)
    yield seen(change(RowType.INSERT, 3, document={"_id": 3}), None, None)
    yield seen(change(RowType.DELETE, 3), {"_id": 3}, None)


def recorded(name: str) -> list[Line]:
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]


def record(name: str) -> None:
    RECORDED.mkdir(exist_ok=True)
    lines = (json.dumps(line, ensure_ascii=False) for line in golden_lines(name))
    (RECORDED / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
