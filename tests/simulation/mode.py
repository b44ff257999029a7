"""`Mode`: what the runs of a simulation differ in besides their seeds."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_SHARDED = 0.3
"""The part of the runs whose source is a sharded cluster."""
_MESSAGES = 0.2
"""The part of the runs whose sink is one of messages."""
MESSAGES = ("files", "topics")
_UNIQUE = 0.3
"""The part of the other runs whose tables have unique indexes of all kinds."""
_GATHERED = 0.2
"""The part of the runs from a replica set into MongoDB with tables that have one name at the target."""
_SYNCED = 0.1
"""The part of the runs from a replica set into MongoDB with sync points."""
_BATCHES = (3, 8, 20)
SWITCHES = ("limited", "delayed", "kept", "slow", "refusing", "unique", "gathered", "synced", "full")
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
    synced: bool = False
    """It makes sync points."""
    full: bool = False
    """It has capped tables that are full most of the time, and nothing is read anew."""
    sink: str | None = None
    """`mongodb`, or a sink of messages: `files`, `topics`."""

    @property
    def mended(self) -> bool:
        """Sync points while rows are repaired that others have touched, and nothing else goes wrong: most tables are at them."""
        return self.synced and not self.faults

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
        plain = not (self.kept or self.slow or self.refusing or self._of_a_mongodb)
        return sinks.choice(MESSAGES) if plain and sinks.random() < _MESSAGES else "mongodb"

    def is_sharded(self, seed: int) -> bool:
        if self.sharded is not None:
            return self.sharded
        return not (self.kept or self._of_a_mongodb) and Random(f"sharded {seed}").random() < _SHARDED

    @property
    def _of_a_mongodb(self) -> bool:
        """Whether it needs a replica set as source, and a MongoDB as sink."""
        return self.gathered or self.synced or self.full

    def is_unique(self, seed: int) -> bool:
        plain = not (self.kept or self.slow or self.refusing or self.full)
        return self.unique or (plain and Random(f"unique indexes {seed}").random() < _UNIQUE)

    def is_gathered(self, seed: int) -> bool:
        plain = (
            not (self.kept or self.slow or self.refusing or self.is_sharded(seed)) and self.sink_of(seed) == "mongodb"
        )
        return self.gathered or (plain and Random(f"gathered {seed}").random() < _GATHERED)

    def is_synced(self, seed: int) -> bool:
        plain = not (self.slow or self.is_sharded(seed)) and self.sink_of(seed) == "mongodb"
        return self.synced or (plain and Random(f"sync points {seed}").random() < _SYNCED)

    def batch_changes(self, seed: int) -> int:
        """How many changes a task writes together at most."""
        dependent = self.is_unique(seed) or self.full
        return Random(f"batches {seed}").choice(_BATCHES) if dependent else _BATCHES[0]
