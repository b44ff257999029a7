"""`translate`: failed calls of gRPC and etcd as errors of our error tree.

how the call failed                                          raised
etcd does not answer, is overloaded, has no leader           CoordinationUnavailable
the same for a transaction that may have reached it          OutcomeUnknown
etcd is out of space                                         CoordinationFull
the revision was compacted                                   HistoryCompacted
credentials or privileges                                    CoordinationRefused
the lease named in a put is gone                             FencedError
a request that etcd finds malformed: a bug in Sluice         InvariantError
"""

from __future__ import annotations

from typing import Any

import grpc

from changefeed.errors import (
    CoordinationFull,
    CoordinationRefused,
    CoordinationUnavailable,
    FencedError,
    InvariantError,
    OutcomeUnknown,
    SluiceError,
)
from coordination.etcd.protocol import HistoryCompacted

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
    """The error to raise for a status. `txn`: the request was sent and could change something, if it reached etcd."""
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
