"""A replica set of three members."""

from __future__ import annotations

import pytest
from pymongo import WriteConcern
from pymongo.errors import WTimeoutError

from devstack.mongodb.server import TESTING, Client
from tests.conftest import ReplicaSets

pytestmark = pytest.mark.soak  # every test that uses it would see its faults, too


def test_a_held_majority_stands_still_under_the_same_primary_until_it_is_released(own_replica_set: ReplicaSets) -> None:
    members = own_replica_set("rs", parameters=TESTING)
    primary = members.primary()
    with Client(members.uri) as client:
        _insert(client, "before", wait_ms=20_000)
        members.hold_majority()
        with pytest.raises(WTimeoutError):
            _insert(client, "held", wait_ms=1000)
        assert members.primary() is primary
        members.release_majority()
        _insert(client, "after", wait_ms=20_000)
        assert members.primary() is primary


def _insert(client: Client, id: str, *, wait_ms: int) -> None:
    durable = WriteConcern("majority", wtimeout=wait_ms)
    client["shop"].get_collection("a", write_concern=durable).insert_one({"_id": id})
