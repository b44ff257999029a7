"""Histories of few rows with few unique values, applied by several buckets in parallel."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

import bson
import pytest
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.position import Position, Window
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId, TableName, TableSchema
from coordination.etcd.protocol import EtcdConfig
from coordination.task_fence import Fence
from credentials.secret_files import SecretFiles
from processor.lanes.lanes import LaneJob
from processor.task.copied_ranges import CopiedRanges
from processor.task.job import JobContext, JobSpec, TableSet
from processor.task.rows.division import UNKNOWN, Components, UniqueValues, divide, divided_tables, linked
from schema_store.versions import SchemaVersions
from source.stream.change_event import scan

_BUCKETS = 3
Rows: TypeAlias = dict[int, dict[str, Any]]
Event: TypeAlias = tuple[int, dict[str, Any] | None, dict[str, Any] | None]
"""A row's `_id`, the row before, the row after."""


def _schema(name: str = "orders", **options: Any) -> TableSchema:
    return TableSchema(
        id=TableId(name.encode().hex()),
        name=TableName("shop", name),
        options=Document.of(options),
        indexes=(
            Document.of({"key": {"u": 1}, "name": "u_1", "unique": True, "sparse": True}),
            Document.of({"key": {"tags": 1, "of": 1}, "name": "tags_1_of_1", "unique": True}),
        ),
        valid_from=Position(ClusterTime(1, 0)),
    )


def _keys(row: dict[str, Any]) -> set[tuple[Any, ...]]:
    """The entries of a row in the server's two indexes."""
    tags = {("tags", tag, row.get("of")) for tag in row.get("tags") or [None]}
    return tags | {("u", row["u"])} if "u" in row else tags


def _is_free(rows: Rows, id_: int, row: dict[str, Any]) -> bool:
    return not any(_keys(row) & _keys(other) for other_id, other in rows.items() if other_id != id_)


_ROWS = st.builds(
    lambda tags, optional: {"tags": tags, **optional},
    st.lists(st.sampled_from("abcdef"), max_size=2, unique=True),
    st.fixed_dictionaries({}, optional={"u": st.sampled_from([1, 2, 3, 1.0, None]), "of": st.integers(0, 1)}),
)
_WISHES = st.lists(st.tuples(st.integers(0, 5), st.none() | _ROWS | _ROWS | _ROWS), min_size=20, max_size=50)


def _history(wishes: list[tuple[int, dict[str, Any] | None]]) -> tuple[list[Event], Rows, int]:
    """The events that the source accepts, the final rows, and the number of events before the window."""
    rows: Rows = {}
    events: list[Event] = []
    for id_, after in wishes:
        before = rows.get(id_)
        if after is None:
            if before is not None:
                del rows[id_]
                events.append((id_, before, None))
        elif _is_free(rows, id_, after):
            rows[id_] = after
            events.append((id_, before, after))
    return events, rows, len(events) // 3


def _bytes(event: Event, number: int, *, images: bool) -> bytes:
    id_, before, after = event
    kind = "insert" if before is None else "delete" if after is None else "replace"
    fields: dict[str, Any] = {"_id": {"_data": f"82{number}"}, "operationType": kind, "clusterTime": Timestamp(9, 1)}
    fields |= {"fullDocument": after} if after is not None else {}
    fields |= {"ns": {"db": "shop", "coll": "orders"}, "documentKey": {"_id": id_}, "number": number}
    fields |= {"fullDocumentBeforeChange": before if images else None} if before is not None else {}
    return bson.encode(fields)


def _numbers(packed: bytes) -> list[int]:
    at, found = 0, []
    while at < len(packed):
        end = at + int.from_bytes(packed[at : at + 4], "little")
        found.append(bson.decode(packed[at:end])["number"])
        at = end
    return found


def _divided(events: list[Event], lacking: set[int], random: Random) -> list[list[int]]:
    """The numbers of the events of each bucket, in the order of application."""
    values = UniqueValues.of(_schema())
    assert values is not None
    chunks: list[tuple[int, bytes]] = []
    slice_, blob = 0, b""
    for number, event in enumerate(events):
        raw = _bytes(event, number, images=number not in lacking)
        blob += linked(values.of_change(raw, scan(raw)), raw)
        if random.random() < 0.3:
            chunks.append((slice_, blob))
            slice_, blob = slice_ + random.randrange(2), b""
    parts = list(divide([*chunks, (slice_, blob)], 7, _BUCKETS))
    assert [slice_ for _, slice_, _ in parts] == sorted(slice_ for _, slice_, _ in parts)
    return [[n for bucket, _, packed in parts if bucket == mine for n in _numbers(packed)] for mine in range(_BUCKETS)]


