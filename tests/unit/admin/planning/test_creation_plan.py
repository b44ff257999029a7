from __future__ import annotations

from datetime import timedelta
from typing import Any

from admin.planning.creation_plan import AtTarget, CopySample, copy_estimate, oplog_warnings, planned_tables
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.table import TableId, TableKind, TableName, TableSchema, TableSize
from cli.views import estimate_line

BIG, VIEW, NEW = TableName("s", "big"), TableName("s", "view"), TableName("s", "new")


def configuration(**fields: Any) -> Configuration:
    return Configuration.parse({"id": "f", "source": "mongodb://a", "sink": "mongodb://b", **fields})


def schema(name: TableName, kind: TableKind = TableKind.COLLECTION) -> TableSchema:
    return TableSchema(id=TableId(str(name)), name=name, kind=kind, valid_from=Position(ClusterTime(1, 1)))


def planned(**fields: Any) -> list[pb.PlannedTable]:
    tables = [schema(VIEW, TableKind.VIEW), schema(NEW), schema(BIG)]
    sizes = {BIG: TableSize(documents=1_000_000, bytes=8_000_000_000)}
    there = {TableName("d", "big"): AtTarget.OCCUPIED}
    routes = [{"from": "s.big", "to": "d.big"}]
    return list(
        planned_tables(
            configuration(routes=routes, **fields),
            tables,
            sizes,
            lambda _, size: 1 + size.bytes // 64_000_000,
            lambda name: there.get(name, AtTarget.CREATED),
        )
    )


def estimate(oplog: timedelta | None = None, **fields: Any) -> pb.CopyEstimate:
    wanted = configuration(**fields)
    return copy_estimate(wanted, planned(), CopySample(read_rate=80_000_000, send_rate=30_000_000, oplog=oplog))


def test_each_table_has_its_name_size_and_chunks_and_what_the_target_has() -> None:
    big, new, view = planned()
    assert (big.target, big.chunks, big.at_target) == ("d.big", 126, AtTarget.OCCUPIED)
    assert (new.HasField("documents"), new.chunks, new.at_target) == (False, 1, AtTarget.CREATED)
    assert view.chunks == 0


def test_nothing_is_copied_for_a_start_that_only_follows() -> None:
    assert [table.chunks for table in planned(start="now")] == [0, 0, 0]


def test_a_target_writes_a_quarter_of_what_the_source_gives() -> None:
    found = estimate()
    assert (found.takes.seconds, found.tables, found.chunks, found.limited) == (400, 2, 127, False)
    assert estimate_line(found) == "copy: 1,000,000 docs, 8.0 GB of 2 tables, in about 127 chunks, about 7min"


def test_a_limit_that_is_slower_decides() -> None:
    found = estimate(copy_limit="4MB/s")
    assert (found.takes.seconds, found.limited) == (2_000, True)
    assert estimate(copy_limit="100 docs/s").takes.seconds == 10_000
    assert not estimate(copy_limit="1GB/s").limited


def test_without_a_measurement_there_is_no_time() -> None:
    found = copy_estimate(configuration(), planned(), CopySample())
    assert not found.HasField("takes")
    assert not list(oplog_warnings(configuration(), found, ()))


def test_an_oplog_that_is_shorter_than_the_copy_is_warned_of() -> None:
    assert not list(oplog_warnings(configuration(), estimate(timedelta(seconds=500)), ()))
    [told] = oplog_warnings(configuration(), estimate(timedelta(seconds=300)), ())
    assert "lasts about 0 h 05 min, and the copy takes about 0 h 07 min; a copy is followed" in told
    [told] = oplog_warnings(configuration(on_occupied="keep"), estimate(timedelta(seconds=300)), ())
    assert "since on_occupied is keep, the copy needs all changes since its start" in told
