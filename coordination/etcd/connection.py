"""`EtcdConnection`: gRPC channels to the members of one etcd, their credentials, and calls that end before their deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import grpc
from etcd3 import etcdrpc as rpc

from changefeed.errors import ConfigurationError, CoordinationRefused, CoordinationUnavailable, OutcomeUnknown
from coordination.etcd.config import EtcdConfig, Tls
from coordination.etcd.errors import stale_token, translate
from coordination.etcd.protocol import HistoryCompacted
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
