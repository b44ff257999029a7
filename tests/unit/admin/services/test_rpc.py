"""Every error of the product has its gRPC status."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from admin.services import rpc
from changefeed import errors
from changefeed.errors import ConfigurationError, SluiceError
from coordination.etcd.protocol import HistoryCompacted


def _tree(kind: type[SluiceError]) -> Iterator[type[SluiceError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _tree(narrower)


_EXPECTED = {
    "not_found": "NOT_FOUND",
    "conflict": "ABORTED",
    "configuration_invalid": "INVALID_ARGUMENT",
    "not_authenticated": "UNAUTHENTICATED",
    "not_permitted": "PERMISSION_DENIED",
    "fenced": "UNAVAILABLE",
    "source_refused": "FAILED_PRECONDITION",
    "sink_refused": "FAILED_PRECONDITION",
    "error": "INTERNAL",
    "invariant_violated": "INTERNAL",
}


@pytest.mark.parametrize("kind", [kind for kind in _tree(SluiceError) if kind.__module__ == errors.__name__])
def test_each_error_has_a_status(kind: type[SluiceError]) -> None:
    error = kind(["a"]) if issubclass(kind, ConfigurationError) else kind("a")
    retryable = "UNAVAILABLE" if isinstance(error, errors.RetryableError) else "FAILED_PRECONDITION"
    assert rpc.status_of(error).name == _EXPECTED.get(kind.code, retryable)


def test_an_error_of_an_adapter_has_that_of_its_kind() -> None:
    assert rpc.status_of(HistoryCompacted("gone")) is grpc.StatusCode.UNAVAILABLE
