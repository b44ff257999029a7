"""`partition_of`: the partition of a key, as the producers of Java compute it (`murmur2`). Pure, and called for each message.

It is computed here and not by the client, which takes the number of partitions that the topic has at that moment: if somebody adds some,
a key would go on elsewhere, and its earlier and later changes would be read in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, unpack_from

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_WORDS = [Struct(f"<{count}I") for count in range(65)]
_MOST_BEGUN = 4096
_begun: dict[tuple[int, bytes], int] = {}
"""By length and beginning: the keys of a table mostly begin alike, with the name of their field and the type of its value."""


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """As an unsigned number."""
    length = len(key)
    count = length >> 2
    head = 24 if length > 24 else 8 if length > 8 else 0
    known = length, key[:head]
    begun = _begun.get(known)
    h = _begin(known) if begun is None else begun
    rest = count - (head >> 2)
    words = _WORDS[rest].unpack_from(key, head) if rest < len(_WORDS) else unpack_from(f"<{rest}I", key, head)
    h = _mixed(h, words)
    if length & 3:
        h = (h ^ int.from_bytes(key[count << 2 :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def _mixed(h: int, words: Iterable[int]) -> int:
    for word in words:
        k = word * _M & _MASK
        h = h * _M & _MASK ^ (k ^ k >> 24) * _M & _MASK
    return h


def _begin(known: tuple[int, bytes]) -> int:
    length, head = known
    h = _mixed(_SEED ^ length, _WORDS[len(head) >> 2].unpack(head))
    if len(_begun) >= _MOST_BEGUN:
        _begun.clear()
    _begun[known] = h
    return h