@given(_WISHES, st.sets(st.integers(0, 30), max_size=1), st.randoms(use_true_random=False))
def test_buckets_at_any_pace_end_where_the_serial_order_does_and_meet_no_taken_value(
    wishes: list[tuple[int, dict[str, Any] | None]], lacking: set[int], random: Random
) -> None:
    events, expected, begin = _history(wishes)
    _, rows, _ = _history(wishes[: _wishes_of(wishes, begin)])
    buckets = _divided(events[begin:], lacking, random)
    assert sorted(number for bucket in buckets for number in bucket) == list(range(len(events) - begin))
    while waiting := [bucket for bucket in buckets if bucket]:
        id_, _, after = events[begin + random.choice(waiting).pop(0)]
        if after is None:
            del rows[id_]
        else:
            assert _is_free(rows, id_, after)
            rows[id_] = after
    assert rows == expected


def _wishes_of(wishes: list[tuple[int, dict[str, Any] | None]], events: int) -> int:
    """The number of wishes that result in so many events."""
    return next(count for count in range(len(wishes) + 1) if len(_history(wishes[:count])[0]) == events)


def test_rows_without_common_values_use_all_buckets_and_one_unknown_change_gathers_them_in_one() -> None:
    events: list[Event] = [(id_, {"u": id_, "tags": [str(id_)]}, None) for id_ in range(60)]
    assert all(len(bucket) > 10 for bucket in _divided(events, set(), Random(1)))
    assert sorted(map(len, _divided(events, {30}, Random(1)))) == [0, 0, 60]


def test_rows_that_hand_a_unique_value_on_are_one_component() -> None:
    one, two, six = b"value..1", b"value..2", b"value..6"
    components = Components([one + two, b"value..3" + one, six, b"value..4" + two, b"value..5" + six])
    assert [components.of(number) for number in range(5)] == [0, 0, 2, 0, 2]


def test_a_change_of_unknown_values_joins_all() -> None:
    components = Components([b"value..1", b"value..2", UNKNOWN, b"value..3"])
    assert {components.of(number) for number in range(4)} == {0}


def _at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


_PLAIN = replace(_schema("plain"), indexes=())
_CAPPED = _schema("capped", capped=True, size=4096)
_TABLES = [_schema("orders"), _schema("items"), _schema("late"), _PLAIN, _CAPPED]


def _context(**pipeline: Any) -> JobContext:
    fields = {"id": "f", "source": "mongodb://a/", "sink": "mongodb://b/", "pipeline": pipeline}
    return JobContext(
        key="k",
        base_key="k/base",
        changefeed=ChangefeedId("f"),
        configuration=Configuration.parse(fields),
        info_key="i",
        secret_files=SecretFiles(),
        capture=Capture.CHANGE_STREAM,
        schemas=SchemaVersions.of(_TABLES),
        tables=TableSet.of(schema.id for schema in _TABLES if schema.name.coll != "late"),
        fence=Fence(etcd=EtcdConfig(endpoints=("h:1",)), node_key="n", epoch=1, status_key="s", run=1),
    )


@pytest.mark.parametrize(
    ("pipeline", "replay_until", "copied", "expected"),
    [
        ({"pre_images": ["*.*"]}, 100, (), ["items", "late", "orders"]),
        ({"pre_images": ["*.*"]}, 101, (), ["late"]),
        ({"pre_images": ["*.*"]}, 100, ("items",), ["late", "orders"]),
        ({"pre_images": ["shop.orders"]}, 100, (), ["orders"]),
        ({"pre_images": ["*.*"], "order_by": "table"}, 100, (), []),
        ({"pre_images": ["*.*"], "order_by": "id"}, 100, (), []),
        ({}, 100, (), []),
    ],
)
def test_tables_are_divided_that_the_user_names_while_nothing_is_replayed(
    pipeline: dict[str, Any], replay_until: int, copied: tuple[str, ...], expected: list[str]
) -> None:
    late = _schema("late").id
    job = LaneJob(
        number=1,
        window=Window(_at(100), _at(200)),
        tables=frozenset([TableId("any")]),
        own_windows={late: Window(_at(120), _at(200)), TableId("gone"): Window(_at(100), _at(150))},
        replay_until=_at(replay_until),
        own_replay={late: _at(120)},
    )
    ranges = {_schema(name).id: CopiedRanges((), ((1, 1),)) for name in copied}
    spec = JobSpec(attempt="a", job=job, default=True, copied=ranges)
    found = [bytes.fromhex(table).decode() for table in divided_tables(spec, _context(**pipeline))]
    assert found == expected
