"""A hundred thousand operations of all kinds over twenty tables, with DDL between them."""

from __future__ import annotations

import pytest

from tests.component.processor.conftest import ReplicatingCluster
from tests.component.processor.workload import many_operations


@pytest.mark.soak
def test_100_000_operations_over_20_tables_with_ddl_end_in_equality(
    standing: ReplicatingCluster, database: str
) -> None:
    assert many_operations(standing, database, tables=20, operations=100_000) is None
