"""`EtcdConnection`: gRPC channels to the members of one etcd, their credentials, calls that end before their deadline, and their errors as ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import grpc
from etcd3 import etcdrpc as rpc

from changefeed.errors import (
    ConfigurationError,
    CoordinationFull,
    CoordinationRefused,
    CoordinationUnavailable,
    FencedError,
    InvariantError,
    OutcomeUnknown,
    SluiceError,
)
from coordination.etcd.protocol import EtcdConfig, HistoryCompacted, Tls
from credentials.redaction import keep_secret
from credentials.secrets import stamp

HAS_LEADER = ("hasleader", "true")
"""Makes a member without a leader fail at once. Otherwise its calls time out and its streams stay silent forever."""

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # a watch that catches up gets up to 1,000 revisions in one message
    ("grpc.keepalive_time_ms", 10_000),  # notices a server that vanished without closing; etcd bans pings under 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),  # by default it grows to two minutes
    ("grpc.use_local_subchannel_pool", 1),  # otherwise clients of one process share connections and their back-off
)


class Endpoint:
    """One member: its channel and the stubs on it."""

    def __init__(self, address: str, tls: Tls | None) -> None:
        self.address = address
        self._files = _files(tls)
        self._stamp = stamp(self._files)
        self.channel = _channel(address, tls)
        self.kv = rpc.KVStub(self.channel)
        self.leases = rpc.LeaseStub(self.channel)
        self.watches = rpc.WatchStub(self.channel)
        self.auth = rpc.AuthStub(self.channel)

    @property
    def outdated(self) -> bool:
        """Whether its files of TLS were replaced: a channel keeps those that it was opened with, also when it connects again."""
        return stamp(self._files) != self._stamp


Method = Callable[[Endpoint], Callable[..., Any]]
Metadata = tuple[tuple[str, str], ...]
T = TypeVar("T")


class EtcdConnection:
    """Sends each call to the member that answered last, and to the next one if that fails."""

    def __init__(self, config: EtcdConfig) -> None:
        if not config.endpoints:
            raise ConfigurationError(["etcd.endpoints: empty; write at least one host:port"])
        self._config = config
        self._endpoints = [Endpoint(address, config.tls) for address in config.endpoints]
        self._former: list[Endpoint] = []
        """Replaced ones; other threads may still be in a call of theirs."""
        self._preferred = 0
        self._token: str | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        for endpoint in (*self._former, *self._endpoints):
            endpoint.channel.close()

    def call(self, method: Method, request: Any, *, txn: bool = False, timeout: timedelta | None = None) -> Any:
        """The answer of one member. A transaction that may have reached a member is not sent again: its outcome is unknown."""
        deadline = time.monotonic() + (timeout or self._config.timeout).total_seconds()
        for attempts_left in range(len(self._endpoints), 0, -1):
            endpoint = self.preferred
            try:
                share = (deadline - time.monotonic()) / attempts_left
                return self._attempt(endpoint, method, request, txn, time.monotonic() + share)
            except CoordinationUnavailable as error:
                if isinstance(error, HistoryCompacted):
                    raise
                self.avoid(endpoint)
                if attempts_left == 1 or isinstance(error, OutcomeUnknown):
                    raise
        raise AssertionError("the last attempt returns or raises")

    @property
    def preferred(self) -> Endpoint:
        return self._endpoints[self._preferred]

    def avoid(self, endpoint: Endpoint) -> None:
        """Prefer the next member from now on, unless another thread has already moved on. The next attempt reads new certificates."""
        with self._lock:
            if self.preferred is not endpoint:
                return
            if endpoint.outdated:
                self._former.append(endpoint)
                self._endpoints[self._preferred] = Endpoint(endpoint.address, self._config.tls)
            self._preferred = (self._preferred + 1) % len(self._endpoints)

    def streaming(self, open_stream: Callable[[Endpoint, Metadata], T]) -> T:
        """A refusal counts only with a fresh token: on a stream, etcd reports an expired token as a lack of privileges."""
        endpoint = self.preferred
        try:
            try:
                return self._open(endpoint, open_stream)
            except CoordinationRefused:
                if self._config.user is None:
                    raise
                self.forget_token()
                return self._open(endpoint, open_stream)
        except HistoryCompacted:
            raise
        except CoordinationUnavailable:
            self.avoid(endpoint)
            raise

    def _open(self, endpoint: Endpoint, open_stream: Callable[[Endpoint, Metadata], T]) -> T:
        try:
            return open_stream(
                endpoint, self.metadata(endpoint, time.monotonic() + self._config.timeout.total_seconds())
            )
        except grpc.RpcError as error:
            raise translate(*status(error), endpoint=endpoint.address) from error
        except ValueError as error:  # gRPC raises it on a closed channel
            raise CoordinationUnavailable(f"etcd at {endpoint.address}: {error}") from error

    def metadata(self, endpoint: Endpoint, deadline: float) -> Metadata:
        if self._config.user is None:
            return (HAS_LEADER,)
        with self._lock:
            if self._token is None:
                request = rpc.AuthenticateRequest(name=self._config.user, password=self._password())
                self._token = endpoint.auth.Authenticate(request, timeout=_left(deadline)).token
            return (HAS_LEADER, ("token", self._token))

    def _password(self) -> str:
        if self._config.password_file is None:
            return ""
        try:
            password = Path(self._config.password_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CoordinationUnavailable(
                f"etcd: the password file {self._config.password_file} cannot be read ({type(error).__name__}); put it there"
            ) from None
        keep_secret(password)
        return password

    def forget_token(self) -> None:
        with self._lock:
            self._token = None

    def _attempt(self, endpoint: Endpoint, method: Method, request: Any, txn: bool, deadline: float) -> Any:
        sent = False
        for renewed in (False, True):
            try:
                metadata = self.metadata(endpoint, deadline)
                sent = True
                return method(endpoint)(request, timeout=_left(deadline), metadata=metadata)
            except grpc.RpcError as error:
                code, details = status(error)
                if stale_token(details) and not renewed:
                    self.forget_token()
                    continue
                raise translate(code, details, endpoint=endpoint.address, txn=txn and sent) from error
            except ValueError as error:  # gRPC raises it on a closed channel
                raise CoordinationUnavailable(f"etcd at {endpoint.address}: {error}") from error
        raise AssertionError("the second attempt returns or raises")


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


def status(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """An error that a call raises is also the call itself, with its status."""
    if isinstance(error, grpc.Call):
        return error.code(), error.details() or ""
    return grpc.StatusCode.UNKNOWN, str(error)


def _files(tls: Tls | None) -> tuple[Path, ...]:
    return tuple(Path(path) for path in (tls.ca, tls.key, tls.cert) if path is not None) if tls else ()


def _channel(address: str, tls: Tls | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
    try:
        pem = [Path(path).read_bytes() if path else None for path in (tls.ca, tls.key, tls.cert)]
    except OSError as error:
        raise CoordinationUnavailable(
            f"etcd at {address}: {error.filename} cannot be read: {error.strerror}"
        ) from error
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(*pem), options=_CHANNEL_OPTIONS)


_Code = grpc.StatusCode

_NOT_TAKEN = ("failed to connect to all addresses", "etcdserver: no leader")
"""The text of gRPC if it had no connection, and of a member without a leader, which answers before it reads the request."""

_AUTHENTICATION = ("authentication", "password", "auth token", "user name", "auth store", "not enabled")
_TOO_LARGE = ("larger than max", "too large")
_MALFORMED = frozenset({_Code.INVALID_ARGUMENT, _Code.OUT_OF_RANGE, _Code.ALREADY_EXISTS, _Code.FAILED_PRECONDITION})
_REFUSED = frozenset({_Code.UNAUTHENTICATED, _Code.PERMISSION_DENIED, _Code.UNIMPLEMENTED})
_NOT_DONE = frozenset({_Code.RESOURCE_EXHAUSTED})
"""Overload: the request was refused as a whole, so a transaction's outcome is known."""


