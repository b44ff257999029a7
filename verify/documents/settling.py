"""Settling whether a key whose documents differed is a difference, while replication may be running. Pure.

A key is looked at on both sides, the source's newest time T is noted after that look, and it is looked at again when replication has passed T:

    look 1     source A   target -      noted T=100
    passed 100
    look 2     source A   target -      A stood at the source before 100, so the target should have it: a difference
               source A   target A      it was on its way
               source B   target A      it changed meanwhile: note a new T, look again

Twice the same on both sides, with the time in between passed, is what it takes. A document that goes from A to B and back to A just then, with
the target at B both times, is all that could be mistaken. A key that keeps changing is `unsettled` after some looks.
With nobody replicating, nothing is passed or on its way: the second look follows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from verify.documents.comparison import alike, fingerprint
from verify.documents.document_difference import describe
from verify.documents.raw_document import Canonical, as_it_is, key_text
from verify.report import DifferenceKind, DocumentDifference

LOOKS = 6


class Passed(StrEnum):
    PASSED = "passed"
    STANDING = "standing"
    """Nobody replicates at the moment: waiting would be in vain."""
    OVERDUE = "overdue"
    """It was not passed in the time that there is for waiting."""


@dataclass(frozen=True, slots=True)
class Look:
    """The documents of one key, as they stand on each side."""

    key: bytes
    source: tuple[bytes, ...]
    target: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    look: Callable[[Collection[bytes]], Iterable[Look]]
    wait: Callable[[], Passed]
    """Until replication has passed what the looks so far have seen."""
    canonical: Canonical = as_it_is
    fan_in: bool = False
    excused: Collection[DifferenceKind] = ()

    def settle(self, keys: Iterable[bytes]) -> list[DocumentDifference]:
        pending: dict[bytes, tuple[bytes, bytes] | None] = dict.fromkeys(keys)
        found: list[DocumentDifference] = []
        for number in range(LOOKS):
            if not pending:
                break
            if number and self.wait() is Passed.OVERDUE:
                reason = "replication did not come past it in time"
                return found + [_unsettled(key, reason) for key in pending]
            again: dict[bytes, tuple[bytes, bytes] | None] = {}
            for look in self.look(pending):
                state = self._state(look)
                if self._fine(look):
                    continue
                if pending[look.key] == state:
                    found.append(self._difference(look))
                else:
                    again[look.key] = state
            pending = again
        return found + [_unsettled(key, f"it changed between each of {LOOKS} looks") for key in pending]

    def _state(self, look: Look) -> tuple[bytes, bytes]:
        return fingerprint(map(self.canonical, look.source)), fingerprint(map(self.canonical, look.target))

    def _fine(self, look: Look) -> bool:
        source, target = ([self.canonical(document) for document in side] for side in (look.source, look.target))
        return alike(source, target, fan_in=self.fan_in) or _kind(look) in self.excused

    def _difference(self, look: Look) -> DocumentDifference:
        kind = _kind(look)
        details: tuple[str, ...] = ()
        if kind is DifferenceKind.CHANGED:
            details = describe(self.canonical(look.source[0]), self.canonical(look.target[0]))
            if len(look.source) != len(look.target) and not self.fan_in:
                details = (f"it stands {len(look.source)} times at the source, {len(look.target)} at the target",)
        return DocumentDifference(kind, key_text(look.key), details)


def _kind(look: Look) -> DifferenceKind:
    if not look.target:
        return DifferenceKind.MISSING
    return DifferenceKind.CHANGED if look.source else DifferenceKind.EXTRA


def _unsettled(key: bytes, reason: str) -> DocumentDifference:
    return DocumentDifference(DifferenceKind.UNSETTLED, key_text(key), (reason,))
