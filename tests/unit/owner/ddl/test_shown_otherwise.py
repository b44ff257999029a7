"""A rename must not change which fields of a table's rows are left out."""

from __future__ import annotations

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableName
from owner.ddl.execution import shown_otherwise

CONFIGURATION = Configuration.parse(
    {
        "id": "f",
        "source": "mongodb://a",
        "sink": "mongodb://b",
        "filter": {"tables": ["shop.*"]},
        "columns": [{"tables": ["*.users*"], "drop": ["ssn"]}],
    }
)


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ("shop.users", "shop.people", True),
        ("shop.people", "shop.users", True),
        ("shop.users", "shop.users_old", False),
        ("shop.orders", "shop.sales", False),
        ("shop.users", "elsewhere.people", False),
    ],
)
def test_a_rename_that_shows_other_fields_is_refused(old: str, new: str, *, refused: bool) -> None:
    rename = DdlEvent(
        position=Position(ClusterTime(5, 1)),
        type=DdlType.RENAME,
        db="shop",
        table=TableName.parse(old),
        renamed_to=TableName.parse(new),
    )
    assert bool(shown_otherwise(rename, CONFIGURATION)) is refused
