"""`partition_of`: the partition of a key, as the producers of Java compute it (`murmur2`). Pure, and called for each message.

It is computed here and not by the client, which takes the number of partitions that the topic has at that moment: if somebody adds some,
a key would go on elsewhere, and its earlier and later changes would be read in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct, unpack
from typing import TypeAlias

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_MOST_BEGUN = 4096
_Begun: TypeAlias = tuple[int, Callable[[bytes, int], tuple[int, ...]], int | None]
_begun: dict[tuple[int, bytes], _Begun] = {}
"""By length and beginning, since the keys of a table mostly begin alike, with the name of their field and the type of its value: the hash
of the beginning, what reads the words behind it, and where the bytes behind these are, if there are any.
"""


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """As an unsigned number."""
    length = len(key)
    head = 24 if length > 24 else 8 if length > 8 else 0
    known = length, key[:head]
    h, words, tail_at = _begun.get(known) or _begin(known)
    h = _mixed(h, words(key, head))
    if tail_at is not None:
        h = (h ^ int.from_bytes(key[tail_at:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def _mixed(h: int, words: Iterable[int]) -> int:
    for word in words:
        k = word * _M & _MASK
        h = h * _M & _MASK ^ (k ^ k >> 24) * _M & _MASK
    return h


def _begin(known: tuple[int, bytes]) -> _Begun:
    length, head = known
    h = _mixed(_SEED ^ length, unpack(f"<{len(head) >> 2}I", head))
    words = Struct(f"<{(length >> 2) - (len(head) >> 2)}I").unpack_from
    if len(_begun) >= _MOST_BEGUN:
        _begun.clear()
    begun = _begun[known] = h, words, length & ~3 if length & 3 else None
    return begun
