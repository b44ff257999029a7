"""`PatternList`: the table patterns of a list, and which of them a name may be matched by. Pure.

A list may have thousands of patterns, and is asked for each table of thousands. So patterns are found by the text with which all their names
begin: a name is compared only with those that begin as it does.

    shop.orders     shop.orders and its end          crm_*.people    crm_
    shop.tmp_*      shop.tmp_                        *.x             (nothing: every name is compared)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from changefeed.config.tables.glob import glob
from changefeed.config.tables.pattern import TablePattern
from changefeed.table import TableName

_END = "\0"
"""No name holds it."""
_FEW = 4
"""So many are compared sooner than sought."""


class PatternList(tuple[TablePattern, ...]):  # noqa: SLOT001 - slots would leave no room for the index
    """A tuple that makes its index when it is first asked. The index is not sent to other processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return PatternList, (tuple(self),)

    @staticmethod
    def of(patterns: tuple[TablePattern, ...]) -> PatternList:
        """The same object, if it is a list of patterns already."""
        return patterns if isinstance(patterns, PatternList) else PatternList(patterns)

    def means(self, name: TableName) -> bool:
        """Whether the list matches this table: the last pattern that matches it decides."""
        if len(self) <= _FEW:
            return next((not pattern.negated for pattern in reversed(self) if pattern.matches(name)), False)
        last = max((number for number in self.like(name) if self[number].matches(name)), default=None)
        return last is not None and not self[last].negated

    def first(self, name: TableName) -> int | None:
        """The number of the first pattern that matches."""
        return min((number for number in self.like(name) if self[number].matches(name)), default=None)

    def like(self, name: TableName) -> Iterator[int]:
        """The numbers of all patterns that may match the name, in no order."""
        return self._within(f"{name}{_END}")

    def wider(self, narrow: TablePattern) -> Iterator[int]:
        """The numbers of all patterns that may cover it, in no order."""
        return self._within(_beginning(narrow))

    def near(self, other: TablePattern) -> list[int]:
        """The numbers, in order, of all patterns that may have a name in common with it."""
        text, (by_text, _, texts) = _beginning(other), self._index
        found = set(self._within(text))
        for longer in texts[bisect_left(texts, text) :]:
            if not longer.startswith(text):
                break
            found.update(by_text[longer])
        return sorted(found)

    def _within(self, text: str) -> Iterator[int]:
        by_text, lengths, _ = self._index
        for length in lengths:
            if length > len(text):
                return
            yield from by_text.get(text[:length], ())

    @cached_property
    def _index(self) -> tuple[dict[str, list[int]], list[int], list[str]]:
        """The numbers by the beginning of the patterns; the lengths of these beginnings; and these in order."""
        by_text: dict[str, list[int]] = defaultdict(list)
        for number, pattern in enumerate(self):
            by_text[_beginning(pattern)].append(number)
        return dict(by_text), sorted({len(text) for text in by_text}), sorted(by_text)


def _beginning(pattern: TablePattern) -> str:
    """The text with which each name begins that the pattern matches, with the name's end if it is known."""
    db, coll = glob(pattern.db), glob(pattern.coll)
    if not db.literal:
        return db.before
    return f"{db.before}.{coll.before}{_END if coll.literal else ''}"
