"""A real server, channels to it, and certificates."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.component.node.server_process import Server


@pytest.fixture(scope="module")
def server(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(etcd_endpoint, Path(tmp_path_factory.mktemp("server")) / "log") as started:
        yield started


@pytest.fixture
def channel(server: Server) -> Iterator[Any]:
    with grpc.insecure_channel(server.address) as opened:
        yield opened


class Certificates:
    """A CA, and what it signed, as PEM files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ca = directory / "ca.pem"
        self._openssl("req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=test CA", out="ca")

    def issue(self, name: str) -> tuple[Path, Path]:
        """Certificate and key."""
        extensions = self._directory / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        request = self._directory / f"{name}.csr"
        cert, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        _run("req", "-nodes", "-newkey", "rsa:2048", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request))
        signing = ["-CA", str(self.ca), "-CAkey", str(self.ca.with_suffix(".key")), "-CAcreateserial", "-days", "2"]
        _run("x509", "-req", "-in", str(request), *signing, "-extfile", str(extensions), "-out", str(cert))
        return cert, key

    def _openssl(self, *arguments: str, out: str) -> None:
        cert, key = self._directory / f"{out}.pem", self._directory / f"{out}.key"
        _run(*arguments, "-keyout", str(key), "-out", str(cert))


def _run(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    directory = tmp_path / "certificates"
    directory.mkdir()
    return Certificates(directory)
