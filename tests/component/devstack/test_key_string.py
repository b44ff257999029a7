"""The tokens we write against those that a real server wrote, byte by byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bson import json_util
from bson.timestamp import Timestamp

from devstack.key_string import Place, event_token, high_water_mark, read

RECORDED = Path(__file__).parents[2] / "fixtures" / "mongodb-4.3" / "replica-set-events.jsonl"
V1, V2 = "2B02", "2B04"


def recorded() -> list[dict[str, Any]]:
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    return [
        json_util.loads(line)
        for line in lines
        if json.loads(line)["operationType"] in ("insert", "update", "replace", "delete")
    ]


@pytest.mark.parametrize("kind", ["int", "str", "dict", "ObjectId"])
def test_tokens_of_row_events_are_those_of_a_real_server(kind: str) -> None:
    """The recorded ones are of version 1, whose identity is the document key alone."""
    checked = 0
    for event in recorded():
        key, real = event["documentKey"], event["_id"]["_data"]
        if type(key["_id"]).__name__ != kind:
            continue
        place = read(real.replace(V1, V2, 1))
        uuid = bytes.fromhex(real.split("5A1004", 1)[1][:32])
        ours = event_token(event["clusterTime"], place.op_index, uuid, key)
        assert ours == real.replace(V1, V2, 1)
        checked += 1
    assert checked


@pytest.mark.parametrize("op_index", [0, 1, 2, 63, 64, 127, 128, 300, 16383, 16384, 70_000])
def test_a_token_is_read_as_it_was_written(op_index: int) -> None:
    ts = Timestamp(1795228778, 17)
    written = event_token(ts, op_index, b"0" * 16, {"operationType": "insert"}, from_invalidate=True)
    assert read(written) == Place(ts=ts, event=True, op_index=op_index, from_invalidate=True)
    assert read(high_water_mark(ts)) == Place(ts=ts, event=False, op_index=0, from_invalidate=False)


def test_places_in_a_transaction_sort_as_numbers() -> None:
    ts = Timestamp(1, 1)
    tokens = [event_token(ts, index, b"0" * 16, {}) for index in range(0, 40_000, 7)]
    assert [high_water_mark(ts), *tokens] == sorted([high_water_mark(ts), *tokens])
    assert tokens[-1] < high_water_mark(Timestamp(1, 2))


@pytest.mark.parametrize("text", ["", "82", "zz", "82" + "00" * 8 + V1 + "2929", "00" * 20])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"resume token|hexadecimal"):
        read(text)
