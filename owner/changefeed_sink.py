"""`ChangefeedSink`: what an owner needs of the sink of one changefeed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.records.status import LetterTotals
from changefeed.table import TableSchema
from owner.principal_copy import PrincipalTarget
from sink.ddl import DdlApplier
from sink.event_sink import EventLeftovers, EventMarks


class Sinks(Protocol):
    def open_sink(self, configuration: Configuration, life: str) -> DdlApplier: ...
    def claim_sink(
        self, configuration: Configuration, life: str, at: Position, tables: Iterable[TableSchema]
    ) -> None: ...
    def open_marks(self, configuration: Configuration, life: str) -> EventMarks | None: ...
    def open_sweeper(self, configuration: Configuration, life: str) -> EventLeftovers | None: ...
    def open_letters(self, configuration: Configuration, before: LetterTotals) -> LetterTotals: ...
    def principals_of(self, configuration: Configuration) -> PrincipalTarget: ...


@dataclass(frozen=True, slots=True)
class ChangefeedSink:
    """The sink of one changefeed. `life`: differs for each changefeed that was ever created, even under one id. Most methods wait for the sink."""

    sinks: Sinks
    configuration: Configuration
    life: str

    def open(self) -> DdlApplier:
        return self.sinks.open_sink(self.configuration, self.life)

    def claim(self, at: Position, tables: Iterable[TableSchema]) -> None:
        """`at`, `tables`: where and with which the changefeed begins."""
        self.sinks.claim_sink(self.configuration, self.life, at, tables)

    def marks(self) -> EventMarks | None:
        """None: the sink has no watermarks. Does not wait."""
        return self.sinks.open_marks(self.configuration, self.life)

    def leftovers(self) -> EventLeftovers | None:
        """None: the sink keeps nothing of what was not committed. Does not wait."""
        return self.sinks.open_sweeper(self.configuration, self.life)

    def letters(self, before: LetterTotals) -> LetterTotals:
        """The rows that the target refuses. `before`: the last result."""
        return self.sinks.open_letters(self.configuration, before)

    def principals(self) -> PrincipalTarget:
        """Does not wait."""
        return self.sinks.principals_of(self.configuration)
