"""`ServerCertificates`: the certificate of the admin API, read again when its files were replaced."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

from changefeed.errors import ConfigurationError
from credentials.secrets import stamp

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """Paths of PEM files. `client_ca`: only clients with a certificate of this CA are admitted."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class ServerCertificates:
    """Files that do not belong together, as while they are replaced one by one, change nothing: they are looked at again at the next call."""

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._files = [path for path in (tls.cert, tls.key, tls.client_ca) if path is not None]
        self._stamp = stamp(self._files)
        self._first = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._first, self._replaced, require_client_authentication=self._tls.client_ca is not None
        )

    def _replaced(self) -> grpc.ServerCertificateConfiguration | None:
        """GRPC asks before each handshake. None: nothing has changed."""
        found = stamp(self._files)
        if found == self._stamp:
            return None
        try:
            configuration = self._read()
        except ConfigurationError as error:
            _log.warning("certificate_not_read_again", error=str(error))
            return None
        self._stamp = found
        _log.info("certificate_read_again", cert=str(self._tls.cert))
        return configuration

    def _read(self) -> grpc.ServerCertificateConfiguration:
        try:
            _check_pair(self._tls.cert, self._tls.key)
            client_ca = self._tls.client_ca.read_bytes() if self._tls.client_ca else None
            return grpc.ssl_server_certificate_configuration(
                ((self._tls.key.read_bytes(), self._tls.cert.read_bytes()),), client_ca
            )
        except OSError as error:
            raise ConfigurationError([f"admin.cert, admin.key, admin.client_ca: {error}"]) from None


def _check_pair(cert: Path, key: Path) -> None:
    """Raises OSError, of which errors of TLS are a kind."""
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
