"""`Mode`: what the runs of a simulation differ in besides their seeds."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_SHARDED = 0.3
"""The part of the runs whose source is a sharded cluster."""
_MESSAGES = 0.2
"""The part of the runs with a replica set as source whose sink is one of messages."""
MESSAGES = ("files", "topics")
_UNIQUE = 0.3
"""The part of the other runs whose tables have unique indexes of all kinds."""
_GATHERED = 0.2
"""The part of the runs from a replica set into MongoDB with tables that have one name at the target."""
_BATCHES = (3, 8, 20)
SWITCHES = ("limited", "delayed", "kept", "slow", "refusing", "unique", "gathered")
"""The fields of a mode that are switches, under the same name as on the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What a run differs in from those of other seeds. What is None is decided by the seed."""

    faults: bool = True
    limited: bool = False
    """Its tasks wait for limits most of the time."""
    delayed: bool = False
    """It applies what the source has had for some seconds."""
    sharded: bool | None = None
    """Its source is a sharded cluster."""
    kept: bool = False
    """Its copies may remove nothing at the target."""
    slow: bool = False
    """The target is slow with one table, and nothing else goes wrong."""
    refusing: bool = False
    """The target refuses many changes of rows that it has."""
    unique: bool = False
    """Its tables have unique indexes of all kinds, and their values change hands."""
    gathered: bool = False
    """Two of its tables have one name at the target."""
    sink: str | None = None
    """`mongodb`, or a sink of messages: `files`, `topics`. Those of a sharded source are not written."""

    def __str__(self) -> str:
        """As on the command line."""
        chosen = {"calm": not self.faults, "sharded": self.sharded is True, "no-sharded": self.sharded is False}
        chosen |= {name: getattr(self, name) for name in SWITCHES}
        sink = f" --sink {self.sink}" if self.sink is not None else ""
        return sink + "".join(f" --{name}" for name, on in chosen.items() if on)

    def sink_of(self, seed: int) -> str:
        if self.sink is not None:
            return self.sink
        sinks = Random(f"sink of {seed}")
        plain = not (self.kept or self.slow or self.refusing or self.is_sharded(seed))
        return sinks.choice(MESSAGES) if plain and sinks.random() < _MESSAGES else "mongodb"

    def is_sharded(self, seed: int) -> bool:
        if self.sharded is not None:
            return self.sharded
        return not self.kept and Random(f"sharded {seed}").random() < _SHARDED

    def is_unique(self, seed: int) -> bool:
        plain = not (self.kept or self.slow or self.refusing)
        return self.unique or (plain and Random(f"unique indexes {seed}").random() < _UNIQUE)

    def is_gathered(self, seed: int) -> bool:
        plain = (
            not (self.kept or self.slow or self.refusing or self.is_sharded(seed)) and self.sink_of(seed) == "mongodb"
        )
        return self.gathered or (plain and Random(f"gathered {seed}").random() < _GATHERED)

    def batch_changes(self, seed: int) -> int:
        """How many changes a task writes together at most."""
        return Random(f"batches {seed}").choice(_BATCHES) if self.is_unique(seed) else _BATCHES[0]
