"""A row that is read to mend another is never older than the change that it mends."""

from __future__ import annotations

import bson
import pytest
from pymongo import WriteConcern

from changefeed.errors import SourceUnavailable
from changefeed.table import TableName
from devstack.mongodb import TESTING
from source.connection import connect, session_time
from source.row_read import read_row
from tests.conftest import ReplicaSets

_TABLE, _KEY = TableName("shop", "a"), bson.encode({"_id": 1})


def test_a_version_that_the_majority_has_not_got_yet_is_waited_for(own_replica_set: ReplicaSets) -> None:
    members = own_replica_set("rs", parameters=TESTING)
    with connect(members.uri) as client, client.start_session(causal_consistency=False) as session:
        rows = client["shop"].get_collection("a", write_concern=WriteConcern("majority"))
        rows.insert_one({"_id": 1, "version": "old"}, session=session)
        old_ts = session_time(session)
        members.hold_majority()
        rows.with_options(write_concern=WriteConcern(1)).replace_one(
            {"_id": 1}, {"_id": 1, "version": "new"}, session=session
        )
        new_ts = session_time(session)
        before = read_row(client, _TABLE, _KEY, not_before=old_ts)
        assert before is not None
        assert bson.decode(before)["version"] == "old"
        with pytest.raises(SourceUnavailable, match=r"shop\.a"):
            read_row(client, _TABLE, _KEY, not_before=new_ts, wait_ms=500)
        members.release_majority()
        after = read_row(client, _TABLE, _KEY, not_before=new_ts, wait_ms=20_000)
        assert after is not None
        assert bson.decode(after)["version"] == "new"


def test_a_row_that_is_gone_is_none(own_replica_set: ReplicaSets) -> None:
    members = own_replica_set("rs", size=1)
    with connect(members.uri) as client, client.start_session(causal_consistency=False) as session:
        client["shop"]["a"].insert_one({"_id": 2}, session=session)
        assert read_row(client, _TABLE, _KEY, not_before=session_time(session)) is None
