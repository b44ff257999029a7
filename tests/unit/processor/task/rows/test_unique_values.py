from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.code import Code
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex
from bson.timestamp import Timestamp

from changefeed.bson_bytes import document_of
from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from processor.task.rows.division import DIGEST_BYTES, UNKNOWN, UniqueValues
from source.stream.change_event import scan, without_images

_INDEX = {"key": {"u": 1}, "name": "u_1", "unique": True}


def _values(*indexes: dict[str, Any]) -> UniqueValues:
    schema = TableSchema(
        id=TableId("ab" * 16),
        name=TableName("shop", "orders"),
        indexes=tuple(map(Document.of, indexes)),
        valid_from=Position(ClusterTime(1, 0)),
    )
    values = UniqueValues.of(schema)
    assert values is not None
    return values


def _event(kind: str, id_: Any = 1, before: Any = None, after: Any = None) -> bytes:
    """An event as the server sends it when images are requested: a missing document is null."""
    event: dict[str, Any] = {"_id": {"_data": "8265"}, "operationType": kind, "clusterTime": Timestamp(9, 1)}
    if kind != "delete":
        event["fullDocument"] = after
    event |= {"ns": {"db": "shop", "coll": "orders"}, "documentKey": {"_id": id_}}
    if kind == "update":
        event["updateDescription"] = {"updatedFields": {"x": 1}, "removedFields": [], "truncatedArrays": []}
    if kind != "insert":
        event["fullDocumentBeforeChange"] = before
    return bson.encode(event)


def _digests(values: UniqueValues, event: bytes) -> set[bytes]:
    found = values.of_change(event, scan(event))
    assert found != UNKNOWN
    return {found[at : at + DIGEST_BYTES] for at in range(0, len(found), DIGEST_BYTES)}


def _keys(document: dict[str, Any], **index: Any) -> set[bytes]:
    """The keys of an insert, except that of its `_id`."""
    values = _values(_INDEX | index)
    row = _values(_INDEX | {"key": {"none": 1}, "sparse": True})
    return _digests(values, _event("insert", after=document)) - _digests(row, _event("insert", after={"x": 1}))


_SAME: list[tuple[Any, Any]] = [
    (1, 1.0),
    (1, Int64(1)),
    (1, Decimal128("1.00")),
    (0.0, -0.0),
    (0, Decimal128("-0E+3")),
    (0.1, Decimal128("0.1000000000000000055511151231257827")),
    (2**62, Decimal128(str(2**62))),
    (float("nan"), Decimal128("NaN")),
    (float("inf"), Decimal128("Infinity")),
    ({"a": 1, "b": [2]}, {"a": 1.0, "b": [Decimal128("2")]}),
    (DBRef("other", 1), {"$ref": "other", "$id": 1.0}),
    ([[1, "x"]], [[1.0, "x"]]),
    (None, []),
]


@pytest.mark.parametrize(("one", "other"), _SAME)
def test_what_the_server_takes_for_the_same_value_is_one(one: Any, other: Any) -> None:
    assert _keys({"u": one}) == _keys({"u": other})


_DIFFERENT: list[Any] = [
    *(0, 1, 1.5, True, "1", "", Code("1"), Binary(b"1"), Binary(b"1", 5), None, {}, {"a": 1, "b": 2}, {"b": 2, "a": 1}),
    *(
        {"a": None},
        [[]],
        Timestamp(1, 0),
        datetime(2026, 1, 1, tzinfo=UTC),
        Regex("1"),
        Regex("1", "i"),
        2**62,
        2**62 + 1,
    ),
]


def test_different_values_of_all_types_stay_apart() -> None:
    found = [_keys({"u": value}) for value in _DIFFERENT]
    assert len(set.union(*found)) == len(_DIFFERENT)


def test_a_missing_field_is_null() -> None:
    assert _keys({"x": 1}) == _keys({"u": None}) != set()


@pytest.mark.parametrize("document", [{"x": 1}, {"a": 5}, {"a": {"x": 1}}])
def test_a_sparse_index_has_nothing_where_all_its_fields_are_missing(document: dict[str, Any]) -> None:
    assert _keys(document, key={"a.b": 1, "c": 1}, sparse=True) == set()
    assert _keys(document | {"c": None}, key={"a.b": 1, "c": 1}, sparse=True) != set()
    assert _keys({"a": {"b": None}}, key={"a.b": 1, "c": 1}, sparse=True) != set()


