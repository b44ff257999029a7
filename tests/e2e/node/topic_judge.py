"""`judge_topics`: whether topics of the format `sluice` keep what they promise, W1 to W4, without the product's code. `rebuilt`: the rows that follow from them.

    W1  first sends of a key are in the order of pos, in one partition of a topic      W3  no first send before a mark comes behind it
    W2  a repeat has the same content as its first send                               W4  a DDL is in each partition of its topics, behind the
    rows before it and before the rows behind it; DDLs of a table are in order

What a copy shows is left out of W1 and W3: its documents stand at the time at which they were read, and a chunk may be read again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from bson import json_util

from tests.component.sink.kafka.seen import Seen
from tests.e2e.node.event_judge import forms

_CHANGES = "iuRd"


def judge_topics(messages: Sequence[Seen], ddls: Sequence[Seen], marks: Sequence[Seen]) -> list[str]:
    """`messages` are those of topics of rows, each partition in its order."""
    return [
        *_order(messages),
        *_repeats(messages),
        *_marks(messages),
        *_ddls(messages),
        *_present(messages, ddls),
        *_ddl_order(ddls),
        *forms(each.json for each in [*messages, *ddls, *marks]),
        *_compacted(marks),
    ]


def _op(message: Seen) -> str:
    return message.headers["sluice.op"]


def _pos(message: Seen) -> str:
    return message.headers["sluice.pos"]


def _row(message: Seen) -> tuple[str, bytes | None]:
    return message.headers["sluice.table"], message.key


def _order(messages: Sequence[Seen]) -> Iterator[str]:
    highest: dict[tuple[str, tuple[str, bytes | None]], str] = {}
    sent: set[tuple[str, tuple[str, bytes | None], str]] = set()
    places: dict[tuple[str, bytes | None], int] = {}
    for message in messages:
        if message.key is None or message.headers["sluice.v"] != "1":
            continue
        where = places.setdefault((message.topic, message.key), message.partition)
        if where != message.partition:
            yield f"W1: {message.topic} {message.key!r} is in the partitions {where} and {message.partition}"
        if _op(message) in _CHANGES:
            row = message.topic, _row(message)
            if (*row, _pos(message)) not in sent and _pos(message) <= highest.get(row, ""):
                yield f"W1: {row} at {_pos(message)} after {highest[row]}"
            sent.add((*row, _pos(message)))
            highest[row] = max(highest.get(row, ""), _pos(message))


def _repeats(messages: Sequence[Seen]) -> Iterator[str]:
    first: dict[tuple[tuple[str, bytes | None], str], bytes | None] = {}
    for message in messages:
        if (
            _op(message) in _CHANGES
            and first.setdefault((_row(message), _pos(message)), message.value) != message.value
        ):
            yield f"W2: {_row(message)} at {_pos(message)} has two contents"


def _marks(messages: Sequence[Seen]) -> Iterator[str]:
    marked: dict[tuple[str, int], dict[str, Any]] = {}
    sent: set[tuple[tuple[str, bytes | None], str]] = set()
    for message in messages:
        place = message.topic, message.partition
        if _op(message) == "w":
            if place not in marked or message.json["pos"] > marked[place]["pos"]:
                marked[place] = message.json
        elif _op(message) in _CHANGES:
            if (_row(message), _pos(message)) not in sent and place in marked:
                mark = marked[place]
                limit = mark["pos"] if mark["tables"] == "all" else mark["tables"].get(_row(message)[0], mark["pos"])
                if _pos(message) < limit:
                    yield f"W3: {_row(message)} at {_pos(message)} is behind the mark {limit} of {place}"
            sent.add((_row(message), _pos(message)))


def _tables(ddl: dict[str, Any]) -> list[str]:
    return [*([ddl["id"]] if ddl.get("id") else []), *ddl.get("ids", [])]


def _ddls(messages: Sequence[Seen]) -> Iterator[str]:
    """In each partition."""
    at: dict[tuple[str, int, str], str] = {}
    rows: dict[tuple[str, int, str], str] = {}
    sent: set[tuple[tuple[str, bytes | None], str]] = set()
    for message in messages:
        place = message.topic, message.partition
        if _op(message) == "ddl":
            for table in _tables(message.json):
                if _pos(message) > at.get((*place, table), ""):
                    at[*place, table] = _pos(message)
                    if rows.get((*place, table), "") > _pos(message):
                        yield f"W4: {table} has a row of {rows[*place, table]} before its DDL of {_pos(message)} in {place}"
        elif _op(message) in _CHANGES:
            table = _row(message)[0]
            if (_row(message), _pos(message)) not in sent and _pos(message) < at.get((*place, table), ""):
                yield f"W4: {table} has a row of {_pos(message)} behind its DDL of {at[*place, table]} in {place}"
            sent.add((_row(message), _pos(message)))
            rows[*place, table] = max(rows.get((*place, table), ""), _pos(message))


def _present(messages: Sequence[Seen], ddls: Sequence[Seen]) -> Iterator[str]:
    """Each DDL of a table that has rows is in each partition of its topics."""
    partitions: dict[str, set[int]] = defaultdict(set)
    places: dict[str, set[tuple[str, int]]] = defaultdict(set)
    with_rows: set[str] = set()
    for message in messages:
        partitions[message.topic].add(message.partition)
        if _op(message) == "ddl":
            places[_pos(message)].add((message.topic, message.partition))
        elif message.key is not None:
            with_rows.add(_row(message)[0])
    for message in ddls:
        topics = {topic for topic, _ in places[_pos(message)]}
        if _op(message) == "ddl" and not topics and with_rows & set(_tables(message.json)):
            yield f"W4: {message.json} is in no topic of rows"
        for topic in topics:
            missing = partitions[topic] - {number for name, number in places[_pos(message)] if name == topic}
            if missing:
                yield f"W4: {message.json} is not in the partitions {sorted(missing)} of {topic}"


def _ddl_order(ddls: Sequence[Seen]) -> Iterator[str]:
    """In the topic of all DDL, first sends of a table's are in order."""
    last: dict[str, str] = {}
    sent: set[tuple[str, str]] = set()
    for message in ddls:
        for table in _tables(message.json) if _op(message) == "ddl" else []:
            if (table, _pos(message)) not in sent and _pos(message) <= last.get(table, ""):
                yield f"W4: {table} has a DDL of {_pos(message)} behind that of {last[table]}"
            sent.add((table, _pos(message)))
            last[table] = max(last.get(table, ""), _pos(message))


