"""The kind of server that a target reports."""

from __future__ import annotations

import threading

from sink.mongodb.connection import connect, is_sharded
from tests.component.sink.mongodb.greeting import Router


def test_a_router_is_known_by_its_greeting() -> None:
    with Router() as router:
        threading.Thread(target=router.serve_forever, daemon=True).start()
        with connect(f"mongodb://127.0.0.1:{router.port}/?directConnection=true") as client:
            assert is_sharded(client)
        router.shutdown()


def test_a_replica_set_is_none(target_uri: str) -> None:
    with connect(target_uri) as client:
        assert not is_sharded(client)
