"""Which expiries the end of a migration restores at the target."""

from __future__ import annotations

import pytest

from admin.services.cut_over import expiries_to_restore
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.table import TableId, TableKind, TableName, TableSchema

_TTL_INDEX = Document.of({"v": 2, "key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 3600})


def table(name: str, kind: TableKind = TableKind.COLLECTION) -> TableSchema:
    at = Position(ClusterTime(1, 1))
    return TableSchema(id=TableId(name), name=TableName.parse(name), kind=kind, indexes=(_TTL_INDEX,), valid_from=at)


@pytest.mark.parametrize("ttl", ["deferred", "copied"])
def test_those_of_the_tables_that_are_wanted_whatever_ttl_is_now(ttl: str) -> None:
    """It may have been deferred when the target got them."""
    asked = {"id": "f", "source": "mongodb://a", "filter": {"tables": ["shop.*"]}, "ddl": {"ttl": ttl}}
    configuration = Configuration.parse({**asked, "sink": "mongodb://b"})
    tables = [table("shop.sessions"), table("shop.view", TableKind.VIEW), table("other.sessions")]
    [found] = expiries_to_restore(configuration, tables)
    assert (str(found.table), found.index, found.after.decode()) == (
        "shop.sessions",
        "at_1",
        {"expireAfterSeconds": 3600},
    )
