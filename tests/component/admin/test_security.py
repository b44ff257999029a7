"""Access to the admin API: tokens, TLS, client certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from tests.certificates import Certificates
from tests.component.node.server_process import Server
from tests.until import PATIENCE_SECONDS

_VIEWER, _OPERATOR = "v" * 40, "o" * 40
_READING = ("Get", "List", "Watch")


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """Paths of the server's token file and of the tokens of a viewer, an operator and an unknown user."""
    texts = {
        "server": f"ci:viewer:{_VIEWER}\nmaria:operator:{_OPERATOR}\n",
        "viewer": _VIEWER,
        "operator": _OPERATOR,
        "stranger": "s" * 40,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in texts}


def _status(channel: Any, service: str, method: Any, secret: str | None) -> str:
    path, metadata = f"/{service}/{method.name}", [("authorization", f"Bearer {secret}")] if secret else []
    make = channel.unary_stream if method.server_streaming else channel.unary_unary
    try:
        answer = make(path)(b"", timeout=PATIENCE_SECONDS, metadata=metadata)
        if method.server_streaming:
            list(answer)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def test_every_method_wants_a_token_and_changes_want_an_operators(
    etcd_endpoint: str, tmp_path: Path, tokens: dict[str, str]
) -> None:
    methods = [
        (service.full_name, method) for service in pb.DESCRIPTOR.services_by_name.values() for method in service.methods
    ]
    assert len(methods) > 15
    with (
        Server(etcd_endpoint, tmp_path / "log", "--token-file", tokens["server"]) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        for service, method in methods:
            assert _status(channel, service, method, None) == "UNAUTHENTICATED", method.name
            assert _status(channel, service, method, "s" * 40) == "UNAUTHENTICATED", method.name
            viewers = _status(channel, service, method, _VIEWER)
            assert (viewers == "PERMISSION_DENIED") is not method.name.startswith(_READING), method.name
            assert _status(channel, service, method, _OPERATOR) not in ("PERMISSION_DENIED", "UNAUTHENTICATED")
        assert _VIEWER not in server.log
        assert _OPERATOR not in server.log


def test_the_command_line_sends_its_token(etcd_endpoint: str, tmp_path: Path, tokens: dict[str, str]) -> None:
    with Server(etcd_endpoint, tmp_path / "log", "--token-file", tokens["server"]) as server:
        without = server.sluice("node", "list")
        assert (without.returncode, "--token-file" in without.stderr) == (1, True)
        stranger = server.sluice("node", "list", "--token-file", tokens["stranger"])
        assert (stranger.returncode, "does not know the token" in stranger.stderr) == (1, True)
        viewer = {"SLUICE_TOKEN_FILE": tokens["viewer"]}
        assert server.sluice("node", "list", environment=viewer).returncode == 0
        refused = server.sluice("changefeed", "pause", "f", environment=viewer)
        assert (refused.returncode, "needs the role operator" in refused.stderr) == (1, True)
        assert server.sluice("changefeed", "pause", "f", "--token-file", tokens["operator"]).returncode == 3


def test_with_a_client_ca_nobody_gets_in_without_a_certificate(
    etcd_endpoint: str, tmp_path: Path, certificates: Certificates
) -> None:
    cert, key = map(str, certificates.issue("server"))
    ca = str(certificates.ca)
    mine = [str(path) for path in certificates.issue("client")]
    (tmp_path / "other").mkdir()
    theirs = [str(path) for path in Certificates(tmp_path / "other").issue("client")]
    flags = ("--admin-cert", cert, "--admin-key", key, "--admin-client-ca", ca)
    with Server(etcd_endpoint, tmp_path / "log", *flags) as server:
        assert server.sluice("node", "list").returncode == 5
        assert server.sluice("node", "list", "--ca", ca).returncode == 5
        stranger = server.sluice("node", "list", "--ca", ca, "--cert", theirs[0], "--key", theirs[1])
        assert stranger.returncode == 5
        known = server.sluice("node", "list", "--ca", ca, "--cert", mine[0], "--key", mine[1])
        assert (known.returncode, "n1-" in known.stdout) == (0, True)


def test_tokens_are_read_anew_when_their_file_changes(
    etcd_endpoint: str, tmp_path: Path, tokens: dict[str, str]
) -> None:
    file, stranger = Path(tokens["server"]), ("node", "list", "--token-file", tokens["stranger"])
    with Server(etcd_endpoint, tmp_path / "log", "--token-file", tokens["server"]) as server:
        assert server.sluice(*stranger).returncode == 1
        file.write_text("operator: damaged\n")
        assert server.sluice("node", "list", "--token-file", tokens["operator"]).returncode == 0
        file.write_text(f"ci:viewer:{'s' * 40}\n")
        assert server.sluice(*stranger).returncode == 0
        assert server.sluice("node", "list", "--token-file", tokens["operator"]).returncode == 1


def test_the_certificate_is_read_anew_when_its_files_change(
    etcd_endpoint: str, tmp_path: Path, certificates: Certificates
) -> None:
    (tmp_path / "other").mkdir()
    other = Certificates(tmp_path / "other")
    cert, key = (tmp_path / name for name in ("tls.crt", "tls.key"))

    def put(pair: tuple[Path, Path]) -> None:
        for path, content in zip((cert, key), pair, strict=True):
            path.write_bytes(content.read_bytes())

    put(certificates.issue("server"))
    with Server(etcd_endpoint, tmp_path / "log", "--admin-cert", str(cert), "--admin-key", str(key)) as server:
        assert server.sluice("node", "list", "--ca", str(certificates.ca)).returncode == 0
        cert.write_bytes(other.issue("server")[0].read_bytes())
        assert server.sluice("node", "list", "--ca", str(certificates.ca)).returncode == 0, "a pair that does not fit"
        put(other.issue("server"))
        assert server.sluice("node", "list", "--ca", str(other.ca)).returncode == 0
        assert server.sluice("node", "list", "--ca", str(certificates.ca)).returncode == 5


def test_tls_without_client_certificates_takes_tokens(
    etcd_endpoint: str, tmp_path: Path, certificates: Certificates, tokens: dict[str, str]
) -> None:
    cert, key = map(str, certificates.issue("server"))
    flags = ("--admin-cert", cert, "--admin-key", key, "--token-file", tokens["server"])
    with Server(etcd_endpoint, tmp_path / "log", *flags) as server:
        listed = server.sluice("node", "list", "--ca", str(certificates.ca), "--token-file", tokens["viewer"])
        assert listed.returncode == 0, listed.stderr
