"""`Settling`: decides whether a key whose documents differed is a difference, while replication may be running. Pure.

A key is read on both sides (a look), then the source's newest time T is noted. It is read again when replication has passed T:

    look 1     source A   target -      note T=100
    replication passes 100
    look 2     source A   target -      the source had A before 100, so the target should have it: a difference
               source A   target A      equal: A was not replicated yet at look 1
               source B   target A      it changed meanwhile: note a new T, look again

A difference is confirmed when two looks show the same on both sides, and replication has passed the time between them. There is one false alarm:
a document that changes from A to B and back to A in between, when the target shows B at both looks. A key that changes between all
looks is `unsettled`. Without replication the second look follows at once.
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
    """Replication does not run at present, so there is no reason to wait."""
    OVERDUE = "overdue"
    """Replication did not pass the time within the patience."""


@dataclass(frozen=True, slots=True)
class Look:
    """The documents of one key on each side."""

    key: bytes
    source: tuple[bytes, ...]
    target: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    look: Callable[[Collection[bytes]], Iterable[Look]]
    wait: Callable[[], Passed]
    """Waits until replication has passed the state that the looks so far have read."""
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
                reason = "replication did not pass it in time"
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
                details = (f"the source has {len(look.source)} documents of this key, the target {len(look.target)}",)
        return DocumentDifference(kind, key_text(look.key), details, look.key)


def _kind(look: Look) -> DifferenceKind:
    if not look.target:
        return DifferenceKind.MISSING
    return DifferenceKind.CHANGED if look.source else DifferenceKind.EXTRA


def _unsettled(key: bytes, reason: str) -> DocumentDifference:
    return DocumentDifference(DifferenceKind.UNSETTLED, key_text(key), (reason,), key)
