"""One real server for all tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.node.server_process import Server


@pytest.fixture(scope="session")
def server(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(etcd_endpoint, Path(tmp_path_factory.mktemp("server")) / "log") as started:
        yield started
