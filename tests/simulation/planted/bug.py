"""`Bug`: a plausible bug as a context that replaces a part of the product."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

Plant = Callable[[], AbstractContextManager[Any]]


class Bug:
    """It is found within that number of seeds, from 0 on, of the mode (`tests.simulation.run.Mode`): into MongoDB, from a replica set, if not told."""

    def __init__(self, plant: Plant, found_within: int, **mode: Any) -> None:
        self.plant = plant
        self.found_within = found_within
        self.mode: dict[str, Any] = {"sharded": False, "sink": "mongodb"} | mode
