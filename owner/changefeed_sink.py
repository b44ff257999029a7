"""`ChangefeedSink`: the sink of one changefeed, in the hands of its owner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.records.status import LetterTotals
from changefeed.table import TableSchema
from sink.ddl import DdlApplier
from sink.sink import Marks, Permit, PrincipalTarget, Sink, Sweeper


@dataclass(frozen=True, slots=True)
class ChangefeedSink:
    """`life`: differs for each changefeed that was ever created, even under one id. `permit`: that of the owner's term."""

    sink: Sink
    configuration: Configuration
    life: str
    permit: Permit

    def open(self) -> DdlApplier:
        return self.sink.ddl(self.life, self.permit)

    def claim(self, at: Position, tables: Iterable[TableSchema]) -> None:
        """Makes it this changefeed's. `at`, `tables`: where and with which the changefeed begins. Waits for the sink."""
        route = self.configuration.routes.target
        self.sink.claim(self.life, at, [(table, route(table.name)) for table in tables], self.permit)

    @property
    def takes_late_ddl(self) -> bool:
        """Whether a DDL may come after rows of later changes."""
        return not self.sink.traits.keeps_order

    def marks(self) -> Marks | None:
        return self.sink.marks(self.life, self.permit)

    def leftovers(self) -> Sweeper | None:
        return self.sink.leftovers(self.life)

    def letters(self, before: LetterTotals) -> LetterTotals:
        """Returns how many rows are refused. `before`: the last result. Waits for the sink."""
        return self.sink.open_letters(before)

    def principals(self) -> PrincipalTarget | None:
        return self.sink.principals(self.permit)
