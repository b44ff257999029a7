from __future__ import annotations

from itertools import product
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.timestamp import Timestamp
from hypothesis import given, settings

from changefeed.config.tables.filter import Filter
from changefeed.errors import SourceUnsupported
from changefeed.event import RowType
from changefeed.table import TableName
from processor.task.rows.gate import RowFilter
from source.oplog import row_entry
from source.stream.change_event import scan
from tests.unit.changefeed.config.tables.filter_cases import filters_with_names, made


def event(type_: str, name: TableName, **fields: Any) -> bytes:
    return bson.encode(
        {
            "_id": {"_data": "82"},
            "operationType": type_,
            "clusterTime": Timestamp(1, 1),
            **fields,
            "ns": {"db": name.db, "coll": name.coll},
            "documentKey": {"_id": 1},
        }
    )


def takes(rows: RowFilter, raw: bytes) -> bool:
    header = scan(raw)
    return rows.wants(header) and not rows.ignores(raw, header)


@given(filters_with_names())
@settings(max_examples=200)
def test_an_event_is_taken_exactly_when_the_filter_wants_it(case: tuple[Filter, list[TableName]]) -> None:
    filter_, names = case
    rows = RowFilter(filter_)
    for name, type_ in product(names, RowType):
        raw = event(type_.value, name)
        assert takes(rows, raw) is not filter_.ignores_row(name, type_, bson.decode(raw))


def test_two_rules_and_two_exclusions_are_all_obeyed() -> None:
    rules = [
        {"tables": ["shop.audit"], "ignore": ["delete"]},
        {"tables": ["shop.a*"], "ignore": ["replace"]},
    ]
    rows = RowFilter(made(["*.*", "!shop.tmp", "!crm.*"], rules))
    taken = {
        coll: [type_.value for type_ in RowType if takes(rows, event(type_.value, TableName.parse(coll)))]
        for coll in ("shop.audit", "shop.other", "shop.tmp", "crm.notes", "shop.system.views", "config.chunks")
    }
    assert taken == {
        "shop.audit": ["insert", "update"],
        "shop.other": ["insert", "update", "replace", "delete"],
        "shop.tmp": [],
        "crm.notes": [],
        "shop.system.views": [],
        "config.chunks": [],
    }


def test_conditions_look_at_documents_of_their_tables_alone() -> None:
    rule = {"tables": ["shop.log"], "ignore_where": {"insert": {"level": "debug"}}}
    rows = RowFilter(made(["shop.*"], [rule]))
    debug, info = {"_id": 1, "level": "debug"}, {"_id": 1, "level": "info"}
    assert not takes(rows, event("insert", TableName("shop", "log"), fullDocument=debug))
    assert takes(rows, event("insert", TableName("shop", "log"), fullDocument=info))
    assert takes(rows, event("insert", TableName("shop", "other"), fullDocument=debug))


def test_a_document_is_left_out_if_its_insert_would_be() -> None:
    rules: list[dict[str, Any]] = [
        {"tables": ["shop.log"], "ignore_where": {"insert": {"level": "debug"}}},
        {"tables": ["shop.never"], "ignore": ["insert"]},
    ]
    rows = RowFilter(made(["shop.*"], rules))
    documents = [bson.encode({"_id": 1, "level": level}) for level in ("debug", "info")]
    left_out = {
        coll: [rows.ignores_document(TableName("shop", coll), document) for document in documents]
        for coll in ("log", "never", "other")
    }
    assert left_out == {"log": [True, False], "never": [True, True], "other": [False, False]}


@pytest.mark.parametrize(("condition", "ignored"), [({"a.$id": 1}, True), ({"a.$id": {"$ne": 1}}, False)])
def test_a_reference_to_another_document_is_a_document_as_any(condition: dict[str, Any], ignored: bool) -> None:
    """By default the driver decodes `{$ref, $id}` to a DBRef."""
    rows = RowFilter(made(["shop.*"], [{"tables": ["shop.log"], "ignore_where": {"insert": condition}}]))
    reference = {"_id": 1, "a": {"$ref": "customers", "$id": 1}}
    assert takes(rows, event("insert", TableName("shop", "log"), fullDocument=reference)) is not ignored


def test_what_is_no_row_is_not_taken() -> None:
    rows = RowFilter(made(["*.*"]))
    assert not takes(rows, event("drop", TableName("shop", "a")))
    assert not takes(rows, bson.encode({"_id": {"_data": "82"}, "operationType": "dropDatabase", "ns": {"db": "shop"}}))


def test_an_entry_of_an_unknown_kind_stops_whom_it_concerns_and_is_named() -> None:
    entry = bson.encode(
        {"op": "zz", "ns": "shop.a", "ui": Binary(bytes(16), 4), "o": {"_id": 1}, "ts": Timestamp(100, 5)}
    )
    header = row_entry.scan(entry)
    ours, others = RowFilter(made(["shop.*"])), RowFilter(made(["bank.*"]))
    assert not others.wants(header)
    assert ours.wants(header)
    with pytest.raises(SourceUnsupported, match=r"shop\.a at 100\.5.*'unknown zz'") as unknown:
        ours.ignores(entry, header)
    assert unknown.value.table == bytes(16).hex()


def test_a_document_with_a_text_that_is_no_utf8_is_judged_by_its_other_fields_too() -> None:
    rules = [{"tables": ["shop.*"], "ignore_where": {"insert": {"level": "debug"}}}]
    rows = RowFilter(made(["*.*"], rules))
    taken = [
        takes(
            rows,
            event("insert", TableName.parse("shop.log"), fullDocument={"level": level, "text": "??"}).replace(
                b"??", b"\xff\xc3"
            ),
        )
        for level in ("debug", "info", "??")
    ]
    assert taken == [False, True, True]
