"""`settled_definitions`: compares the catalogs of the two sides, and repeats it while DDL may still be replicated. Pure."""

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
    """One pair and its results, without its documents."""

    pair: Pair
    results: Mapping[Aspect, Result]

    @property
    def different(self) -> bool:
        return any(result.outcome is Outcome.DIFFERENT for result in self.results.values())

    @property
    def state(self) -> tuple[object, ...]:
        """The state that must be unchanged between two looks for a difference to be confirmed."""
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
    """A difference is confirmed when two looks show the same, and replication has passed the time of the first look before the second.

    The result has the names of the last look, so a table that was renamed in between has its new name.
    """
    now = _by_name(look())
    confirmed: frozenset[TableName] = frozenset()
    for _ in range(LOOKS - 1):
        open_ = {name for name, definition in now.items() if definition.different and name not in confirmed}
        if not open_:
            break
        if wait() is Passed.OVERDUE:
            return _ending(now, confirmed, "replication did not pass it in time")
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
