"""What probes and Prometheus are answered."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry, Counter

from admin.http_server import answered

REGISTRY = CollectorRegistry()
Counter("rows", "Rows.", registry=REGISTRY).inc(3)


@pytest.mark.parametrize(
    ("path", "reason", "status", "said"),
    [
        ("/readyz", "", HTTPStatus.OK, b"ready\n"),
        ("/readyz", "no session", HTTPStatus.SERVICE_UNAVAILABLE, b"no session\n"),
        ("/healthz", "no session", HTTPStatus.OK, b"ok\n"),
        ("/metrics", "no session", HTTPStatus.OK, b"rows_total 3.0"),
        ("/secrets", "", HTTPStatus.NOT_FOUND, b"not found"),
    ],
)
def test_a_path_has_its_answer(path: str, reason: str, status: HTTPStatus, said: bytes) -> None:
    found, _, body = answered(REGISTRY, lambda: reason, tuple, path)
    assert found is status
    assert said in body


def test_a_ready_node_says_what_is_wrong_in_its_cluster_and_stays_ready() -> None:
    found, _, body = answered(REGISTRY, lambda: "", lambda: ["changefeed 'tz' stands still"], "/readyz")
    assert (found, body) == (HTTPStatus.OK, b"ready\nchangefeed 'tz' stands still\n")
