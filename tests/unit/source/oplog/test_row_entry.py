"""Entries of the oplog as their readers see them: recorded from servers, and of newer servers by their documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost
from changefeed.table import TableName
from source.oplog.command_entry import CommandEntry
from source.oplog.find import operations
from source.oplog.row_entry import about_command, about_of, made_entry, scan, update_of
from source.stream.change_event import table_name

UI = Binary(bytes(range(16)), 4)
SESSION: dict[str, Any] = {"lsid": {"id": Binary(bytes(16), 4), "uid": b"u" * 32}, "txnNumber": Int64(7)}
AT = Timestamp(100, 5)
NOWHERE: dict[str, Any] = {"ts": Timestamp(0, 0), "t": Int64(-1)}
WHEN: dict[str, Any] = {"ts": AT, "t": Int64(1), "v": Int64(2)}


def raw(entry: Mapping[str, Any]) -> bytes:
    return bson.encode(entry)


def row(op: str, o: dict[str, Any], *, before: Mapping[str, Any] | None = None, **more: Any) -> bytes:
    """In the order of a server: `o2` and others (`before`) come before the time, the rest after it."""
    return raw({"op": op, "ns": "shop.a", "ui": UI, "o": o, **(before or {}), **WHEN, **more})


rows = st.builds(
    lambda session, op, more, statement, rest: (
        {**session, "op": op[0], "ns": "shop.a.b", "ui": UI, "o": op[1], **op[2], **more, **statement, **WHEN, **rest}
    ),
    st.sampled_from([{}, SESSION]),
    st.sampled_from(
        [
            ("i", {"_id": 1, "x": "y"}, {}),
            ("i", {"_id": 1}, {"o2": {"_id": 1}}),
            ("u", {"$v": 2, "diff": {"u": {"a": 1}}}, {"o2": {"_id": 1}}),
            ("u", {"$v": 1, "$set": {"a": 1}}, {"o2": {"_id": 1}}),
            ("u", {"_id": 1, "$v": 2}, {"o2": {"_id": 1}}),
            ("d", {"_id": "k"}, {}),
        ]
    ),
    st.sampled_from(
        [{}, {"fromMigrate": True}, {"needsRetryImage": "preImage"}, {"checkExistenceForDiffInsert": True}]
    ),
    st.sampled_from([{}, {"stmtId": 0}, {"stmtId": [1, 2]}]),
    st.sampled_from([{}, {"prevOpTime": NOWHERE}, {"isTimeseries": True}]),
)


@given(rows)
def test_the_layout_of_an_entry_does_not_change_its_header(entry: dict[str, Any]) -> None:
    raw_entry = raw(entry)
    header = scan(raw_entry)
    whole = "_id" in entry["o"]
    kind = {"i": b"insert", "d": b"delete", "u": b"replace" if whole else b"update"}[entry["op"]]
    assert (header.type, header.time, header.token) == (kind, ClusterTime(100, 5).to_int(), b"00000000")
    assert header.uuid == bytes(UI)
    assert table_name(header.ns) == TableName("shop", "a.b")
    keyed = entry["o2"] if entry["op"] == "u" else entry["o"]
    key: dict[str, Any] = bson.decode(header.key)
    assert key["_id"] == keyed["_id"]
    document = raw_entry[header.full_at : header.full_end]
    assert document == (bson.encode(entry["o"]) if kind in (b"insert", b"replace") else b"")
    if kind == b"update":
        described: dict[str, Any] = bson.decode(update_of(raw_entry, header))
        assert described["updatedFields"] == {"a": 1}


def test_an_upsert_of_applied_operations_says_so() -> None:
    entry = row("u", {"$v": 1, "$set": {"a": 1}}, before={"o2": {"_id": 1}, "b": True})
    assert bson.decode(update_of(entry, scan(entry)))["upsert"] is True


@pytest.mark.parametrize("op", ["xi", "xd", "ci", "cu", "cd", "km", "n"])
def test_internal_entries_of_the_server_are_no_rows(op: str) -> None:
    assert scan(raw({"op": op, "ns": "shop.a", "o": {"k": 1}, **WHEN})).type == b"noop"


def test_an_unknown_operation_is_named() -> None:
    header = scan(raw({"op": "zz", "ns": "shop.a", "ui": UI, "o": {"_id": 1}, **WHEN}))
    assert header.type == b"unknown zz"


def inner(op: str, o: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"op": op, "ns": "shop.a", "ui": UI, "o": o, **more}


def apply_ops(*operations: dict[str, Any], ts: int = 5, **more: Any) -> dict[str, Any]:
    flags: dict[str, Any] = {name: more.pop(name) for name in ("partialTxn", "prepare", "count") if name in more}
    o: dict[str, Any] = {"applyOps": list(operations), **flags}
    return {"op": "c", "ns": "admin.$cmd", "o": o, "ts": Timestamp(100, ts), "t": Int64(1), **more}


def ids(entry: dict[str, Any], *earlier: dict[str, Any]) -> list[Any]:
    stored = {each["ts"]: raw(each) for each in earlier}

    def entry_at(ts: ClusterTime, projection: Mapping[str, object] | None) -> bytes:
        del projection
        if ts.to_bson() not in stored:
            raise HistoryLost(f"gone: {ts}")
        return stored[ts.to_bson()]

    found = operations(entry_at, CommandEntry.of(raw(entry)))
    return [bson.decode(bson.decode(operation)["o"] and scan(_at(operation)).key)["_id"] for operation, _ in found]


def _at(operation: bytes) -> bytes:
    return made_entry(operation, AT_RAW, 0, upserts=False)


AT_RAW = ClusterTime(100, 5).to_int().to_bytes(8, "little")


def linked(ts: int) -> dict[str, Any]:
    return {"prevOpTime": {"ts": Timestamp(100, ts), "t": Int64(1)}}


def test_a_chain_is_applied_from_its_beginning() -> None:
    first = apply_ops(inner("i", {"_id": 1}), ts=1, partialTxn=True, prevOpTime=NOWHERE)
    second = apply_ops(inner("i", {"_id": 2}), ts=3, partialTxn=True, **linked(1))
    last = apply_ops(inner("d", {"_id": 3}), ts=5, count=3, **linked(3))
    assert ids(last, first, second) == [1, 2, 3]
    assert not CommandEntry.of(raw(second)).visible


def test_a_missing_part_of_a_chain_is_lost_history() -> None:
    last = apply_ops(inner("i", {"_id": 3}), count=2, **linked(3))
    with pytest.raises(HistoryLost):
        ids(last)


def test_a_prepared_transaction_is_visible_with_its_commit() -> None:
    prepared = apply_ops(inner("i", {"_id": 1}), ts=3, prepare=True, prevOpTime=NOWHERE)
    commit = {"op": "c", "ns": "admin.$cmd", "o": {"commitTransaction": 1, "commitTimestamp": AT}, **WHEN, **linked(3)}
    assert not CommandEntry.of(raw(prepared)).visible
    assert ids(commit, prepared) == [1]
    aborted = {"op": "c", "ns": "admin.$cmd", "o": {"abortTransaction": 1}, **WHEN, **linked(3)}
    assert not CommandEntry.of(raw(aborted)).visible


def test_inserts_of_one_statement_in_8_0_are_visible_at_once_and_do_not_repeat_the_statement_before() -> None:
    before = apply_ops(inner("i", {"_id": 1}), ts=3, multiOpType=1, prevOpTime=NOWHERE, **SESSION)
    vectored = apply_ops(
        inner("i", {"_id": 2}, stmtId=1), inner("i", {"_id": 3}, stmtId=2), multiOpType=1, **SESSION, **linked(3)
    )
    assert ids(vectored, before) == [2, 3]
    assert ids(apply_ops(inner("i", {"_id": 4}), inner("i", {"_id": 5}))) == [4, 5]


def test_a_batch_of_deletes_without_a_session_may_be_a_chain() -> None:
    first = apply_ops(inner("d", {"_id": 1}), ts=1, partialTxn=True, prevOpTime=NOWHERE)
    assert ids(apply_ops(inner("d", {"_id": 2}), **linked(1)), first) == [1, 2]


def test_nested_operations_of_a_users_command_are_in_their_order() -> None:
    nested = {"op": "c", "ns": "shop.$cmd", "o": {"applyOps": [inner("i", {"_id": 2}), inner("i", {"_id": 3})]}}
    assert ids(apply_ops(inner("i", {"_id": 1}), nested, inner("i", {"_id": 4}))) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("said", "upserts"), [({}, True), ({"alwaysUpsert": True}, True), ({"alwaysUpsert": False}, False)]
)
def test_updates_of_a_users_apply_ops_insert_missing_documents_unless_always_upsert_is_false(
    said: dict[str, Any], *, upserts: bool
) -> None:
    entry = {"op": "c", "ns": "admin.$cmd", **WHEN}
    update = inner("u", {"$set": {"a": 1}}, o2={"_id": 9})
    command = CommandEntry.of(raw({**entry, "o": {"applyOps": [update], **said, "$db": "admin"}}))
    [(operation, found)] = command.operations()
    assert found is upserts
    made = made_entry(operation, AT_RAW, 0, upserts=found)
    assert bson.decode(update_of(made, scan(made))).get("upsert", False) is upserts


def test_a_made_entry_has_the_time_and_the_place_that_it_is_given() -> None:
    own_time = raw({**inner("i", {"_id": 1}), "ts": Timestamp(1, 1), "t": Int64(1), "v": 2})
    for operation in (own_time, raw(inner("i", {"_id": 1}, o2={"_id": 1}, stmtId=3))):
        header = scan(made_entry(operation, AT_RAW, 70_000, upserts=False))
        assert (header.time, header.token) == (ClusterTime(100, 5).to_int(), b"00011170")


_WRITTEN, _OTHER = DatetimeMS(1_767_225_600_000), DatetimeMS(7)


@pytest.mark.parametrize("o", [{"_id": 1}, {"_id": 1, "wall": _OTHER, "lsid": {"id": UI}}, {"_id": {"wall": _OTHER}}])
@pytest.mark.parametrize("session", [{}, {**SESSION, "stmtId": 0, "prevOpTime": NOWHERE}])
@pytest.mark.parametrize("op", ["i", "d"])
def test_an_entry_of_4_2_has_its_wall_time_before_its_document(
    op: str, o: dict[str, Any], session: dict[str, Any]
) -> None:
    entry = raw({**WHEN, "op": op, "ns": "shop.a", "ui": UI, "wall": _WRITTEN, **session, "o": o})
    assert about_of(entry, scan(entry)) == (int(_WRITTEN), None)


@pytest.mark.parametrize("session", [{}, SESSION])
def test_a_wall_time_is_that_of_the_entry_and_a_retryable_write_is_no_transaction(session: dict[str, Any]) -> None:
    entry = raw(
        {**session, "op": "i", "ns": "shop.a", "ui": UI, "o": {"_id": 1, "wall": _OTHER}, **WHEN, "wall": _WRITTEN}
    )
    assert about_of(entry, scan(entry)) == (int(_WRITTEN), None)


def test_an_operation_of_a_transaction_of_4_2_has_its_session() -> None:
    operation = raw({"op": "i", "ns": "shop.a", "ui": UI, "o": {"_id": 1, "wall": _OTHER}})
    command = raw({**WHEN, "op": "c", "ns": "admin.$cmd", "wall": _WRITTEN, **SESSION, "o": {"applyOps": [{}]}})
    made = made_entry(operation, bytes(8), 0, upserts=False, about=about_command(command))
    assert about_of(made, scan(made)) == (int(_WRITTEN), (bytes(16).hex(), 7))
