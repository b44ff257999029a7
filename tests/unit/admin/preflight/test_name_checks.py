"""What a changefeed may share with others, and what an update may leave behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admin.cluster_reader import ClusterReader
from admin.preflight import name_checks, sink_checks
from admin.preflight.deployment import DeploymentIdentity
from admin.preflight.looked import Looked, SourceFindings, Update
from admin.preflight.sink_probe import SinkFindings, TargetTables
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus, LetterTotals
from changefeed.table import TableId, TableName, TableSchema
from coordination.etcd.protocol import Put
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from owner.etcd_view import OwnerView
from tests.memory_etcd import MemoryEtcd

LAYOUT, NOW, START = Layout("test"), datetime(2026, 11, 21, tzinfo=UTC), Position(ClusterTime(100, 1))


def configuration(**fields: Any) -> Configuration:
    return Configuration.parse({"id": "f", "source": "mongodb://s", "sink": "mongodb://t1", **fields})


def table(name: str) -> TableSchema:
    return TableSchema(id=TableId(name), name=TableName.parse(name), valid_from=START)


def known(wanted: Configuration, *tables: TableSchema, letters: int = 0, sink: str = "") -> OwnerView:
    """A changefeed that runs, as etcd shows it. `sink`: the id of its target."""
    etcd, id = MemoryEtcd(), ChangefeedId(wanted.id)
    info = ChangefeedInfo(configuration=wanted, created_at=NOW, sink_id=sink, source_id="source")
    status = ChangefeedStatus(
        start=START,
        checkpoint=START,
        resolved=START,
        info_version=1,
        epoch=1,
        letters=LetterTotals(count=letters),
    )
    records = {LAYOUT.info(id): info, LAYOUT.status(id): status}
    records |= {LAYOUT.schema(id, each.id): each for each in tables}
    etcd.txn([], [Put(key, encode(record)) for key, record in records.items()])
    mirror = Mirror(etcd.connect(), LAYOUT.root)
    while mirror.poll(timedelta()):
        pass
    return ClusterReader(mirror, LAYOUT).changefeed(id)


def looked(wanted: Configuration, *tables: TableSchema, sink: str | None = None, **more: Any) -> Looked:
    found = SourceFindings(tables=tables, identity=DeploymentIdentity(id="source"))
    target = SinkFindings(identity=DeploymentIdentity(id=sink))
    return Looked(configuration=wanted, source=found, sink=target, choice=None, **more)


@pytest.mark.parametrize(
    ("theirs", "here", "there", "refused"),
    [
        ("mongodb://t1", None, "", True),
        ("mongodb://t2", None, "", False),
        ("mongodb://t2", "one", "one", True),
        ("mongodb://t1", "one", "another", False),
    ],
)
def test_one_target_is_known_by_its_id_whatever_its_hosts_are_called(
    theirs: str, here: str | None, there: str, refused: bool
) -> None:
    orders = table("shop.orders")
    others = {ChangefeedId("g"): known(configuration(id="g", sink=theirs), orders, sink=there)}
    found = name_checks.PROBLEMS
    problems = [each for check in found for each in check(looked(configuration(), orders, sink=here, others=others))]
    assert [each.partition(":")[0] for each in problems] == ["routes"] * refused
    letters = configuration(dead_letter="shop.orders", filter={"tables": ["else.*"]})
    problems = [each for check in found for each in check(looked(letters, sink=here, others=others))]
    assert any(each.startswith("dead_letter: ") for each in problems) is refused


@pytest.mark.parametrize("to", ["sluice.other", None])
def test_letters_that_are_open_keep_their_table(to: str | None) -> None:
    before = configuration(dead_letter="sluice.rejected")

    def problems(letters: int, wanted: Configuration) -> list[str]:
        update = Update(known=known(before, letters=letters))
        found = looked(wanted, before=before, replaces=update)
        return [each for check in name_checks.PROBLEMS for each in check(found)]

    [problem] = problems(2, configuration(dead_letter=to))
    assert "2 rows" in problem
    assert "sluice.rejected" in problem
    assert problems(0, configuration(dead_letter=to)) == []
    assert problems(2, before) == []


def test_a_table_that_joins_others_under_one_name_finds_their_rows_there() -> None:
    wanted = configuration(routes=[{"from": "*.orders", "to": "all.orders"}])
    europe, asia = table("eu.orders"), table("asia.orders")
    there = TargetTables(occupied=frozenset({TableName("all", "orders")}))

    def problems(update: Update) -> list[str]:
        found = looked(wanted, europe, asia, at_target=there, replaces=update, before=wanted)
        return [each for check in sink_checks.PROBLEMS for each in check(found) if "documents already" in each]

    assert problems(Update(known=known(wanted, europe), tables=(europe,))) == []
