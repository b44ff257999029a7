"""What Sluice needs of etcd, and no more: consistent reads, guarded transactions, watches, leases.

Two things implement `Etcd` and pass the same contract tests: `EtcdClient` over the wire and `MemoryEtcd` for the simulation.

Every method returns before its deadline. What it raises is of our error tree: `CoordinationUnavailable` when etcd does not answer,
`OutcomeUnknown` when a transaction was sent and its answer never came, `CoordinationFull` when etcd is out of space, `CoordinationRefused` when etcd
does not let us.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from changefeed.errors import CoordinationUnavailable

MAX_TXN_OPS = 100
"""etcd's own limit is 128, but an operator may have lowered it, and a fence and its compares share it."""

MAX_TXN_BYTES = 1 << 20
"""etcd refuses requests above 1.5 MiB; keys, compares and framing need some of that."""


class HistoryCompacted(CoordinationUnavailable):
    """The revisions asked for are gone: start over from a fresh snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """`create_rev` names one life of the key, `mod_rev` its latest change; a lease of 0 is none."""

    key: str
    value: bytes
    create_rev: int
    mod_rev: int
    lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All keys under a prefix, in key order, as they were at one revision."""

    revision: int
    items: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class CreateRevIs:
    """The key is still in the life that began at `rev`; 0 says that it does not exist."""

    key: str
    rev: int


@dataclass(frozen=True, slots=True)
class ModRevIs:
    """Nobody has changed the key since `rev`; 0 says that it does not exist."""

    key: str
    rev: int


Compare = CreateRevIs | ModRevIs


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Deleting a key that is not there is no error."""

    key: str


@dataclass(frozen=True, slots=True)
class DeletePrefix:
    prefix: str


Op = Put | Delete | DeletePrefix


@dataclass(frozen=True, slots=True)
class Committed:
    revision: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A compare failed and nothing was written; `found` is what stood under the compared keys at that moment."""

    revision: int
    found: Mapping[str, KeyValue | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one revision did to one key; `now` is None where it was deleted."""

    key: str
    now: KeyValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchUpdate:
    """One whole revision, never a part of one. Without changes it is progress: nothing up to `revision` was left out."""

    revision: int
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    id: int
    ttl: timedelta


class Watch(Protocol):
    """Updates in revision order. One thread reads it; any thread may close it."""

    def next(self, timeout: timedelta) -> WatchUpdate | None:
        """The next update, None when there is none in time.

        Raises `HistoryCompacted`, or `CoordinationUnavailable` when the stream broke or was closed: the watch is then over.
        """

    def close(self) -> None: ...


class Etcd(Protocol):
    def get(self, key: str) -> KeyValue | None: ...

    def range(self, prefix: str) -> Snapshot:
        """Linearizable: it holds every transaction committed before the call."""

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> Committed | Refused: ...

    def watch(self, prefix: str, start_rev: int) -> Watch:
        """All changes under the prefix from `start_rev` (inclusive) on."""

    def grant(self, ttl: timedelta) -> Lease: ...

    def keep_alive(self, lease: int, timeout: timedelta) -> timedelta | None:
        """The time to live counted anew; None when the lease is gone."""

    def revoke(self, lease: int) -> None:
        """Deletes the lease and its keys in one revision; a lease that is gone is no error."""

    def time_to_live(self, lease: int) -> timedelta | None: ...


def prefix_end(prefix: str) -> bytes:
    """The first key after all keys that start with the prefix."""
    raw = bytearray(prefix.encode())
    while raw and raw[-1] == 0xFF:
        raw.pop()
    if not raw:
        return b"\0"
    raw[-1] += 1
    return bytes(raw)
