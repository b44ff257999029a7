"""`Connection`: a client of a node's admin API, which turns its errors into failures of a command.

Of a failed TLS connection gRPC tells only that it failed. Another handshake with the same files, without gRPC, shows what is wrong with the
server's certificate (`tls_refusal`). Of the client's the server says nothing: gRPC closes the connection after the handshake, where a satisfied
server sends its settings. So that one is checked here.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc

from admin import CODE_KEY, DETAILS_KEY
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.stubs.sluice.admin.v1 import admin_pb2_grpc as rpc
from admin.stubs.sluice.admin.v1.verify_pb2_grpc import VerifyServiceStub
from changefeed.errors import ConfigurationError, CoordinationFull, CoordinationUnavailable, OutcomeUnknown
from cli.output import ExitCode, Failure

VALIDATION_SECONDS = 90.0
"""For a call that has the server look at source and target."""
DEFAULT_SERVER = "127.0.0.1:8300"

_FIELDS = ("server", "token_file", "ca", "cert", "key")
_UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_EXIT_CODES: Mapping[grpc.StatusCode, ExitCode] = {
    grpc.StatusCode.NOT_FOUND: ExitCode.NOT_FOUND,
    grpc.StatusCode.ABORTED: ExitCode.CONFLICT,
}
_NO_ANSWER = frozenset({CoordinationUnavailable.code, CoordinationFull.code, OutcomeUnknown.code})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """`ca` enables TLS; `cert` and `key` are the client's certificate, for a server that requires one."""

    server: str = DEFAULT_SERVER
    token_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @classmethod
    def found(cls, flags: Mapping[str, Any], environment: Mapping[str, str]) -> ServerAddress:
        """Flags have precedence, then SLUICE_SERVER and SLUICE_TOKEN_FILE, then the file of SLUICE_CONFIG or ~/.config/sluice/config.yaml."""
        named, path = environment.get("SLUICE_CONFIG"), configuration_file(environment)
        if not (named or path.is_file()) and (flags.get("context") or environment.get("SLUICE_CONTEXT")):
            raise Failure(ExitCode.USAGE, f"--context: there is no file {path}")
        filed = _in_context(path, read_contexts(path), flags, environment) if named or path.is_file() else {}
        token = {"token_file": environment["SLUICE_TOKEN_FILE"]} if environment.get("SLUICE_TOKEN_FILE") else {}
        server = {"server": environment["SLUICE_SERVER"]} if environment.get("SLUICE_SERVER") else {}
        given = {name: value for name, value in flags.items() if value is not None and name != "context"}
        merged = {**filed, **server, **token, **given}
        server_named = str(merged.pop("server", DEFAULT_SERVER))
        return cls(server=_host_and_port(server_named), **{name: Path(value) for name, value in merged.items()})


def _host_and_port(text: str) -> str:
    """The port may be left out. gRPC would take a URL for a name to be resolved, and answer after a minute that there is none."""
    scheme, separator, rest = text.partition("://")
    if separator:
        raise Failure(
            ExitCode.USAGE,
            f"--server: found {text!r}; write {rest.strip('/')} without {scheme}://"
            + (", and the CA of its certificate with --ca" if scheme == "https" else ""),
        )
    host, colon, port = text.rpartition(":")
    if colon and not port.isdecimal() and not text.endswith("]"):
        raise Failure(ExitCode.USAGE, f"--server: found {text!r}; write HOST:PORT, such as {DEFAULT_SERVER}")
    plain = not colon or text.endswith("]")
    return f"{text}:{DEFAULT_SERVER.rpartition(':')[2]}" if plain else f"{host}:{port}"


