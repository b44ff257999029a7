"""The short ways say what the long ones do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.decimal128 import Decimal128
from bson.int64 import Int64

from sink.events.extended_json import to_json
from sink.events.key_json import key_json, keys_json
from sink.events.message_key import message_key

_IDS: list[Any] = [
    ObjectId("0123456789abcdef01234567"),
    *(0, 7, -1, 2**31 - 1, -(2**31)),
    *(Int64(7), Int64(2**63 - 1), Int64(-(2**63))),
    *(7.0, 0.5, float("nan"), Decimal128("7.00"), "text", "", b"bytes", None, True),
    *({"a": 7}, {"_id": Int64(7)}, {}, datetime(2026, 1, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize("id_", _IDS, ids=repr)
@pytest.mark.parametrize("beside", [{}, {"region": "eu"}, {"n": None}])
def test_a_key_is_written_as_any_document(id_: Any, beside: dict[str, Any]) -> None:
    for key in (bson.encode({"_id": id_, **beside}), bson.encode({**beside, "_id": id_})):
        assert key_json(key) == to_json(key)
        assert keys_json(key) == (to_json(key), to_json(message_key(key)))
