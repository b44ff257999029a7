"""`tls_refusal`: why a server and this client do not agree on TLS. gRPC tells only that the connection failed.

Another handshake with the same files, without gRPC, shows what is wrong with the server's certificate. Of the client's the server says
nothing: gRPC closes the connection after the handshake, where a satisfied server sends its settings. So that one is checked here.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

_SECONDS = 5.0
_HTTP_2 = ["h2"]
_EXPIRED = 10
_REFUSED: Mapping[int, str] = {
    9: "it is not valid yet; compare the clocks of both machines",
    _EXPIRED: "it has expired; renew it",
    18: "it is signed by itself, and not by the CA of --ca; give the CA that signed it",
    19: "the CA of --ca has not signed it; give the CA that has",
    20: "the CA of --ca has not signed it; give the CA that has",
    21: "the CA of --ca has not signed it; give the CA that has",
    62: "it is not for this name; call the server by a name that its certificate has",
    64: "it is not for this address; call the server by a name that its certificate has",
}
"""By the numbers of X509_V_ERR."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF")


def tls_refusal(server: str, *, ca: Path, cert: Path | None, key: Path | None) -> str | None:
    """None if TLS is not what fails."""
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None and key is not None:
            context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        return f"the files of --ca, --cert and --key do not fit: {_reason(error)}; give PEM files, and the certificate's own key"
    except OSError:
        return None
    try:
        satisfied = _handshake(server, context)
    except ssl.SSLError as error:
        return _failed(server, error)
    except (OSError, ValueError):
        return None
    return None if satisfied else _refused_client(cert, key)


def speaks_tls(server: str) -> bool:
    """Whether a server that was called without TLS expects it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        _handshake(server, context)
    except (OSError, ValueError):
        return False
    return True


def _handshake(server: str, context: ssl.SSLContext) -> bool:
    """Whether the server stays connected after it."""
    context.set_alpn_protocols(_HTTP_2)
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    with (
        socket.create_connection((host, int(port)), _SECONDS) as connection,
        context.wrap_socket(connection, server_hostname=host) as encrypted,
    ):
        try:
            return bool(encrypted.recv(1))
        except ConnectionResetError:
            return False


def _failed(server: str, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {server} is refused: {_REFUSED.get(error.verify_code, error.verify_message)}"
    reason = _reason(error)
    if any(sign in reason for sign in _NO_TLS):
        return f"{server} does not speak TLS; leave --ca out"
    return f"TLS fails: {reason}"


def _refused_client(cert: Path | None, key: Path | None) -> str:
    if cert is None or key is None:
        return "the server requires a client certificate; give --cert and --key"
    if _expired(cert, key):
        return "the client certificate of --cert has expired; renew it"
    return (
        "the server refuses the client certificate of --cert, since it does not know the CA that signed it; give a certificate "
        "of the CA that the server's admin.client_ca contains"
    )


def _expired(cert: Path, key: Path) -> bool:
    """Python shows the dates of a certificate only to the other side of a handshake. This is one without a network, which trusts it."""
    here, there = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    here.check_hostname = False
    here.verify_mode = ssl.CERT_NONE
    there.verify_mode = ssl.CERT_REQUIRED
    there.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    there.load_verify_locations(cafile=cert)
    for context in (here, there):
        context.load_cert_chain(cert, key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = here.wrap_bio(to_client, to_server)
    server = there.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_code == _EXPIRED
    return False


def _reason(error: ssl.SSLError) -> str:
    return str(error.reason or error).upper().replace(" ", "_")
