"""A real server, channels to it, and certificates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.certificates import Certificates
from tests.component.node.server_process import Server


@pytest.fixture(scope="module")
def server(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(etcd_endpoint, Path(tmp_path_factory.mktemp("server")) / "log") as started:
        yield started


@pytest.fixture
def channel(server: Server) -> Iterator[Any]:
    with grpc.insecure_channel(server.address) as opened:
        yield opened


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    directory = tmp_path / "certificates"
    directory.mkdir()
    return Certificates(directory)