def read_contexts(path: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - most users have no such file

    try:
        fields = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Failure(ExitCode.USAGE, f"{path}: cannot be read: {error}") from None
    if not isinstance(fields, dict):
        raise Failure(ExitCode.USAGE, f"{path}: write a mapping of {', '.join(_FIELDS)} to strings")
    contexts = fields.get("contexts", {})
    if not isinstance(contexts, dict):
        raise Failure(ExitCode.USAGE, f"{path}: contexts: write a mapping of names to {', '.join(_FIELDS)}")
    for at, known in (("", {key: value for key, value in fields.items() if key != "contexts"}), *contexts.items()):
        allowed = _FIELDS if at else (*_FIELDS, "context", "contexts")
        if not isinstance(known, dict) or any(not isinstance(value, str) for value in known.values()):
            raise Failure(
                ExitCode.USAGE, f"{path}: {at and f'{at}: '}write a mapping of {', '.join(_FIELDS)} to strings"
            )
        unknown = sorted(set(known) - set(allowed))
        if unknown:
            raise Failure(ExitCode.USAGE, f"{path}: unknown key {unknown[0]!r}; allowed are {', '.join(allowed)}")
    return fields


def configuration_file(environment: Mapping[str, str]) -> Path:
    named = environment.get("SLUICE_CONFIG")
    return Path(named) if named else Path(environment.get("HOME", "/")) / ".config" / "sluice" / "config.yaml"


def _in_context(
    path: Path, filed: dict[str, Any], flags: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """The fields of the chosen context, over those that all contexts share."""
    contexts, chosen = filed.pop("contexts", {}), filed.pop("context", None)
    name = flags.get("context") or environment.get("SLUICE_CONTEXT") or chosen
    if name is not None and name not in contexts:
        raise Failure(
            ExitCode.USAGE, f"{path}: there is no context {name!r}; it has {', '.join(sorted(contexts)) or 'none'}"
        )
    return {**filed, **(contexts[name] if name is not None else {})}


class Connection:
    """A context manager. Calls use its stubs, inside `translated`."""

    def __init__(self, address: ServerAddress, *, certified: str | None = None) -> None:
        """`certified`: the name that the server's certificate has to have, instead of the address's host."""
        self.address = address
        self._channel = _channel(address, certified)
        self.metadata = _metadata(address)
        self.changefeeds = rpc.ChangefeedServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self.nodes = rpc.NodeServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self.tables = rpc.TableServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self.ddls = rpc.DdlServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self.cluster = rpc.ClusterServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self.verifications = VerifyServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def close(self) -> None:
        self._channel.close()

    def ask(self, method: Any, request: Any, *, timeout: float = 60.0) -> Any:
        """A call with one response."""
        with self.translated():
            return method(request, timeout=timeout, metadata=self.metadata)

    def stream(self, method: Any, request: Any, *, timeout: float | None = None) -> Iterator[Any]:
        with self.translated():
            yield from method(request, timeout=timeout, metadata=self.metadata)

    def tables_of(self, changefeed: str, *, timeout: float | None = None) -> Iterator[pb.Table]:
        for page in self.stream(self.tables.ListTables, pb.ListTablesRequest(changefeed=changefeed), timeout=timeout):
            yield from page.tables

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise _failure(error, self.address) from None


def _failure(error: Any, address: ServerAddress) -> Failure:
    server, status, details = address.server, error.code(), error.details() or ""
    trailing = dict(error.trailing_metadata() or ())
    code = trailing.get(CODE_KEY)
    if code is None:
        if status is grpc.StatusCode.UNAVAILABLE and (refused := _refused_by_tls(address)) is not None:
            return Failure(ExitCode.UNREACHABLE, f"no connection to the server at {server}: {refused}")
        if status in _UNREACHABLE:
            return Failure(
                ExitCode.UNREACHABLE,
                f"the server at {server} does not answer: {details}",
                "choose another one with --server or SLUICE_SERVER, or start one with `sluice server`",
            )
        return Failure(ExitCode.FAILED, f"the server at {server} answers {status.name}: {details}")
    problems = (
        list(pb.ErrorDetails.FromString(trailing[DETAILS_KEY]).problems) if DETAILS_KEY in trailing else [details]
    )
    if code in _NO_ANSWER:
        return Failure(ExitCode.UNREACHABLE, *problems)
    if code == ConfigurationError.code and len(problems) > 1:
        return Failure(ExitCode.FAILED, f"{len(problems)} problems:", *(f"  - {problem}" for problem in problems))
    return Failure(_EXIT_CODES.get(status, ExitCode.FAILED), *problems)


def _refused_by_tls(address: ServerAddress) -> str | None:
    if address.ca is not None:
        return tls_refusal(address.server, ca=address.ca, cert=address.cert, key=address.key)
    return "it speaks TLS; give the CA of its certificate with --ca" if speaks_tls(address.server) else None


def _channel(address: ServerAddress, certified: str | None) -> Any:
    if address.ca is None:
        if address.cert is not None or address.key is not None:
            raise Failure(ExitCode.USAGE, "--cert and --key need TLS; give --ca as well")
        return grpc.insecure_channel(address.server)
    if (address.cert is None) != (address.key is None):
        raise Failure(ExitCode.USAGE, "--cert and --key belong together; give both or none")
    pem = [_read(path) if path else None for path in (address.ca, address.key, address.cert)]
    options = [("grpc.ssl_target_name_override", certified)] if certified else None
    return grpc.secure_channel(address.server, grpc.ssl_channel_credentials(*pem), options)


def _metadata(address: ServerAddress) -> tuple[tuple[str, str], ...]:
    if address.token_file is None:
        return ()
    lines = _read(address.token_file).decode(errors="replace").split()
    if len(lines) != 1:
        raise Failure(ExitCode.USAGE, f"{address.token_file}: expected one token and nothing else")
    return (("authorization", f"Bearer {lines[0].rpartition(':')[2]}"),)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Failure(ExitCode.USAGE, f"{path}: cannot be read: {error.strerror}") from None


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