def _compacted(marks: Sequence[Seen]) -> Iterator[str]:
    if any(mark.key is None for mark in marks):
        yield "W3: a mark without a key, which no compaction keeps"
    if not marks:
        yield "W3: no mark"


def rebuilt(messages: Sequence[Seen], ddls: Sequence[Seen]) -> dict[str, dict[str, Any]]:
    """By collection and `_id`: every message once, in the order of pos."""
    once = {
        (_pos(each), each.headers.get("sluice.table", ""), each.key or b"", _op(each)): each
        for each in [*messages, *ddls]
        if _op(each) in "iuRdr" or _op(each) in {"ddl", "b"}
    }
    tables: dict[str, dict[str, Any]] = defaultdict(dict)
    names: dict[str, str] = {}
    for _, message in sorted(once.items(), key=lambda item: (item[0][0], item[0][3] != "b")):
        fields = json_util.loads((message.value or b"").decode())
        kind, table = fields.get("type"), fields.get("id")
        if _op(message) == "b" or kind == "create":
            names.setdefault(table, fields["ns"])
        elif kind == "rename":
            names[table] = fields["to"]
            names.pop(fields["dropped"] or "", None)
        elif kind in {"drop", "dropDatabase"}:
            for ended in _tables(fields):
                names.pop(ended, None)
        elif kind == "recopy":
            tables[table].clear()
        elif kind is None:
            _apply(tables[table], fields)
    return {name.partition(".")[2]: tables[table] for table, name in names.items() if not table.startswith("view:")}


def _apply(rows: dict[str, Any], fields: dict[str, Any]) -> None:
    key = json.dumps(fields["key"]["_id"], default=str)
    if "after" in fields:
        rows[key] = fields["after"]
    elif fields["op"] == "d":
        rows.pop(key, None)
    elif key in rows:
        update = fields["update"]
        assert not update.keys() & {"truncate", "paths"}
        kept = {name: value for name, value in rows[key].items() if name not in update.get("unset", [])}
        rows[key] = {**kept, **update.get("set", {})}
