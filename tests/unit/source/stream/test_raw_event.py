from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import json_util
from bson.binary import Binary
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from changefeed.bson_bytes import MalformedBson
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableName
from source.raw_row import Header
from source.stream.change_event import MalformedEvent, assemble, parse_reply, scan, table_name, token_of

RECORDED = Path(__file__).parents[3] / "fixtures" / "mongodb-4.3"
UUID = uuid.UUID("5d3523ca-b7ce-4a08-b2d6-cb973b25cac9")
TOKEN = "8265A1B2C3000000072B042C0100296E5A1004463C5F6964003C310004"

documents = st.dictionaries(
    st.sampled_from(["_id", "a", "ns", "documentKey", "$x", "a.b", "\u00e9"]),
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=9)
    | st.just({"ns": [1, {"b": b"\0"}]}),
)


def event(operation: str, **fields: Any) -> dict[str, Any]:
    return {
        "_id": {"_data": TOKEN},
        "operationType": operation,
        "clusterTime": Timestamp(1705095875, 7),
        **fields,
        "ns": {"db": "shop", "coll": "orders.eu"},
        "documentKey": {"_id": 1},
    }


def expanded(operation: str, **fields: Any) -> dict[str, Any]:
    wall = datetime(2026, 1, 1, tzinfo=UTC)
    return event(operation, collectionUUID=Binary.from_uuid(UUID), wallTime=wall, **fields)


def check(fields: dict[str, Any]) -> Header:
    raw = bson.encode(fields)
    header = scan(raw)
    plain = RawBSONDocument(raw)

    def same(cut: bytes, field: str) -> None:
        value = plain.get(field)
        assert cut == (value.raw if isinstance(value, RawBSONDocument) else b"")

    assert header.type.decode() == plain["operationType"]
    assert header.token.decode() == plain["_id"]["_data"]
    assert header.position == Position(ClusterTime.from_bson(plain["clusterTime"]), plain["_id"]["_data"])
    same(header.ns, "ns")
    same(header.key, "documentKey")
    same(raw[header.full_at : header.full_end], "fullDocument")
    same(raw[header.update_at : header.update_end], "updateDescription")
    same(raw[header.before_at : header.before_end], "fullDocumentBeforeChange")
    return header


@given(documents)
def test_an_insert_of_a_new_server_is_cut_at_its_fields(document: dict[str, Any]) -> None:
    header = check(expanded("insert", fullDocument=document))
    assert header.table == UUID.hex


@given(documents, st.booleans())
def test_an_update_is_cut_at_its_fields_with_and_without_lookup(document: dict[str, Any], lookup: bool) -> None:
    fields = expanded("update", **({"fullDocument": document} if lookup else {}))
    check({**fields, "updateDescription": {"updatedFields": document, "removedFields": ["a.b"]}})


@given(
    st.permutations(["fullDocument", "updateDescription", "fullDocumentBeforeChange", "lsid", "txnNumber", "other"]),
    st.sampled_from(["insert", "update", "replace", "delete", "somethingNew"]),
    st.booleans(),
    documents,
)
def test_fields_are_found_in_any_order_and_unknown_ones_are_passed_over(
    order: list[str], operation: str, modern: bool, document: dict[str, Any]
) -> None:
    more: dict[str, Any] = {
        **dict.fromkeys(("fullDocument", "updateDescription", "fullDocumentBeforeChange", "other"), document),
        "lsid": {"id": Binary(b"x" * 16)},
        "txnNumber": bson.Int64(3),
    }
    fields = (expanded if modern else event)(operation, **{name: more[name] for name in order[:3]})
    check({**fields, **{name: more[name] for name in order[3:]}})


def test_a_lookup_that_found_nothing_has_no_document() -> None:
    header = check({**expanded("update", fullDocument=None), "updateDescription": {}})
    assert (header.full_at, header.full_end) == (0, 0)


def recorded() -> Iterator[dict[str, Any]]:
    for file in ("replica-set-events.jsonl", "sharded-events.jsonl"):
        for line in (RECORDED / file).read_text().splitlines():
            yield json_util.loads(line)


def test_events_recorded_from_a_real_server_without_expanded_events_are_cut_at_their_fields() -> None:
    events = list(recorded())
    assert {check(fields).type for fields in events} >= {b"insert", b"update", b"delete", b"drop", b"rename"}


def test_a_table_is_named_by_its_namespace_and_a_database_is_no_table() -> None:
    assert table_name(bson.encode({"db": "shop", "coll": "orders.eu"})) == TableName("shop", "orders.eu")
    assert table_name(bson.encode({"db": "shop"})) is None
    no_utf8 = bson.encode({"db": "shop", "coll": "caf?"}).replace(b"?", b"\xe9")
    assert table_name(no_utf8) == TableName("shop", "caf\\xe9")
    assert table_name(b"") is None


def fragments() -> list[bytes]:
    whole = expanded("update", updateDescription={"updatedFields": {"a": "x" * 50}})
    names = list(whole)[1:]
    pieces = [names[:2], names[2:5], names[5:]]
    return [
        bson.encode(
            {
                "_id": {"_data": f"{TOKEN}{number}"},
                "splitEvent": {"fragment": number + 1, "of": 3},
                **{name: whole[name] for name in piece},
            }
        )
        for number, piece in enumerate(pieces)
    ]


def test_fragments_make_the_whole_event_under_the_first_token() -> None:
    whole = assemble(fragments())
    assert bson.decode(whole)["updateDescription"] == {"updatedFields": {"a": "x" * 50}}
    assert scan(whole).token.decode() == f"{TOKEN}0"
    assert scan(whole).split is None
    assert [scan(fragment).split for fragment in fragments()] == [(1, 3), (2, 3), (3, 3)]


def test_a_missing_fragment_is_refused() -> None:
    with pytest.raises(MalformedEvent, match="missing or out of order"):
        assemble(fragments()[:2])


@pytest.mark.parametrize("token", [{}, {"_data": 5}, {"other": "82"}])
def test_a_token_without_text_is_refused(token: dict[str, Any]) -> None:
    with pytest.raises(MalformedEvent, match="without text in _data"):
        token_of(bson.encode(token))


@pytest.mark.parametrize("batch", ["firstBatch", "nextBatch"])
def test_a_reply_is_taken_apart_without_decoding_its_events(batch: str) -> None:
    events = [bson.encode({"n": number}) for number in range(12)]
    cursor = {
        "id": Int64(-5),
        batch: [bson.decode(event) for event in events],
        "postBatchResumeToken": {"_data": "82AB"},
    }
    reply = parse_reply(bson.encode({"ok": 1.0, "cursor": cursor, "operationTime": Timestamp(7, 2)}))
    assert (reply.cursor_id, reply.resume_token, reply.operation_ts) == (-5, "82AB", ClusterTime(7, 2))
    assert reply.events == events


def test_a_reply_without_a_post_batch_token_says_so() -> None:
    cursor = {"id": Int64(1), "firstBatch": [], "ns": "admin.$cmd.aggregate"}
    assert parse_reply(bson.encode({"cursor": cursor, "operationTime": Timestamp(7, 2)})).resume_token is None


def test_a_reply_of_something_that_is_no_replica_set_is_refused() -> None:
    with pytest.raises(MalformedBson, match="no replica set"):
        parse_reply(bson.encode({"cursor": {"id": Int64(1), "firstBatch": []}}))
