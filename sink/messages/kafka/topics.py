"""`Topics`: the names of a changefeed's topics; `partitions_of`: the partitions of keys. Pure, and called for each batch of messages.

    {prefix}.{db}.{coll}   rows of a table, and what is said in-band; by the options `topic` and `topics` others, or one for all
    {prefix}.ddl           each DDL, and the schemas with which tables begin; with `debezium` it is {prefix}
    {prefix}.watermark     compacted
    {prefix}.feed          whose topics these are

A name of MongoDB may have signs that a topic may not have. They become `_`. A table whose topic would be one of Sluice's own gets one with `_`
behind it. Two tables may then share a topic, which is no harm: each message names its table.

Partitions are those that the producers of Java compute (`murmur2`). They are computed here and not by the client, which takes the number of partitions that the topic has at that moment: if somebody adds some,
a key would go on elsewhere, and its earlier and later changes would be read in any order.

Keys of one length are hashed at once: one big integer has a hash of 32 bits in each of its lanes of 64 bits, so that the product of a lane
does not reach the next one. That is a quarter of the cost of one key after the other. Six keys of 8 bytes, which is two words each:

    word 0      a0 b0 c0 d0 e0 f0       the first words of all keys, side by side
    lanes       a0  0 c0  0 e0  0       two integers, with every other key
                b0  0 d0  0 f0  0
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from struct import iter_unpack, unpack_from

from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.table import TableName

_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST = 249
_HASH = 16


class Topics:
    def __init__(self, options: KafkaSinkOptions) -> None:
        self.own = options.own_topics
        """Those that have no rows."""
        self.feed, self.ddl, self.watermark = self.own
        self._options = options
        self.of = cache(self._of)
        """Where the rows of a table go that has this name downstream."""

    def _of(self, table: TableName) -> str:
        parts = {"prefix": self._options.prefix, "db": table.db, "coll": table.coll}
        written = self._options.rule_of(table).topic
        name = _ILLEGAL.sub("_", re.sub(r"\{(prefix|db|coll)\}", lambda match: parts[match[1]], written))
        if name in {*self.own, ".", ".."}:
            name = f"{name}_"
        if len(name) > _LONGEST:
            digest = hashlib.sha256(str(table).encode()).hexdigest()[:_HASH]
            name = f"{name[: _LONGEST - _HASH - 1]}.{digest}"
        return name


_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_WORD, _WORD_BITS, _LANE = 4, 32, 8
_FEW = 16
"""So many keys of one length are as quick one after the other."""


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partitions_of(keys: Sequence[bytes], partitions: int) -> list[int]:
    places: defaultdict[int, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        places[len(key)].append(place)
    found = [0] * len(keys)
    for alike in places.values():
        some = [keys[place] for place in alike]
        hashes = hashes_of(some) if len(some) > _FEW else map(murmur2, some)
        for place, hash in zip(alike, hashes, strict=True):
            found[place] = (hash & 0x7FFFFFFF) % partitions
    return found


def murmur2(key: bytes) -> int:
    """As an unsigned number."""
    length = len(key)
    body, rest = length & ~3, length & 3
    h = _SEED ^ length
    for (word,) in iter_unpack("<I", key[:body]):
        k = word * _M & _MASK
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
    if rest:
        h = (h ^ int.from_bytes(key[body:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def hashes_of(keys: Sequence[bytes]) -> Sequence[int]:
    """Of keys that have the same length."""
    length, lanes = len(keys[0]), (len(keys) + 1) // 2
    filler = bytes(-length % _WORD)
    words = memoryview(filler.join([*keys, b""])).cast("I")
    width = (length + len(filler)) // _WORD
    columns = [int.from_bytes(words[at::width].tobytes(), "little") for at in range(width)]
    even, odd = (_hashed([column >> shift for column in columns], lanes, length) for shift in (0, _WORD_BITS))
    return unpack_from(f"<{len(keys)}I", (even | odd << _WORD_BITS).to_bytes(lanes * _LANE, "little"))


def _hashed(columns: Sequence[int], lanes: int, length: int) -> int:
    """`murmur2` in each lane. What else a column or a shift to the right brings into a lane is masked."""
    one = int.from_bytes((1).to_bytes(_LANE, "little") * lanes, "little")
    mask, byte = one * _MASK, one * 0xFF
    h = one * (_SEED ^ length)
    whole = length // _WORD
    for words in columns[:whole]:
        k = (words & mask) * _M & mask
        h = (h * _M ^ (k ^ k >> 24 & byte) * _M) & mask
    for rest in columns[whole:]:
        h = (h ^ rest & mask) * _M & mask
    h = (h ^ h >> 13 & mask) * _M & mask
    return h ^ h >> 15 & mask
