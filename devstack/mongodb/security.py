"""`Security`: members authenticate by a key file, users by their passwords; with TLS if there are certificates."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ADMINISTRATOR = "administrator"


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the CA of the members' certificate; the certificate for 127.0.0.1 with its key."""

    ca: Path
    certificate_and_key: Path


class Security:
    def __init__(self, directory: Path, tls: TlsFiles | None = None) -> None:
        self._tls = tls
        self._key_file = directory / "key"
        self._password = secrets.token_hex(16)
        directory.mkdir(parents=True, exist_ok=True)
        self._key_file.touch(mode=0o600)
        self._key_file.write_text(secrets.token_hex(64), encoding="ascii")

    @property
    def server_options(self) -> tuple[str, ...]:
        key = ("--keyFile", str(self._key_file))
        if self._tls is None:
            return key
        files = ("--tlsCertificateKeyFile", str(self._tls.certificate_and_key), "--tlsCAFile", str(self._tls.ca))
        return (*key, "--tlsMode", "requireTLS", "--tlsAllowConnectionsWithoutCertificates", *files)

    @property
    def client_options(self) -> dict[str, Any]:
        """The options of every client."""
        return {} if self._tls is None else {"tls": True, "tlsCAFile": str(self._tls.ca)}

    @property
    def administrator(self) -> dict[str, Any]:
        return {"username": ADMINISTRATOR, "password": self._password, "authSource": "admin"}
