"""`Etcd`: the operations that Sluice needs: consistent reads, guarded transactions, watches, leases. `EtcdConfig`: where etcd is. Pure.

Two classes implement it and pass the same contract tests: `EtcdClient` over the wire and `MemoryClient` for the simulation.

Every method returns before its deadline. Its errors are of our error tree: `CoordinationUnavailable` if etcd does not answer,
`OutcomeUnknown` if a transaction was sent but not answered, `CoordinationFull` if etcd is out of space, `CoordinationRefused` if
etcd refuses authentication or privileges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import PurePath
from typing import Protocol

from changefeed.errors import CoordinationUnavailable

MAX_TXN_OPS = 100
"""etcd's default limit is 128, for operations and for compares. An operator may have lowered it."""

MAX_TXN_BYTES = 1 << 20
"""etcd refuses requests above 1.5 MiB; keys, compares and framing need some of that."""


class HistoryCompacted(CoordinationUnavailable):
    """The requested revisions are gone: start over from a new snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """`create_rev` identifies one life of the key, `mod_rev` its latest change. Lease 0 means no lease."""

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
    """The key was created at `rev` and has not been deleted since. 0: it does not exist."""

    key: str
    rev: int


@dataclass(frozen=True, slots=True)
class ModRevIs:
    """The key has not changed since `rev`. 0: it does not exist."""

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
    """Deleting a missing key is no error."""

    key: str


@dataclass(frozen=True, slots=True)
class DeletePrefix:
    prefix: str


Op = Put | Delete | DeletePrefix


def bytes_of(ops: Iterable[Op]) -> int:
    return sum(len(op.key) + len(op.value) for op in ops if isinstance(op, Put))


def batches(groups: Iterable[Sequence[Op]], most_bytes: int = MAX_TXN_BYTES) -> Iterator[list[Op]]:
    """As many groups at a time as one transaction takes, in their order. No group is divided."""
    batch: list[Op] = []
    size = 0
    for group in groups:
        cost = bytes_of(group)
        if batch and (len(batch) + len(group) > MAX_TXN_OPS or size + cost > most_bytes):
            yield batch
            batch, size = [], 0
        batch += group
        size += cost
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class Committed:
    revision: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A compare failed and nothing was written. `found` holds the compared keys as they were at that moment."""

    revision: int
    found: Mapping[str, KeyValue | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one key in one revision. `now` is None if it was deleted."""

    key: str
    now: KeyValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchUpdate:
    """One whole revision, never a part of one. Without changes it reports progress: no change up to `revision` is missing."""

    revision: int
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    id: int
    ttl: timedelta


class Watch(Protocol):
    """Updates in revision order. One thread reads it; any thread may close it."""

    def next(self, timeout: timedelta) -> WatchUpdate | None:
        """The next update. None if there is none in time.

        Raises `HistoryCompacted`, or `CoordinationUnavailable` if the stream broke or was closed: the watch is then over.
        """

    def close(self) -> None: ...


class Etcd(Protocol):
    def get(self, key: str) -> KeyValue | None: ...

    def range(self, prefix: str, below: str = "", *, at_rev: int = 0) -> Snapshot:
        """Linearizable: it holds every transaction committed before the call. With `below`, only the keys before that one.

        With `at_rev`, as it was at that revision; raises `HistoryCompacted` if etcd no longer has it.
        """

    def keys(self, prefix: str) -> Sequence[str]:
        """In their order, without their values. Linearizable."""

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> Committed | Refused: ...

    def watch(self, prefix: str, start_rev: int, below: str = "") -> Watch:
        """All changes of such keys from `start_rev` (inclusive) on."""

    def grant(self, ttl: timedelta) -> Lease: ...

    def keep_alive(self, lease: int, timeout: timedelta) -> timedelta | None:
        """The renewed time to live. None if the lease is gone."""

    def revoke(self, lease: int) -> None:
        """Deletes the lease and its keys in one revision. A missing lease is no error."""

    def time_to_live(self, lease: int) -> timedelta | None: ...


def range_end(prefix: str, below: str) -> bytes:
    return below.encode() if below else prefix_end(prefix)


def prefix_end(prefix: str) -> bytes:
    """The first key after all keys that start with the prefix."""
    raw = bytearray(prefix.encode())
    while raw and raw[-1] == 0xFF:
        raw.pop()
    if not raw:
        return b"\0"
    raw[-1] += 1
    return bytes(raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Paths of PEM files; `cert` and `key` only where etcd asks for a client certificate."""

    ca: PurePath
    cert: PurePath | None = None
    key: PurePath | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConfig:
    """`endpoints` are `host:port`. `timeout` bounds each call, failover included."""

    endpoints: tuple[str, ...] = ("127.0.0.1:2379",)
    tls: Tls | None = None
    user: str | None = None
    password_file: PurePath | None = None
    """Only its path: Spark sends this to executors, which have the file too. Read each time it is needed."""
    timeout: timedelta = timedelta(seconds=5)
