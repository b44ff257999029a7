"""Comparing the catalogs of the two sides, and looking again while DDL may be on its way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from changefeed.documents.document import Document
from changefeed.table import TableId, TableName
from verify.definitions.pairing import Pair
from verify.documents.settling import LOOKS, Passed
from verify.report import Aspect, Outcome, Result


@dataclass(frozen=True, slots=True)
class Definition:
    """One pair and what was found of it, apart from its documents."""

    pair: Pair
    results: Mapping[Aspect, Result]

    @property
    def different(self) -> bool:
        return any(result.outcome is Outcome.DIFFERENT for result in self.results.values())

    @property
    def state(self) -> tuple[object, ...]:
        """All that must stay the same for a difference to be one."""
        at_source: list[tuple[TableId, Document, tuple[Document, ...]]] = [
            (schema.id, schema.options, schema.indexes) for schema in self.pair.sources
        ]
        return at_source, self.pair.target, dict(self.results)

    def unsettled(self, reason: str) -> Definition:
        return Definition(
            self.pair,
            {
                aspect: Result(Outcome.UNSETTLED, (*result.details, reason))
                if result.outcome is Outcome.DIFFERENT
                else result
                for aspect, result in self.results.items()
            },
        )


def settled_definitions(look: Callable[[], Iterable[Definition]], wait: Callable[[], Passed]) -> tuple[Definition, ...]:
    """Differences are those that two looks show alike, with the time of the first one passed by replication before the second.

    A table that was renamed or dropped meanwhile stands under its new name in the last look.
    """
    now = _by_name(look())
    confirmed: frozenset[TableName] = frozenset()
    for _ in range(LOOKS - 1):
        open_ = {name for name, definition in now.items() if definition.different and name not in confirmed}
        if not open_:
            break
        if wait() is Passed.OVERDUE:
            return _ending(now, confirmed, "replication did not come past it in time")
        before, now = now, _by_name(look())
        confirmed = frozenset(
            name
            for name, definition in now.items()
            if definition.different and name in before and definition.state == before[name].state
        )
    return _ending(now, confirmed, f"it changed between each of {LOOKS} looks")


def _by_name(definitions: Iterable[Definition]) -> dict[TableName, Definition]:
    return {definition.pair.name: definition for definition in definitions}


def _ending(
    now: Mapping[TableName, Definition], confirmed: frozenset[TableName], reason: str
) -> tuple[Definition, ...]:
    return tuple(
        definition if name in confirmed or not definition.different else definition.unsettled(reason)
        for name, definition in now.items()
    )
