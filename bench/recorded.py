"""Raw replies as a MongoDB 8.0 server sends them to getMore on a change stream, to measure without any server."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import bson
from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

FIRST_SECOND = 1_700_000_000
EVENTS_A_SECOND = 20_000
TABLES = 20

Event = dict[str, Any]


def replies(
    kind: str, *, events: int, per_reply: int = 20_000, document_bytes: int = 200, seed: int = 1
) -> Iterator[bytes]:
    """`kind` is insert, update or mixed (of ten: five inserts, three updates, one replace, one delete)."""
    drawn = random.Random(seed)
    make = _KINDS[kind]
    for first in range(0, events, per_reply):
        numbers = range(first, min(first + per_reply, events))
        yield _reply([make(number, document_bytes, drawn) for number in numbers])


def _reply(batch: list[Event]) -> bytes:
    last = batch[-1]
    cursor = {"nextBatch": batch, "postBatchResumeToken": last["_id"], "id": Int64(7), "ns": "admin.$cmd.aggregate"}
    time = {"clusterTime": last["clusterTime"], "signature": {"hash": bytes(20), "keyId": Int64(0)}}
    return bson.encode({"cursor": cursor, "ok": 1.0, "$clusterTime": time, "operationTime": last["clusterTime"]})


def _head(operation: str, number: int, of: int) -> Event:
    """Of the event of that number, about the document `of` another or the same number."""
    seconds, increment = FIRST_SECOND + number // EVENTS_A_SECOND, number % EVENTS_A_SECOND + 1
    table = uuid.UUID(int=of % TABLES + 1)
    token = f"82{seconds:08X}{increment:08X}2B042C0100296E5A1004{table.hex.upper()}463C6F7065726174696F6E54797065003C"
    return {
        "_id": {
            "_data": f"{token}{operation.encode().hex().upper()}0046646F63756D656E744B65790046645F69640064{of:024X}000004"
        },
        "operationType": operation,
        "clusterTime": Timestamp(seconds, increment),
        "collectionUUID": Binary.from_uuid(table),
        "wallTime": datetime.fromtimestamp(seconds, UTC),
    }


def _tail(number: int) -> Event:
    return {"ns": {"db": "bench", "coll": f"table{number % TABLES:02}"}, "documentKey": {"_id": _id(number)}}


def _id(number: int) -> ObjectId:
    return ObjectId(f"{number:024x}")


def _document(number: int, size: int) -> Event:
    fields = {"_id": _id(number), "number": number, "at": datetime.fromtimestamp(FIRST_SECOND, UTC), "tags": ["a", "b"]}
    return {**fields, "filling": "x" * max(0, size - len(bson.encode({**fields, "filling": ""})))}


def _insert(number: int, size: int, _: random.Random) -> Event:
    return {**_head("insert", number, number), "fullDocument": _document(number, size), **_tail(number)}


def _replace(number: int, size: int, drawn: random.Random) -> Event:
    of = drawn.randrange(number + 1)
    return {**_head("replace", number, of), "fullDocument": _document(of, size), **_tail(of)}


def _update(number: int, _: int, drawn: random.Random) -> Event:
    change = {"updatedFields": {"number": number, "state.seen": True}, "removedFields": [], "truncatedArrays": []}
    of = drawn.randrange(number + 1)
    return {**_head("update", number, of), **_tail(of), "updateDescription": change}


def _delete(number: int, _: int, drawn: random.Random) -> Event:
    of = drawn.randrange(number + 1)
    return {**_head("delete", number, of), **_tail(of)}


_MIXTURE = (_insert, _update, _insert, _update, _insert, _replace, _insert, _update, _insert, _delete)


def _mixed(number: int, size: int, drawn: random.Random) -> Event:
    return _MIXTURE[number % len(_MIXTURE)](number, size, drawn)


_KINDS: dict[str, Callable[[int, int, random.Random], Event]] = {"insert": _insert, "update": _update, "mixed": _mixed}
