"""Our order of `_id`s, which assigns changes to chunks, equals the order of the server's index."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from functools import cmp_to_key
from typing import Any

import bson
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import CodecOptions
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex
from bson.timestamp import Timestamp

from changefeed.bson_bytes import DOCUMENT, STRING, document_of, element, string
from changefeed.documents.bson_order import compare
from devstack.mongodb.server import Client
from processor.task.copied_ranges import key_of

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
_POINTER = b"\x1f\0\0\0\x0ca\0\x0b\0\0\0shop.goods\0" + b"7" * 12 + b"\0"
_POINTER = len(_POINTER).to_bytes(4, "little") + _POINTER[4:]

_VALUES: list[Any] = [
    *(MinKey(), None, False, True, MaxKey()),
    *(0, 1, -1, 2**31, Int64(2**53 + 1), Int64(-(2**63)), Int64(2**63 - 1)),
    *(0.1, 0.5, 1.5, -0.25, 2.0**53, 2.0**63, 1e300, 5e-324, float("inf"), float("-inf"), float("nan")),
    *map(Decimal128, ("0.1", "0.10000000000000001", "1.25", "-7E+6000", "7E+6000", "1E-6000", "1E+300")),
    *map(Decimal128, ("0.1000000000000000055511151231257827", "9007199254740993.5", "-0.25000000000000000001")),
    *("", "A", "a", "a\0b", "ab", "é", "\U0001f600", "\uffee", "k" * 9_000),
    *(b"", b"a", b"b", b"aa", Binary(b"a", 5), Binary(b"a" * 16, 4), Binary(b"a", 128), b"z" * 300),
    *(ObjectId("0" * 24), ObjectId("f" * 24)),
    *(datetime(2026, 1, 1, tzinfo=UTC), DatetimeMS(-(2**62)), DatetimeMS(2**62), DatetimeMS(-1)),
    *(Timestamp(0, 0), Timestamp(1, 0), Timestamp(2**32 - 1, 1)),
]
_NESTED: list[Any] = [
    *([], [1], [1, 2], [None], [[]], {}, {"b": 1}, {"a": "x"}, {"a": {"b": MinKey()}}, {"a": MaxKey()}),
    *(Regex("a"), Regex("a!"), Regex("ab"), Regex("a'"), Regex("a\\"), Regex("a", "i"), Regex("a", "im"), Regex('a"')),
    *(Code("x"), Code("xy"), Code("x", {"a": 1}), Code("x", {"a": 2}), Code("a", {"a": 3}), Code("x", {})),
    *(DBRef("shop", 1), DBRef("shop", 2), DBRef("shop", 1, "db")),
]
_NO_UTF8 = [b"\xe9", b"a\xe9", b"a\xff", b"a\xc3", b"\xed\xb3\xa9", b"\xf0\x9f\x98\x80\xff", b"\xef\xbf\xbd"]
_PAIRS = [{"b": 1, "a": 2}, {"b": 1}, {"b": 1.5}, {"b": 1, "a": 1}, {"c": 0}, {"b": "x"}, {"b": None}]


def test_every_key_stands_where_the_servers_index_has_it(source_client: Client, database: str) -> None:
    rows = source_client[database].get_collection("rows", codec_options=_RAW)
    keys = [bson.encode({"_id": value}) for value in [*_VALUES, *_PAIRS]]
    keys += [bson.encode({"_id": {"a": value}}) for value in [*_VALUES, *_NESTED]]
    keys.append(bson.encode({"_id": RawBSONDocument(_POINTER)}))
    keys += [document_of([element(STRING, b"_id", string(text))]) for text in _NO_UTF8]
    for text in _NO_UTF8:
        inner = document_of([element(STRING, b"a", string(text))]), document_of([element(STRING, text, string(b""))])
        keys += [document_of([element(DOCUMENT, b"_id", each)]) for each in inner]
    for key in keys:
        rows.insert_one(RawBSONDocument(key))

    found = [bson.encode(row) for row in rows.find({}, sort=[("_id", 1)])]
    shuffled = random.Random(7).sample(found, len(found))

    assert len(found) == len(keys)
    assert sorted(shuffled, key=lambda key: cmp_to_key(compare)(key_of(key))) == found
