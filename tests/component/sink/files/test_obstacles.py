"""What keeps a changefeed from writing into a directory is said before it is created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from admin.preflight.looked import Looked, SourceFindings
from admin.preflight.sink_checks import deltas, messages
from admin.preflight.sink_probe import SinkFindings, probe_sink
from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.capture_choice import CaptureChoice
from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.table import TableId, TableKind, TableName, TableSchema


def _configuration(directory: Path, **more: Any) -> Configuration:
    return Configuration.parse({"id": "f", "source": "mongodb://s", "sink": f"file://{directory}", **more})


def _table(name: str, kind: TableKind = TableKind.COLLECTION) -> TableSchema:
    return TableSchema(id=TableId(name), name=TableName.parse(name), kind=kind, valid_from=Position(ClusterTime(1, 1)))


def _looked(
    configuration: Configuration,
    *tables: TableSchema,
    version: tuple[int, int] = (6, 0),
    capture: Capture = Capture.OPLOG,
    before: Configuration | None = None,
) -> Looked:
    return Looked(
        configuration=configuration,
        source=SourceFindings(version=version, tables=tables),
        sink=SinkFindings(),
        choice=CaptureChoice(capture=capture, reason=""),
        before=before,
    )


def _obstacles(configuration: Configuration, *tables: TableSchema, capture: Capture = Capture.OPLOG) -> list[str]:
    return list(messages(_looked(configuration, *tables, capture=capture)))


def test_an_empty_or_missing_directory_is_no_obstacle(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "new"):
        assert probe_sink(_configuration(directory)).problems == ()
        assert _obstacles(_configuration(directory), _table("a.b")) == []


def test_a_directory_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "feed.json").write_text("{}")
    [problem] = _obstacles(_configuration(tmp_path))
    assert "is not empty; name an empty directory" in problem


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    [problem] = probe_sink(_configuration(tmp_path / "missing" / "new")).problems
    assert "No such file or directory" in problem


@pytest.mark.parametrize(
    ("tables", "capture", "reason"),
    [
        ([_table("x.b"), _table("x.c")], Capture.OPLOG, "share one name (x.b, x.c)"),
    ],
)
def test_what_has_no_messages_is_refused(
    tmp_path: Path, tables: list[TableSchema], capture: Capture, reason: str
) -> None:
    configuration = _configuration(tmp_path, routes=[{"from": "x.*", "to": "all.rows"}])
    [problem] = _obstacles(configuration, *tables, capture=capture)
    assert reason in problem


@pytest.mark.parametrize(("version", "reason"), [((5, 0), "change streams of MongoDB 5.0"), ((6, 0), "")])
def test_change_streams_are_read_where_they_show_all_ddl(tmp_path: Path, version: tuple[int, int], reason: str) -> None:
    found = list(messages(_looked(_configuration(tmp_path), version=version, capture=Capture.CHANGE_STREAM)))
    assert [reason in problem for problem in found] == ([True] if reason else [])


def test_an_update_may_change_limits_only(tmp_path: Path) -> None:
    before = _configuration(tmp_path)
    changes = (
        (_configuration(tmp_path, copy_limit="5000 docs/s"), ""),
        (_configuration(tmp_path / "other"), "sink"),
        (_configuration(tmp_path, filter={"tables": ["a.*"]}), "filter.tables"),
        (Configuration.parse({"id": "f", "source": "mongodb://s", "sink": "mongodb://t"}), "sink"),
    )
    for configuration, changed in changes:
        found = list(messages(_looked(configuration, before=before)))
        assert [problem.partition(":")[0] for problem in found] == ([changed] if changed else [])


@pytest.mark.parametrize(
    ("sink", "changed"), [("s3://${env:K2}:${env:S2}@orders/p", []), ("s3://${env:K}:${env:S}@orders/q", ["sink"])]
)
def test_an_update_may_change_the_keys_of_a_bucket_but_not_the_bucket(sink: str, changed: list[str]) -> None:
    before, after = (
        Configuration.parse({"id": "f", "source": "mongodb://s", "sink": uri})
        for uri in ("s3://${env:K}:${env:S}@orders/p", sink)
    )
    found = messages(_looked(after, before=before))
    assert [problem.partition(":")[0] for problem in found] == changed


def test_updates_of_deltas_are_warned_of() -> None:
    sink = {"id": "f", "source": "mongodb://s", "sink": "kafka://b:9092/shop?format=debezium"}
    [warning] = deltas(_looked(Configuration.parse(sink)))
    assert "images: available" in warning
    assert list(deltas(_looked(Configuration.parse(sink | {"images": "available"})))) == []
