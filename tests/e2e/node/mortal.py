"""`Mortal`: a node that dies at failpoints, and comes back."""

from __future__ import annotations

from tests.component.node.server_process import Server
from tests.until import until


class Mortal:
    def __init__(self, node: Server) -> None:
        self._node = node

    def dies_at(self, point: str) -> None:
        self._node.kill()
        self._node._environment["SLUICE_FAILPOINTS"] = f"{point}=kill"
        self._node.start()

    def until_ready(self) -> None:
        self._node.until_ready()

    def until_dead(self) -> None:
        process = self._node._process
        assert process is not None
        until(lambda: process.poll() is not None, "the death of the node")

    def comes_back(self) -> None:
        self._node.kill()
        del self._node._environment["SLUICE_FAILPOINTS"]
        self._node.start()
        self._node.until_ready()
