"""`ordered_digest`, `Join`: compare one range of documents, first by a digest of each side, then key by key if they differ; `Settling` decides what is a difference. Pure.

    source      1 2 3 4 5     digest a7..          source      1 2 3 4 5
    target      1 2 3 4 5     digest a7..: equal   target      1 2 3' 5 6    digest 0c..: join the two
                                                   joined      3 changed, 4 missing, 6 extra

The digest runs over whole batches, so an equal range costs little more than its transfer. Both sides read in the order of their index on `_id`.
If two servers order keys differently (an `_id` on two shards, another version's collation), the digests differ, and the join, which does
not depend on the order, finds no difference. It holds the keys and the digests of one range's documents, never the documents.

Keys are equal as the server compares them: 1 and 1.0 are the same key, but not the same document.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from zlib import crc32

from changefeed.documents.row_key import row_key
from verify.raw_document import (
    Canonical,
    as_it_is,
    count_in,
    describe,
    document_key,
    documents_in,
    fields_sorted,
    key_text,
)
from verify.report import DifferenceKind, DocumentDifference

_SIZE = 16


@dataclass(frozen=True, slots=True)
class Digest:
    count: int
    value: bytes


def ordered_digest(batches: Iterable[bytes], canonical: Canonical = as_it_is) -> Digest:
    """The digest of the documents in their order; it does not depend on the batch boundaries."""
    count, running = 0, blake2b(digest_size=_SIZE)
    for batch in batches:
        count += count_in(batch)
        if canonical is as_it_is:
            running.update(batch)
        else:
            for document in documents_in(batch):
                running.update(canonical(document))
    return Digest(count, running.digest())


@dataclass(frozen=True, slots=True)
class Share:
    """Some of the `of` shares into which a hash divides the keys; a range that is too large is joined share by share."""

    numbers: frozenset[int] = frozenset({0})
    of: int = 1

    def has(self, row: bytes) -> bool:
        return self.of == 1 or crc32(row) % self.of in self.numbers


EVERY_KEY = Share()


def share_digests(batches: Iterable[bytes], of: int, canonical: Canonical = as_it_is) -> list[Digest]:
    """The digest of each share: the sum of its documents' digests, so it does not depend on their order."""
    counts, totals = [0] * of, [0] * of
    for batch in batches:
        for document in documents_in(batch):
            number = crc32(row_key(document_key(document))) % of if of > 1 else 0
            counts[number] += 1
            totals[number] += int.from_bytes(fingerprint([canonical(document)]), "little")
    sums = ((total % 2 ** (8 * _SIZE)).to_bytes(_SIZE, "little") for total in totals)
    return [Digest(count, total) for count, total in zip(counts, sums, strict=True)]


def differing_shares(source: Sequence[Digest], target: Sequence[Digest], most: int) -> Iterator[Share]:
    """The shares whose digests differ, combined while they hold at most `most` documents of the source."""
    numbers: set[int] = set()
    documents = 0
    for number, (left, right) in enumerate(zip(source, target, strict=True)):
        if left == right:
            continue
        if numbers and documents + left.count > most:
            yield Share(frozenset(numbers), len(source))
            numbers, documents = set(), 0
        numbers.add(number)
        documents += left.count
    if numbers:
        yield Share(frozenset(numbers), len(source))


def fingerprint(documents: Iterable[bytes]) -> bytes:
    """The digest of a few documents; it does not depend on their order."""
    digests = sorted(blake2b(document, digest_size=_SIZE).digest() for document in documents)
    return digests[0] if len(digests) == 1 else blake2b(b"".join(digests), digest_size=_SIZE).digest()


def alike(source: Sequence[bytes], target: Sequence[bytes], *, fan_in: bool) -> bool:
    """Whether the canonical documents of one key are equal. Of several tables under one name, the target has the document written last."""
    if fan_in and source:
        return len(target) == 1 and target[0] in source
    return sorted(source) == sorted(target)


@dataclass(frozen=True, slots=True)
class Joined:
    """`candidates` are keys whose documents differed when they were read."""

    source: int
    target: int
    candidates: tuple[bytes, ...]
    excused: Mapping[DifferenceKind, int]
    complete: bool


@dataclass(slots=True)
class _KnownKey:
    key: bytes
    documents: list[bytes]


@dataclass(slots=True)
class Join:
    """Takes the source's batches (of each table under the name), then the target's."""

    canonical: Canonical = as_it_is
    excused: Collection[DifferenceKind] = ()
    most: int = 1_000
    fan_in: bool = False
    share: Share = EVERY_KEY
    _known: dict[bytes, _KnownKey] = field(default_factory=dict)
    _source: int = 0
    _target: int = 0
    _candidates: list[bytes] = field(default_factory=list)
    _excused: dict[DifferenceKind, int] = field(default_factory=dict)

    def take_source(self, batch: bytes) -> None:
        for document in documents_in(batch):
            self._source += 1
            key = document_key(document)
            row = row_key(key)
            if self.share.has(row):
                known = self._known.setdefault(row, _KnownKey(key, []))
                known.documents.append(fingerprint([self.canonical(document)]))

    def take_target(self, batch: bytes) -> bool:
        """False when the largest number of candidates is reached."""
        for document in documents_in(batch):
            if self._full:
                return False
            self._target += 1
            key = document_key(document)
            row = row_key(key)
            if not self.share.has(row):
                continue
            known = self._known.get(row)
            if known is None:
                self._add(DifferenceKind.EXTRA, key)
                continue
            found = fingerprint([self.canonical(document)])
            if found not in known.documents:
                self._add(DifferenceKind.CHANGED, known.key)
                del self._known[row]
            elif self.fan_in or len(known.documents) == 1:
                del self._known[row]
            else:
                known.documents.remove(found)
        return True

    def joined(self) -> Joined:
        for known in self._known.values():
            if self._full:
                break
            self._add(DifferenceKind.MISSING, known.key)
        return Joined(self._source, self._target, tuple(self._candidates), self._excused, not self._full)

    @property
    def _full(self) -> bool:
        return len(self._candidates) >= self.most

    def _add(self, kind: DifferenceKind, key: bytes) -> None:
        if kind in self.excused:
            self._excused[kind] = self._excused.get(kind, 0) + 1
        else:
            self._candidates.append(key)


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
    """Decides whether a key whose documents differed is a difference, while replication may be running.

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
            elif alike(*(list(map(fields_sorted, side)) for side in (look.source, look.target)), fan_in=self.fan_in):
                kind = DifferenceKind.REORDERED
        digests = [fingerprint(map(self.canonical, side)).hex() for side in (look.source, look.target)]
        source, target = (
            digest if side else "" for digest, side in zip(digests, (look.source, look.target), strict=True)
        )
        return DocumentDifference(kind, key_text(look.key), details, source=source, target=target, raw=look.key)


def _kind(look: Look) -> DifferenceKind:
    if not look.target:
        return DifferenceKind.MISSING
    return DifferenceKind.CHANGED if look.source else DifferenceKind.EXTRA


def _unsettled(key: bytes, reason: str) -> DocumentDifference:
    return DocumentDifference(DifferenceKind.UNSETTLED, key_text(key), (reason,), raw=key)
