"""A verification of one database on two real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from devstack.mongodb.server import Client
from sink.mongodb.connection import connect as connect_to_target
from source.opening import open_compared
from tests.component.verify.verified import Heard, Sides, Verified, Verify
from verify.replication import Checkpoints, Replication
from verify.verification import Verification, Wishes


@pytest.fixture
def sides(source_client: Client, target_client: Client, database: str) -> Sides:
    return Sides(database, source_client, target_client)


@pytest.fixture
def verify(source_uri: str, target_uri: str, database: str) -> Iterator[Verify]:
    """Runs a verification; `feed` holds fields of the configuration."""
    with closing(open_compared(source_uri, Capture.OPLOG)) as source, connect_to_target(target_uri) as target:

        def run(*, wishes: Wishes | None = None, checkpoints: Checkpoints | None = None, **feed: Any) -> Verified:
            fields = {"id": "f", "source": source_uri, "sink": target_uri, "filter": {"tables": [f"{database}.*"]}}
            heard = Heard()
            verification = Verification(
                configuration=Configuration.parse({**fields, **feed}),
                source=source,
                target=target,
                listener=heard,
                wishes=wishes or Wishes(),
                replication=Replication(checkpoints=checkpoints),
            )
            return Verified(verification.run(), heard)

        yield run
