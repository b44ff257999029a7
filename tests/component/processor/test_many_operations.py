"""A hundred thousand operations of all kinds over twenty tables, with DDL between them."""

from __future__ import annotations

import pytest

from tests.component.processor.conftest import ReplicatingCluster
from tests.component.processor.workload import write


@pytest.mark.soak
def test_100_000_operations_over_20_tables_with_ddl_end_in_equality(cluster: ReplicatingCluster, database: str) -> None:
    source = cluster.source[database]
    tables = [f"t{number}" for number in range(20)]
    cluster.start_owner("o1")
    feed = cluster.create("f", database)
    cluster.until(lambda: cluster.began(feed), "the beginning")
    for table in tables:
        source.create_collection(table)
    source["t7"].create_index("u", unique=True, sparse=True)
    cluster.start_processor("p1")
    write(cluster.source, database, tables, 30_000, seed=1)
    source["t1"].create_index("a")
    source["t2"].rename("t2new")
    tables[2] = "t2new"
    write(cluster.source, database, tables, 30_000, seed=2)
    source["t3"].drop()
    source["t4"].rename("t5", dropTarget=True)
    tables.remove("t4")
    source.create_collection("t3")
    write(cluster.source, database, tables, 40_000, seed=3)
    cluster.equal(database)
    status = cluster.status(feed)
    assert status is not None
    assert status.lifecycle.error is None
