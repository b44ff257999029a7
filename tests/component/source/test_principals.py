"""A member that is behind does not make users look dropped."""

from __future__ import annotations

from contextlib import closing

import pytest

from changefeed.capture import Capture
from changefeed.errors import SourceUnavailable
from devstack.mongodb.server import TESTING
from source.connection import connect
from source.one_deployment import read_principals
from tests.conftest import ReplicaSets


def test_users_are_read_as_the_majority_has_them_now(own_replica_set: ReplicaSets) -> None:
    """Whichever members are preferred: what they lack would be dropped at the target."""
    members = own_replica_set("behind", parameters=TESTING, election_timeout_ms=60_000)
    with (
        members.client() as client,
        closing(connect(members.uri_of(readPreference="secondary"), capture=Capture.OPLOG)) as reader,
    ):
        assert read_principals(reader).users == {}
        members.hold_majority()
        client.admin.command("createUser", "late", pwd="x", roles=[], writeConcern={"w": 1})
        with pytest.raises(SourceUnavailable):
            read_principals(reader)
        members.release_majority()
        assert set(read_principals(reader).users) == {"admin.late"}
