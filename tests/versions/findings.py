"""`Findings`: the subjects that were tested, each with its faults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Findings:
    faults: dict[str, list[str]] = field(default_factory=dict)

    def looked_at(self, what: str, faults: Iterable[str] = ()) -> None:
        self.faults.setdefault(what, []).extend(faults)

    @property
    def good(self) -> bool:
        return bool(self.faults) and not any(self.faults.values())
