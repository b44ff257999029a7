"""One real node for all tests of this folder. A test removes its changefeed; one that kills the node starts it again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.component.node.server_process import Server
from tests.e2e.node.filed_changefeed import S3_KEYS

PATIENCE = ("--session-ttl", "10", "--grace", "150")  # nodes share two cores with their Spark
_SECRETS = {**S3_KEYS, "SLUICE_TEST_HASH_KEY": "correct horse battery"}


@pytest.fixture(scope="session")
def node(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("n1") / "log"
    with Server(etcd_endpoint, log, *PATIENCE, name="n1", roles="owner,processor", environment=_SECRETS) as started:
        yield started
