"""What a target says it is."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bench.replay_server import ReplayServer
from sink.mongodb.connection import connect, is_sharded


class Router(ReplayServer):
    def hello(self) -> dict[str, Any]:
        answer = super().hello()
        del answer["setName"], answer["hosts"], answer["me"]
        return {**answer, "msg": "isdbgrid"}


@pytest.mark.parametrize(("kind", "sharded"), [(Router, True), (ReplayServer, False)])
def test_a_router_is_known_by_its_greeting(kind: type[ReplayServer], sharded: bool) -> None:
    with kind(0, "insert", 1) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with connect(f"mongodb://127.0.0.1:{server.server_address[1]}/?directConnection=true") as client:
            assert is_sharded(client) is sharded
        server.shutdown()
