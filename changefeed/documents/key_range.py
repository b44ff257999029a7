"""`KeyRange`: a part of a table, by `_id` in the order of MongoDB's values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bson.max_key import MaxKey

from changefeed.documents.document import Document

LAST_KEY = Document.of({"_id": MaxKey()})
"""The greatest of all keys. A scan with `min` but without `max` ends before it (all versions to 6.0.27, except in clustered collections)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """Half-open. An end that is None has no limit. Ends are documents of one field, `{_id: value}`, so that no type is lost."""

    lower: Document | None = None
    upper: Document | None = None

    @property
    def last_key_apart(self) -> bool:
        """Whether a scan of the range misses `LAST_KEY`, although it is in the range."""
        return self.lower is not None and self.upper is None

    def __str__(self) -> str:
        return f"[{self.lower or 'the first'}, {self.upper or 'the end'})"


def ranges_between(bounds: Iterable[Document]) -> Iterator[KeyRange]:
    """The contiguous ranges between ascending bounds. They cover all keys: always one range more than bounds."""
    lower = None
    for bound in bounds:
        yield KeyRange(lower=lower, upper=bound)
        lower = bound
    yield KeyRange(lower=lower)
