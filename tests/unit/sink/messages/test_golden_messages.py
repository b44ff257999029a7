"""Messages are those that the real consumers have accepted (`tests/e2e/sinks/test_consumers.py`)."""

from __future__ import annotations

import json
import os

import pytest

from sink.messages.debezium_schema import key_schema, value_schema
from tests.golden_messages import GOLDEN, golden_lines, record, recorded


@pytest.mark.parametrize("name", GOLDEN)
def test_messages_are_the_recorded_ones(name: str) -> None:
    if "SLUICE_RECORD_MESSAGES" in os.environ:
        record(name)
    assert golden_lines(name) == recorded(name)


def test_a_schema_names_each_field_of_its_payload() -> None:
    for line in recorded("debezium-schemas-images"):
        for part in (line["key"], line["value"]):
            if part is not None:
                message = json.loads(part)
                assert [each["field"] for each in message["schema"]["fields"]] == list(message["payload"]) or (
                    {each["field"] for each in message["schema"]["fields"]} == message["payload"].keys()
                )
    assert json.loads(key_schema("t"))["name"] == "t.Key"
    assert json.loads(value_schema("t"))["name"] == "t.Envelope"
