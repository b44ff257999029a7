"""`DocumentCheck`: compares the documents of one pair of tables, range by range."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from changefeed.records.sync_point import SyncPoint
from changefeed.table import TableName
from sink.mongodb.connection import Client
from source.columns import Columns
from source.compared import ComparedSource
from verify.comparison import (
    EVERY_KEY,
    Join,
    Joined,
    Look,
    Settling,
    Share,
    differing_shares,
    ordered_digest,
    share_digests,
)
from verify.definitions import Pair
from verify.raw_document import Canonical
from verify.replication import Passing
from verify.report import DifferenceKind, DocumentsReport
from verify.table_reader import EVERYTHING, IdRange, TableReader, nothing, ranges_between

RANGE_BYTES = 16 << 20
_MOST_RANGES = 50_000
_JOINED_AT_ONCE = 500_000
"""Documents whose keys are held in memory. Only a range of a table that cannot be divided has more."""
_DOCUMENTS_PER_SHARE = 50_000
_MOST_CANDIDATES = 1_000
_ATTEMPTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The clients of the two clusters, and the shared state of all reads from them."""

    source: ComparedSource
    target: Client
    stop: threading.Event
    passing: Passing
    columns_of: Callable[[TableName], Columns | None] = lambda _: None
    point: SyncPoint | None = None
    """Each side is read as of its time there, not as it is now."""
    took: Callable[[int], None] = nothing


@dataclass(frozen=True, slots=True)
class DocumentCheck:
    pair: Pair
    sides: Sides
    sources: tuple[TableReader, ...]
    target: TableReader
    canonical: Canonical
    excuses: Mapping[DifferenceKind, str]
    most: int
    """The largest number of differences that are shown; reading ends when they are found."""

    @classmethod
    def of(
        cls, pair: Pair, sides: Sides, *, canonical: Canonical, excuses: Mapping[DifferenceKind, str], most: int
    ) -> DocumentCheck:
        source_ts, target_ts = (sides.point.source, sides.point.target) if sides.point is not None else (None, None)
        sources = tuple(
            TableReader.of_source(
                sides.source, schema, sides.stop, sides.columns_of(schema.name), source_ts, sides.took
            )
            for schema in pair.sources
        )
        name = pair.sources[0].rows_at(pair.name)
        target = TableReader.of_target(sides.target, name, sides.stop, target_ts, sides.took)
        allowed = {**_natural(pair, sources, target), **excuses}
        return cls(pair, sides, sources, target, canonical, allowed, most)

    def ranges(self, range_bytes: int) -> tuple[IdRange, ...]:
        """The source's ranges. One range if the target has a collation: the source's bounds might not ascend there."""
        division = self.sides.source.divide(self.pair.sources[0], chunk_bytes=range_bytes, most=_MOST_RANGES)
        if division.whole or self._collated_at_target:
            return (EVERYTHING,)
        return ranges_between([bound.raw for bound in division.bounds])

    def compare(self, keys: IdRange) -> DocumentsReport:
        found, shares = self._differing(keys)
        for share in shares:
            if len(found.differences) >= self.most:
                found = replace(found, complete=False)
                break
            found = found.plus(self._settled(keys, share))
        return found.at_most(self.most)

    def _settled(self, keys: IdRange, share: Share) -> DocumentsReport:
        """If there are more candidates than one attempt can settle, the next attempt finds the remaining differences."""
        for _ in range(_ATTEMPTS):
            joined = self._join(keys, share)
            found = self._settling().settle(joined.candidates)
            if joined.complete or len(found) >= self.most:
                break
        return DocumentsReport(differences=tuple(found), excused=joined.excused, complete=joined.complete)

    def _differing(self, keys: IdRange) -> tuple[DocumentsReport, list[Share]]:
        """The number of documents, and the shares of the keys that contain differences.

        Several tables under one name have no common order; they are joined without a digest.
        """
        if self.pair.fan_in:
            joined = self._join(keys, EVERY_KEY)
            return DocumentsReport(source=joined.source, target=joined.target), [EVERY_KEY]
        readers = self.sources[0], self.target
        if self.sources[0].in_order:
            source, target = (ordered_digest(reader.batches(keys), self.canonical) for reader in readers)
        else:
            source, target = (share_digests(reader.batches(keys), 1, self.canonical)[0] for reader in readers)
        counts = DocumentsReport(source=source.count, target=target.count)
        if source == target:
            return counts, []
        if source.count <= _JOINED_AT_ONCE:
            return counts, [EVERY_KEY]
        of = -(-source.count // _DOCUMENTS_PER_SHARE)
        at_source, at_target = (share_digests(reader.batches(keys), of, self.canonical) for reader in readers)
        return counts, list(differing_shares(at_source, at_target, _JOINED_AT_ONCE))

    def _join(self, keys: IdRange, share: Share) -> Joined:
        join = Join(self.canonical, self.excuses, max(_MOST_CANDIDATES, self.most), self.pair.fan_in, share)
        for reader in self.sources:
            for batch in reader.batches(keys):
                join.take_source(batch)
        for batch in self.target.batches(keys):
            if not join.take_target(batch):
                break
        return join.joined()

    def _settling(self) -> Settling:
        return Settling(
            look=self._look,
            wait=partial(self.sides.passing.wait, [schema.id for schema in self.pair.sources]),
            canonical=self.canonical,
            fan_in=self.pair.fan_in,
            excused=self.excuses,
        )

    def _look(self, keys: Collection[bytes]) -> Iterator[Look]:
        """Reads the target first: a change of the source in between then shows as a difference, and the key is read again."""
        at_target = self.target.look_up(keys)
        at_sources = zip(*(reader.look_up(keys) for reader in self.sources), strict=True)
        for (key, target), sources in zip(at_target, at_sources, strict=True):
            yield Look(key, tuple(document for _, documents in sources for document in documents), target)

    @property
    def _collated_at_target(self) -> bool:
        assert self.pair.target is not None
        collation = self.pair.target.options.decode().get("collation", {})
        return bool(collation.get("locale", "simple") != "simple")


def _natural(pair: Pair, sources: Collection[TableReader], target: TableReader) -> Mapping[DifferenceKind, str]:
    """The kinds of differences that are expected for this kind of table, each with the reason.

    A full capped collection drops its oldest documents without an event, and each side does it at its own time.
    """
    if not any(schema.options.decode().get("capped") for schema in pair.sources):
        return {}
    found = {}
    assert pair.target is not None
    if target.nearly_full(pair.target.options):
        found[DifferenceKind.MISSING] = (
            "the collection is capped and full at the target, which drops the oldest documents itself"
        )
    if any(reader.nearly_full(schema.options) for reader, schema in zip(sources, pair.sources, strict=True)):
        found[DifferenceKind.EXTRA] = (
            "the collection is capped and full at the source, which drops the oldest documents itself"
        )
    return found
