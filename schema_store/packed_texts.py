"""`PackedTexts`: very many distinct texts in order, as two blocks of memory instead of an object for each. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self, overload


@dataclass(frozen=True, slots=True)
class PackedTexts(Sequence[str]):
    """A text costs its UTF-8 bytes and four more. The order of UTF-8 is that of Python's strings."""

    _bytes: bytes
    _ends: array[int]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        encoded = [text.encode() for text in sorted(texts)]
        return cls(b"".join(encoded), array("I", accumulate(map(len, encoded))))

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[str]:
        begin = 0
        for end in self._ends:
            yield self._bytes[begin:end].decode()
            begin = end

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        return self._encoded(range(len(self))[place]).decode()

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.find(text) is not None

    def find(self, text: str) -> int | None:
        """The place of a text."""
        place, wanted = self.first(text), text.encode()
        return place if place < len(self) and self._encoded(place) == wanted else None

    def first(self, least: str) -> int:
        """The place of the first text that is not below `least`."""
        return bisect_left(range(len(self)), least.encode(), key=self._encoded)

    def _encoded(self, place: int) -> bytes:
        return self._bytes[self._ends[place - 1] if place else 0 : self._ends[place]]


NO_TEXTS = PackedTexts.of(())
