"""`judge`: whether messages keep what they promise, W1 to W4, without the product's code. It reads JSON lines, and the `pos` of marks.

    W1  the changes of a key are in the order of pos          W3  everything before a watermark is there: no change of a table twice, none late
    W2  no message twice, and no two with one pos             W4  rows before a DDL of their table are before it, the others after it

What a copy shows is left out of W1 and W2: its documents stand at the time at which they were read, and a chunk may be read again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.json_schema import violations

_SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs" / "reference" / "event-message.schema.json").read_text(encoding="utf-8")
)


def judge(messages: Sequence[dict[str, Any]], marks: Iterable[str]) -> list[str]:
    """The last message is a watermark. `marks`: those that the owner has written."""
    ddls = [message["pos"] for message in messages if message["op"] == "ddl"]
    disorder = [] if ddls == sorted(ddls) else ["W4: DDLs out of order"]
    return [*promises(messages, marks), *disorder, *forms(messages)]


def promises(messages: Sequence[dict[str, Any]], marks: Iterable[str]) -> list[str]:
    """As `judge`, whatever the messages look like, and where tables may be behind others: only the DDLs of one table are in order then."""
    *changes, last = messages
    return [*_order(changes), *_repeats(changes), *_ddls(changes), *_names(changes), *_marks(changes, last, marks)]


def forms(messages: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Each message is as its schema says."""
    for message in messages:
        yield from (f"schema: {violation}: {message}" for violation in violations(message, _SCHEMA, _SCHEMA))


def _order(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    last: dict[tuple[str, str], str] = {}
    for message in messages:
        if message["op"] in "iuRd":
            row = message["id"], json.dumps(message["key"])
            if message["pos"] <= last.get(row, ""):
                yield f"W1: {row} at {message['pos']} after {last[row]}"
            last[row] = message["pos"]


def _repeats(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    seen = Counter(message["pos"] for message in messages if message["op"] in "iuRd")
    yield from (f"W2: changes at {pos} {times} times" for pos, times in seen.items() if times > 1)


def _ddls(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    at: dict[str, str] = {}
    for message in messages:
        tables = [message["id"]] if message.get("id") else message.get("ids", [])
        for table in tables:
            if message["op"] == "ddl":
                if message["pos"] < at.get(table, ""):
                    yield f"W4: {table} has its DDL of {message['pos']} after that of {at[table]}"
                at[table] = message["pos"]
            elif message["op"] in "iuRd" and message["pos"] < at.get(table, ""):
                yield f"W4: {table} has a row of {message['pos']} after its DDL of {at[table]}"


def _names(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Each row has the name that its table has there."""
    names: dict[str, str] = {}
    for message in messages:
        kind, table = message.get("type"), message.get("id", "")
        if message["op"] == "b" or kind == "create":
            names[table] = message["ns"]
        elif kind == "rename":
            names[table] = message["to"]
            names.pop(message["dropped"] or "", None)
        elif kind == "drop":
            names.pop(table, None)
        elif "key" in message and names.get(table) != message["ns"]:
            yield f"W4: a row of {table} at {message['pos']} is in {message['ns']}, expected {names.get(table)}"


def _marks(changes: Sequence[dict[str, Any]], last: dict[str, Any], marks: Iterable[str]) -> Iterator[str]:
    if last["op"] != "w" or last["pos"] > max(marks, default=""):
        yield f"W3: {last} is not a watermark of the owner"
    if any(change["pos"] >= last["pos"] for change in changes):
        yield "W3: a message at or after the watermark"
