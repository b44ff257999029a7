"""`CommandEntry`: a command entry of the oplog by its bytes, and the operations that it makes visible. Pure.

    applyOps                         visible at once: a small transaction, a batch of writes, a command of a user
    applyOps, partialTxn: true       a part of a large transaction: visible with the entry that ends it
    applyOps, prepare: true          visible with its commitTransaction, if there is one
    commitTransaction                makes the entries visible that it points back to

The entries of one transaction are a chain: each points by `prevOpTime` to the one before. The `prevOpTime` of retryable writes
(`multiOpType: 1`) is no chain: it points to the statement before, which was visible by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from changefeed.bson_bytes import documents_of, elements, fields_of
from changefeed.cluster_time import ClusterTime

_UINT64 = Struct("<Q").unpack_from
_RETRYABLE_WRITES = 1


_COMMAND = b"\x02op\0\x02\0\0\0c\0"
_OPENING_BYTES = 200
"""`op` is within them: only the session and the transaction number come before it."""


def is_command(entry: bytes) -> bool:
    """First searches only the bytes where a command has it, since every row pays for the search. A row may contain these bytes too."""
    return entry.find(_COMMAND, 0, _OPENING_BYTES) >= 0 and _op(entry) == _COMMAND


def holds_command(entry: bytes) -> bool:
    """Whether the operations of an entry may include a command. The entry itself contains the bytes once."""
    return entry.count(_COMMAND) > 1


def _op(entry: bytes) -> bytes:
    return next(entry[at - 4 : end] for name, _, at, end in elements(entry) if name == b"op")


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One entry. `previous_ts` is the time of the entry before it in its chain."""

    ts: ClusterTime
    visible: bool
    previous_ts: ClusterTime | None
    commit_ts: ClusterTime | None
    """When the transaction took effect that it commits. None: it is no commitTransaction."""
    entry: bytes

    @classmethod
    def of(cls, entry: bytes) -> CommandEntry:
        fields = {name: entry[at:end] for name, _, at, end in elements(entry)}
        o = fields_of(fields[b"o"])
        applies = b"applyOps" in o
        partial = applies and (_true(o, b"partialTxn") or _true(o, b"prepare"))
        commits = b"commitTransaction" in o
        effective = o.get(b"commitTimestamp", fields[b"ts"])[-8:]
        return cls(
            ClusterTime.from_int(_UINT64(fields[b"ts"], 0)[0]),
            (applies and not partial) or commits,
            _previous(fields) if applies or commits else None,
            ClusterTime.from_int(_UINT64(effective)[0]) if commits else None,
            entry,
        )

    def operations(self) -> Iterator[tuple[bytes, bool]]:
        """Each operation, and whether its updates insert missing documents."""
        yield from _operations(fields_of(self.entry)[b"o"][3:])


def _operations(o: bytes) -> Iterator[tuple[bytes, bool]]:
    found = {name: (kind, at, end) for name, kind, at, end in elements(o)}
    if b"applyOps" not in found:
        return
    _, at, end = found[b"applyOps"]
    upserts = _by_user(found) and not _said_false(o, found)
    for operation in documents_of(o, at, end):
        inner = fields_of(operation)
        nested = inner[b"o"][3:] if inner.get(b"op") == _COMMAND else b""
        if b"\x04applyOps\0" in nested and b"applyOps" in fields_of(nested):
            yield from _operations(nested)
        else:
            yield operation, upserts


def _by_user(found: dict[bytes, tuple[int, int, int]]) -> bool:
    """Whether a user sent this applyOps: servers up to 6.x log such a command with its other fields."""
    return b"$db" in found or b"alwaysUpsert" in found


def _said_false(o: bytes, found: dict[bytes, tuple[int, int, int]]) -> bool:
    _, at, end = found.get(b"alwaysUpsert", (0, 0, 0))
    return o[at:end] == b"\0"


def _true(fields: dict[bytes, bytes], name: bytes) -> bool:
    return fields.get(name, b"\0")[-1:] == b"\x01"


def _previous(fields: dict[bytes, bytes]) -> ClusterTime | None:
    """`fields` are raw values."""
    if int.from_bytes(fields.get(b"multiOpType", b""), "little") == _RETRYABLE_WRITES or b"prevOpTime" not in fields:
        return None
    for name, _, at, _ in elements(fields[b"prevOpTime"]):
        if name == b"ts":
            ts = ClusterTime.from_int(_UINT64(fields[b"prevOpTime"], at)[0])
            return ts if ts.seconds else None
    return None
