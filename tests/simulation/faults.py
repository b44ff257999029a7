"""What goes wrong."""

from __future__ import annotations

from random import Random

from tests.simulation.cluster import Cluster


class Faults:
    def __init__(self, cluster: Cluster, random: Random, end: float) -> None:
        self._cluster = cluster

    def end(self) -> None: ...
