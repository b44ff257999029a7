"""`hashed`: the value by which a hashed shard key orders a document, as the servers compute it. Pure."""

from __future__ import annotations

from hashlib import md5
from struct import Struct
from typing import Any

from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey

_SEED_AND_KIND, _NUMBER = Struct("<ii"), Struct("<q")
_NUMBERS = 10
"""The canonical type of all numbers."""


def hashed(value: Any) -> Any:
    """Of a whole number. The ends of the range are their own values, as in the bounds of chunks."""
    if isinstance(value, MinKey | MaxKey):
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"only whole numbers are hashed here, found {value!r}")
    digest = md5(_SEED_AND_KIND.pack(0, _NUMBERS) + _NUMBER.pack(value), usedforsecurity=False).digest()
    return Int64(_NUMBER.unpack(digest[:8])[0])
