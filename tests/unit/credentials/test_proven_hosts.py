"""A host is named in messages when it has answered, and not before."""

from __future__ import annotations

from typing import Any

from pymongo.hello import Hello
from pymongo.monitoring import ServerHeartbeatFailedEvent, ServerHeartbeatSucceededEvent

from credentials.proven_hosts import ProvenHosts, texts_of_host
from credentials.redaction import keep_secret, redacted


def test_a_host_that_answered_is_no_secret() -> None:
    keep_secret(*texts_of_host("maybe-a-host", 27017), *texts_of_host("maybe-a-password", 27017))
    hosts = ProvenHosts()
    hello: Hello[dict[str, Any]] = Hello({"ok": 1})

    hosts.succeeded(ServerHeartbeatSucceededEvent(0.1, hello, ("maybe-a-host", 27017)))
    hosts.failed(ServerHeartbeatFailedEvent(0.1, OSError("no"), ("maybe-a-password", 27017)))

    assert redacted("maybe-a-host:27017, maybe-a-password:27017") == "maybe-a-host:27017, ***"
    assert redacted("('maybe-a-host', 27017), ('maybe-a-password', 27017)") == "('maybe-a-host', 27017), ***"