def translate(code: Any, details: str, *, endpoint: str, txn: bool = False) -> SluiceError:
    """Return the error to raise for a status. `txn`: the request was sent and could change something, if it reached etcd.

    how the call failed                                          raised
    etcd does not answer, is overloaded, has no leader           CoordinationUnavailable
    the same for a transaction that may have reached it          OutcomeUnknown
    etcd is out of space                                         CoordinationFull
    the revision was compacted                                   HistoryCompacted
    credentials or privileges                                    CoordinationRefused
    the lease named in a put is gone                             FencedError
    a request that etcd finds malformed: a bug in Sluice         InvariantError
    """
    said = f"etcd at {endpoint}: {details or 'no details'} ({getattr(code, 'name', code)})"
    if "compacted" in details:
        return HistoryCompacted(said)
    if code is _Code.NOT_FOUND and "lease not found" in details:
        return FencedError(f"{said}; the session of this lease is over")
    if stale_token(details) or code in _REFUSED or (code in _MALFORMED and _mentions(details, _AUTHENTICATION)):
        return CoordinationRefused(f"{said}; check user, password, role and certificates for etcd")
    if code in _MALFORMED or code is _Code.NOT_FOUND or _mentions(details, _TOO_LARGE):
        return InvariantError(said)
    return _unavailable(code, details, said, txn=txn)


def _unavailable(code: Any, details: str, said: str, *, txn: bool) -> CoordinationUnavailable:
    if "database space exceeded" in details:  # etcd may have applied the write that it refuses (see `CoordinationFull`)
        return CoordinationFull(f"{said}; compact and defragment etcd, then disarm its NOSPACE alarm")
    if txn and code not in _NOT_DONE and not _mentions(details, _NOT_TAKEN):
        return OutcomeUnknown(f"{said}; the transaction may or may not have happened")
    return CoordinationUnavailable(said)


def stale_token(details: str) -> bool:
    """The token has expired, or users or roles changed since it was issued. Nothing was done; a new token helps."""
    return "invalid auth token" in details or "revision of auth store is old" in details


def _mentions(details: str, words: tuple[str, ...]) -> bool:
    return any(word in details for word in words)
