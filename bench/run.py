"""`Run`: the resources that one replicator used for a number of events; `Comparison`: figures from several runs."""

from __future__ import annotations

from dataclasses import dataclass

from bench.result import Figure
from bench.usage import JVM, WORKERS, Usage

OURS = ("owner", "processor", JVM, WORKERS)
SERVERS = ("source", "target")


@dataclass(frozen=True, slots=True)
class Run:
    usage: Usage
    events: int

    @property
    def rate(self) -> float:
        return self.events / self.usage.seconds

    def micros(self, *parts: str) -> float:
        """CPU time per event of these parts, by default of all."""
        return sum(self.usage.cpu[part] for part in parts or self.usage.cpu) / self.events * 1e6

    @property
    def shares(self) -> str:
        """CPU time per event of the replicator itself, the source and the target."""
        itself = self.micros() - self.micros(*SERVERS)
        return f"{itself:.1f} + {self.micros('source'):.1f} + {self.micros('target'):.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The runs of the same events: by the product, by the naive baseline, and at the floor."""

    ours: Run
    naive: Run
    floor: Run | None = None

    def rate(self, name: str, unit: str = "events/s") -> Figure:
        floor = self.floor.rate if self.floor else None
        return Figure.more_is_better(name, self.ours.rate, unit, baseline=self.naive.rate, floor=floor)

    def cpu(self, name: str, unit: str = "us/event") -> Figure:
        """CPU time per event of the replicator, the source and the target together."""
        note = f"itself + source + target: ours {self.ours.shares}, naive {self.naive.shares}"
        note += f", floor {self.floor.shares}" if self.floor else ""
        floor = self.floor.micros() if self.floor else None
        return Figure.less_is_better(
            name, self.ours.micros(), unit, baseline=self.naive.micros(), floor=floor, note=note
        )

    def source_cpu(self, name: str, unit: str = "us/event") -> Figure:
        floor = self.floor.micros("source") if self.floor else None
        micros = self.ours.micros("source"), self.naive.micros("source")
        return Figure.less_is_better(name, micros[0], unit, baseline=micros[1], floor=floor)

    def peak(self, name: str) -> Figure:
        peak = {part: self.ours.usage.peak[part] / 2**20 for part in OURS}
        note = ", ".join(f"{part} {size:.0f}" for part, size in peak.items())
        naive = self.naive.usage.peak["itself"] / 2**20
        return Figure.less_is_better(name, sum(peak.values()), "MiB", baseline=naive, note=note)
