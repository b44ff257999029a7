"""`DdlCommand`: one command for the target, as a value. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from changefeed.table import TableName

_GUARD = "collectionUUID"
_BRIEF = frozenset({"create", "collMod", "dropIndexes", "drop"})


@dataclass(frozen=True, slots=True)
class DdlCommand:
    """`settled`: error codes which mean that the target already has the wanted state."""

    db: str
    body: Mapping[str, Any]
    settled: frozenset[int] = field(default=frozenset())

    @property
    def brief(self) -> bool:
        """A brief command takes effect within the permit or never: a late one could undo the work of the next owner. Others may take hours.

        A rename is brief within a database; into another one it copies the table.
        """
        verb = next(iter(self.body))
        if verb == "renameCollection":
            return TableName.parse(self.body[verb]).db == TableName.parse(self.body["to"]).db
        return verb in _BRIEF

    @property
    def guarded(self) -> bool:
        """Whether the target refuses it if another collection has the name."""
        return _GUARD in self.body

    def unguarded(self) -> Self:
        """For a target that takes no UUIDs."""
        body = {name: value for name, value in self.body.items() if name != _GUARD}
        return replace(self, body=body | ({"dropTarget": True} if "dropTarget" in body else {}))

    def __str__(self) -> str:
        """`createIndexes on shop.orders`."""
        verb, subject = next(iter(self.body.items()))
        subject = str(subject)
        return f"{verb} on {subject if self.db == 'admin' else f'{self.db}.{subject}'}"
