"""Nodes of two releases that follow each other share one etcd while an upgrade rolls.

`tests/fixtures/release-<version>/etcd.jsonl` holds a value of each kind, with each field set, as that release wrote it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

import changefeed.records
import coordination.layout
from admin.stubs.sluice.admin.v1 import admin_pb2, verify_pb2
from changefeed.capture import Capture
from changefeed.records import ChangefeedInfo, NodeRecord
from changefeed.table import TableSchema
from coordination.etcd.protocol import KeyValue
from coordination.layout import decode, encode
from coordination.parts import AssignmentPart

_RELEASES = sorted((Path(__file__).parents[2] / "fixtures").glob("release-*"))
_KINDS: dict[str, type[Any]] = {
    **vars(changefeed.records),
    **vars(coordination.layout),
    "TableSchema": TableSchema,
    "Assignment": AssignmentPart,
}
_OF_ANOTHER_FORMAT = frozenset({"Assignment", "Barrier", "PositionReport"})
"""Kinds whose format has changed since: `test_parts` reads them."""
_VALUES: list[dict[str, Any]] = [
    json.loads(line) for release in _RELEASES for line in (release / "etcd.jsonl").read_text().splitlines()
]


def _decoded(kind: str, value: Any) -> object:
    return decode(_KINDS[kind], KeyValue(key="/k", value=json.dumps(value).encode(), create_rev=1, mod_rev=1))


@pytest.mark.parametrize(
    "written", [each for each in _VALUES if each["kind"] not in _OF_ANOTHER_FORMAT], ids=lambda each: str(each["kind"])
)
def test_what_a_release_wrote_is_read_whole(written: dict[str, Any]) -> None:
    again = json.loads(encode(_decoded(written["kind"], written["value"])))
    assert _held(written["value"], again)


@pytest.mark.parametrize("written", _VALUES, ids=lambda written: str(written["kind"]))
def test_fields_that_the_next_release_adds_are_passed_over(written: dict[str, Any]) -> None:
    """An option of a configuration is the exception: carrying out another configuration than the one asked for is worse than an error."""
    value = {**written["value"], "configuration": {}, "added_later": {"a": [1]}}
    if "configuration" in written["value"]:
        value["configuration"] = written["value"]["configuration"]
    assert _decoded(written["kind"], value) == _decoded(written["kind"], written["value"])


def test_what_is_written_holds_no_options_that_nobody_asked_for() -> None:
    """So an option that a release adds is in no value until a user sets it: older nodes read what newer ones wrote."""
    info = next(each for each in _VALUES if each["kind"] == "ChangefeedInfo")["value"]
    asked = {
        "id": "orders",
        "source": "mongodb://h/",
        "sink": "mongodb://h2/",
        "start": "now",
        "filter": {"tables": ["a.b"]},
    }
    again = json.loads(encode(_decoded("ChangefeedInfo", {**info, "configuration": asked})))
    assert again["configuration"] == asked


def test_what_the_first_release_wrote_is_read_by_change_streams_alone() -> None:
    """The first release had no other capture."""
    first = [each for each in _VALUES if "capture" not in each["value"] and "captures" not in each["value"]]
    [node] = [_decoded("NodeRecord", each["value"]) for each in first if each["kind"] == "NodeRecord"]
    [info] = [_decoded("ChangefeedInfo", each["value"]) for each in first if each["kind"] == "ChangefeedInfo"]
    statuses = [_decoded("ChangefeedStatus", each["value"]) for each in first if each["kind"] == "ChangefeedStatus"]
    assert isinstance(node, NodeRecord)
    assert isinstance(info, ChangefeedInfo)
    assert node.captures == {Capture.CHANGE_STREAM}
    assert info.capture is Capture.CHANGE_STREAM
    assert {getattr(status, "capture", None) for status in statuses} == {Capture.CHANGE_STREAM}


def test_a_release_has_recorded_each_kind_of_value() -> None:
    recorded = {each["kind"] for each in _VALUES}
    layout = Path(coordination.layout.__file__).read_text()
    records = Path(changefeed.records.__file__).read_text()
    parts = {"NodeHealth", "Scope", "ObservedTable", "Observation", "AssignedTable", "CopiedChunk", "CopyProgress"}
    later = {"RemovedChangefeed", "Straggler", "TableRequest", "SkipRequest", "TargetRename", "RepairRequest"}
    parts |= {"LetterTotals", "CopyFloor", "CopyRate", "ChunkPiece"}
    kinds = set(re.findall(r"^class (\w+):$", records + layout, re.MULTILINE)) - parts - {"Layout"}
    assert kinds - later <= recorded | {"TableSchema"}


@pytest.mark.parametrize("release", _RELEASES, ids=lambda release: release.name)
def test_the_admin_api_only_grows(release: Path) -> None:
    """A CLI of one release talks with nodes of another: no field, method or number goes away or changes its meaning."""
    spoken = {*_spoken(admin_pb2), *_spoken(verify_pb2)}
    missing = [line for line in (release / "admin_api.txt").read_text().splitlines() if line not in spoken]
    assert not missing


def _spoken(stub: ModuleType) -> list[str]:
    api = FileDescriptorProto()
    stub.DESCRIPTOR.CopyToProto(api)
    fields = [
        f"{message.name}.{field.name} = {field.number} type {field.type} label {field.label}"
        for message in api.message_type
        for field in message.field
    ]
    enums = [f"{enum.name}.{value.name} = {value.number}" for enum in api.enum_type for value in enum.value]
    methods = [
        f"{service.name}.{method.name}({method.input_type}) {method.output_type} stream {method.server_streaming}"
        for service in api.service
        for method in service.method
    ]
    return [*fields, *enums, *methods]


def _held(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(name in whole and _held(part[name], whole[name]) for name in part)
    return bool(part == whole)