@pytest.mark.parametrize(
    ("path", "document", "elements"),
    [
        ("u", {"u": [1, 2]}, [1, 2]),
        ("u", {"u": [[1, 2], 3]}, [[[1, 2]], 3]),
        ("u.v", {"u": [{"v": 1}, {"v": 2}]}, [1, 2]),
        ("u.v", {"u": [{"v": [1, 2]}, {"w": 2}]}, [1, 2, None]),
        ("u.v", {"u": [7]}, [None]),
        ("u.v.w", {"u": [{"v": [{"w": 1}, {"w": 2}]}, {"v": {"w": 3}}]}, [1, 2, 3]),
        ("u.1", {"u": ["a", "b"]}, ["b"]),
        ("u.1.v", {"u": [{"v": 1}, {"v": 2}]}, [2]),
        ("u.0", {"u": [{"0": 5}]}, [5]),
        ("u.0", {"u": [[1, 2]]}, [1, 2]),
        ("u.v", {"u": [[{"v": 1}]]}, [None]),
        ("u.$id", {"u": DBRef("other", 5)}, [5]),
    ],
)
def test_an_array_has_at_least_the_keys_that_the_server_gives_it(
    path: str, document: dict[str, Any], elements: list[Any]
) -> None:
    found = _keys(document, key={path: 1})
    for element in elements:
        nested: Any = element
        for name in reversed(path.split(".")):
            nested = {name: nested}
        assert _keys(nested, key={path: 1}) <= found


def test_a_key_of_several_fields_is_one_value() -> None:
    key = {"a": 1, "b": -1}
    both = _keys({"a": 1, "b": [2, 3]}, key=key)
    assert both == _keys({"a": 1, "b": 2}, key=key) | _keys({"a": 1.0, "b": 3}, key=key)
    assert not both & (_keys({"a": 2, "b": 1}, key=key) | _keys({"a": 1}, key=key))


def test_equal_values_of_two_indexes_or_tables_or_of_an_id_are_no_common_value() -> None:
    assert not _keys({"u": 1}, name="one") & _keys({"u": 1}, name="other")
    assert not _keys({"u": 1}) & _digests(_values(_INDEX), _event("insert", id_=1, after={"u": 2}))


def test_a_change_has_the_values_before_and_after_it() -> None:
    values = _values(_INDEX)
    one, two = (_digests(values, _event("insert", after={"u": number})) for number in (1, 2))
    assert _digests(values, _event("update", before={"u": 1}, after={"u": 2})) == one | two
    assert _digests(values, _event("replace", before={"u": 1}, after={"u": 2})) == one | two
    assert _digests(values, _event("delete", before={"u": 1})) == one


@pytest.mark.parametrize(
    "event",
    [
        _event("update", before=None, after={"u": 1}),
        _event("update", before={"u": 1}, after=None),
        _event("replace", before=None, after={"u": 1}),
        _event("delete", before=None),
        _event("insert", after={"u": list(range(1_001))}),
    ],
)
def test_without_an_image_or_with_too_many_keys_nobody_knows(event: bytes) -> None:
    assert _values(_INDEX).of_change(event, scan(event)) == UNKNOWN


@pytest.mark.parametrize("value", [b"\x02u\x00\x04\x00\x00\x00ab\xff\x00", b"\x09u\x00" + 7 * b"\x00" + b"\x7f"])
def test_text_that_is_no_text_and_dates_beyond_pythons_are_values_too(value: bytes) -> None:
    event = _event("insert", after=RawBSONDocument(document_of([value])))
    assert len(_digests(_values(_INDEX), event)) == 2


@pytest.mark.parametrize("kind", ["insert", "update", "replace", "delete"])
@pytest.mark.parametrize("image", [None, {"u": 1}])
def test_an_event_without_images_mounts_like_before(kind: str, image: dict[str, Any] | None) -> None:
    event = _event(kind, before=image, after=image)
    lean = without_images(event, scan(event))
    told = bson.decode(event)
    for field in ("fullDocumentBeforeChange", *(["fullDocument"] if kind == "update" else [])):
        if image is not None:
            told.pop(field, None)
    assert bson.decode(lean) == told
