from __future__ import annotations

import grpc
import pytest

from changefeed.errors import (
    CoordinationFull,
    CoordinationRefused,
    CoordinationUnavailable,
    FencedError,
    InvariantError,
    OutcomeUnknown,
    RetryableError,
    SluiceError,
)
from coordination.etcd.channels import translate
from coordination.etcd.protocol import HistoryCompacted

CODES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]

SAID_BY_ETCD = [
    ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", HistoryCompacted),
    ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision", InvariantError),
    ("NOT_FOUND", "etcdserver: requested lease not found", FencedError),
    ("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request", InvariantError),
    ("INVALID_ARGUMENT", "etcdserver: too many operations in txn request", InvariantError),
    ("INVALID_ARGUMENT", "etcdserver: request is too large", InvariantError),
    ("RESOURCE_EXHAUSTED", "trying to send message larger than max (2097154 vs. 2097152)", InvariantError),
    ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID or password", CoordinationRefused),
    ("INVALID_ARGUMENT", "etcdserver: user name is empty", CoordinationRefused),
    ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", CoordinationRefused),
    ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled", CoordinationRefused),
    ("UNAUTHENTICATED", "etcdserver: invalid auth token", CoordinationRefused),
    ("PERMISSION_DENIED", "etcdserver: permission denied", CoordinationRefused),
    ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", CoordinationFull),
    ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", CoordinationUnavailable),
    ("UNAVAILABLE", "failed to connect to all addresses; last error: connection refused", CoordinationUnavailable),
    ("UNAVAILABLE", "etcdserver: no leader", CoordinationUnavailable),
    ("UNAVAILABLE", "etcdserver: leader changed", OutcomeUnknown),
    ("UNAVAILABLE", "etcdserver: request timed out, possibly due to previous leader failure", OutcomeUnknown),
    ("UNAVAILABLE", "Socket closed", OutcomeUnknown),
    ("DEADLINE_EXCEEDED", "Deadline Exceeded", OutcomeUnknown),
    ("CANCELLED", "Channel closed!", OutcomeUnknown),
    ("UNKNOWN", "etcdserver: server stopped", OutcomeUnknown),
]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
@pytest.mark.parametrize("txn", [False, True])
def test_every_status_becomes_an_error_of_our_tree(code: grpc.StatusCode, txn: bool) -> None:
    error = translate(code, "details", endpoint="h:1", txn=txn)
    assert isinstance(error, SluiceError)
    assert "h:1" in str(error)
    assert "details" in str(error)


@pytest.mark.parametrize(("code", "details", "expected"), SAID_BY_ETCD, ids=[details for _, details, _ in SAID_BY_ETCD])
def test_what_etcd_says_of_a_transaction_is_understood(code: str, details: str, expected: type[SluiceError]) -> None:
    assert type(translate(grpc.StatusCode[code], details, endpoint="h:1", txn=True)) is expected


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_only_a_transaction_has_an_unknown_outcome(code: grpc.StatusCode) -> None:
    assert not isinstance(translate(code, "", endpoint="h:1"), OutcomeUnknown)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_what_may_go_away_for_a_read_may_go_away_for_a_transaction(code: grpc.StatusCode) -> None:
    read = translate(code, "", endpoint="h:1")
    assert isinstance(read, RetryableError) == isinstance(translate(code, "", endpoint="h:1", txn=True), RetryableError)
