"""`MemoryEtcd`: etcd without a server, for simulations. Deterministic: no clock, no randomness, no threads of its own.

`advance` sets the time and lets leases expire. Each client has its own connection, on which a simulation can imitate a network: cut
it, delay its watches, lose the answer to a transaction, or deliver a transaction late.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto

from changefeed.errors import CoordinationFull, CoordinationUnavailable, FencedError, InvariantError, OutcomeUnknown
from coordination.etcd.protocol import (
    Change,
    Committed,
    Compare,
    CreateRevIs,
    Delete,
    DeletePrefix,
    HistoryCompacted,
    KeyValue,
    Lease,
    Op,
    Put,
    Refused,
    Snapshot,
    WatchUpdate,
)

_MAX_TXN_OPS = 128
_MAX_REQUEST_BYTES = 3 << 19
_MIN_TTL_SECONDS = 2


class Space(Enum):
    FREE = auto()
    ENDING = auto()
    """The next transaction is applied, but answered with a refusal."""
    NONE = auto()
    """Leases stay alive and watches work, but transactions and new leases are refused. (Releases after 3.5.1 accept transactions that
    only delete.)"""


@dataclass(slots=True)
class _GrantedLease:
    ttl: timedelta
    expires_at: timedelta


class MemoryEtcd:
    """The server: one history of revisions. `connect` returns a client that implements `Etcd`."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.revision = 1
        self.compacted_rev = 0
        self.progress_rev = 0
        self._space = Space.FREE
        self._keys: dict[str, KeyValue] = {}
        self._history: list[WatchUpdate] = []
        self._before: dict[int, Mapping[str, KeyValue | None]] = {}
        """By revision: what its keys were before it."""
        self._leases: dict[int, _GrantedLease] = {}
        self._last_lease = 0
        self._now = timedelta(0)

    def connect(self) -> MemoryClient:
        return MemoryClient(self)

    def advance(self, now: timedelta) -> None:
        """Set the time. Each expired lease is deleted with its keys, in its own revision."""
        with self.changed:
            self._now = max(self._now, now)
            expired = sorted(
                (lease.expires_at, lease_id)
                for lease_id, lease in self._leases.items()
                if lease.expires_at <= self._now
            )
        for _, lease_id in expired:
            self.revoke(lease_id)

    def compact(self, revision: int) -> None:
        with self.changed:
            self.compacted_rev = max(self.compacted_rev, revision)
            self._history = [update for update in self._history if update.revision > self.compacted_rev]
            self._before = {rev: keys for rev, keys in self._before.items() if rev > self.compacted_rev}
            self.changed.notify_all()

    def fill_up(self, *, at_once: bool = True) -> None:
        """Run out of space, at once or during the next transaction."""
        with self.changed:
            self._space = Space.NONE if at_once else Space.ENDING

    def make_room(self) -> None:
        with self.changed:
            self._space = Space.FREE

    def notify_progress(self) -> None:
        """Each watch reports progress once it has shown everything."""
        with self.changed:
            self.progress_rev = self.revision
            self.changed.notify_all()

    def get(self, key: str) -> KeyValue | None:
        with self.changed:
            return self._keys.get(key)

    def range(self, prefix: str, below: str = "", *, at_rev: int = 0) -> Snapshot:
        with self.changed:
            keys = self._keys_at(at_rev) if at_rev else self._keys
            found = (kv for kv in keys.values() if kv.key.startswith(prefix) and (not below or kv.key < below))
            items = sorted(found, key=lambda kv: kv.key.encode())
            return Snapshot(revision=at_rev or self.revision, items=tuple(items))

    def keys(self, prefix: str) -> list[str]:
        with self.changed:
            return sorted(key for key in self._keys if key.startswith(prefix))

    def _keys_at(self, revision: int) -> Mapping[str, KeyValue]:
        if revision < self.compacted_rev:
            raise HistoryCompacted(f"etcd: required revision has been compacted up to {self.compacted_rev}")
        keys = dict(self._keys)
        for rev in range(self.revision, revision, -1):
            for key, before in self._before.get(rev, {}).items():
                if before is None:
                    keys.pop(key, None)
                else:
                    keys[key] = before
        return keys

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> Committed | Refused:
        with self.changed:
            self._check(compares, ops)
            self._refuse_when_full()
            if not all(self._holds(compare) for compare in compares):
                return Refused(self.revision, {compare.key: self._keys.get(compare.key) for compare in compares})
            self._write(ops)
            if ops and self._space is Space.ENDING:
                self._space = Space.NONE
                self._refuse_when_full()
            return Committed(self.revision)

    def since(self, revision: int, prefix: str, below: str) -> WatchUpdate | None:
        """The first update at or after a revision that touches such a key."""
        start = bisect_left(self._history, revision, key=lambda update: update.revision)
        for update in self._history[start:]:
            touched = (change for change in update.changes if change.key.startswith(prefix))
            changes = tuple(change for change in touched if not below or change.key < below)
            if changes:
                return WatchUpdate(revision=update.revision, changes=changes)
        return None

    def grant(self, ttl: timedelta) -> Lease:
        with self.changed:
            self._refuse_when_full()
            self._last_lease += 1
            granted = timedelta(seconds=max(math.ceil(ttl.total_seconds()), _MIN_TTL_SECONDS))
            self._leases[self._last_lease] = _GrantedLease(granted, self._now + granted)
            return Lease(id=self._last_lease, ttl=granted)

    def keep_alive(self, id: int) -> timedelta | None:
        with self.changed:
            lease = self._leases.get(id)
            if lease is None:
                return None
            lease.expires_at = self._now + lease.ttl
            return lease.ttl

    def revoke(self, id: int) -> None:
        with self.changed:
            if self._leases.pop(id, None) is not None:
                self._write([Delete(key) for key, kv in sorted(self._keys.items()) if kv.lease == id])

    def time_to_live(self, id: int) -> timedelta | None:
        with self.changed:
            lease = self._leases.get(id)
            return lease.expires_at - self._now if lease else None

    def _refuse_when_full(self) -> None:
        if self._space is Space.NONE:
            raise CoordinationFull("etcd: mvcc: database space exceeded")

    def _below(self, prefix: str) -> Iterable[KeyValue]:
        return (kv for key, kv in self._keys.items() if key.startswith(prefix))

    def _holds(self, compare: Compare) -> bool:
        kv = self._keys.get(compare.key)
        if kv is None:
            return compare.rev == 0
        return compare.rev == (kv.create_rev if isinstance(compare, CreateRevIs) else kv.mod_rev)

    def _check(self, compares: Sequence[Compare], ops: Sequence[Op]) -> None:
        if max(len(compares), len(ops)) > _MAX_TXN_OPS:
            raise InvariantError(f"etcd: too many operations in txn request: {len(ops)}")
        puts = [op for op in ops if isinstance(op, Put)]
        touched = [op.key for op in ops if isinstance(op, Put | Delete)]
        prefixes = [op.prefix for op in ops if isinstance(op, DeletePrefix)]
        if len({put.key for put in puts}) < len(puts) or any(
            touched.count(put.key) > 1 or any(put.key.startswith(prefix) for prefix in prefixes) for put in puts
        ):
            raise InvariantError("etcd: duplicate key given in txn request")
        if sum(len(put.key.encode()) + len(put.value) for put in puts) > _MAX_REQUEST_BYTES:
            raise InvariantError("etcd: request is too large")
        for put in puts:
            if put.lease and put.lease not in self._leases:
                raise FencedError(f"{put.key}: lease {put.lease} not found; the session of this lease is over")

    def _write(self, ops: Sequence[Op]) -> None:
        """All operations in one revision. No revision if nothing changes."""
        rev = self.revision + 1
        changes: dict[str, Change] = {}
        before: dict[str, KeyValue | None] = {}
        for op in ops:
            match op:
                case Put(key, value, lease):
                    old = before.setdefault(key, self._keys.get(key))
                    create_rev = old.create_rev if old else rev
                    self._keys[key] = KeyValue(key=key, value=value, create_rev=create_rev, mod_rev=rev, lease=lease)
                    changes[key] = Change(key=key, now=self._keys[key])
                case Delete(key):
                    self._drop([key] if key in self._keys else [], changes, before)
                case DeletePrefix(prefix):
                    self._drop(sorted(kv.key for kv in self._below(prefix)), changes, before)
        if changes:
            self.revision = rev
            self._before[rev] = before
            self._history.append(WatchUpdate(revision=rev, changes=tuple(changes.values())))
            self.changed.notify_all()

    def _drop(self, keys: Iterable[str], changes: dict[str, Change], before: dict[str, KeyValue | None]) -> None:
        for key in keys:
            before.setdefault(key, self._keys.pop(key))
            changes[key] = Change(key=key, now=None)


class MemoryClient:
    """One client's connection to a `MemoryEtcd`, and the faults that a simulation sets on it."""

    def __init__(self, server: MemoryEtcd) -> None:
        self.server = server
        self.connected = True
        self.lose_answers = 0
        """How many of the next transactions are applied but not answered."""
        self.lose_requests = 0
        """How many of the next transactions are delayed: they are applied when `deliver_late` is called, or never."""
        self.seen_limit: int | None = None
        """The last revision that this client's watches may show. None: no limit."""
        self._late: list[Callable[[], object]] = []

    def deliver_late(self) -> None:
        late, self._late = self._late, []
        for request in late:
            with suppress(FencedError, CoordinationFull):  # the sender does not wait for this answer
                request()

    def get(self, key: str) -> KeyValue | None:
        return self._line().get(key)

    def range(self, prefix: str, below: str = "", *, at_rev: int = 0) -> Snapshot:
        return self._line().range(prefix, below, at_rev=at_rev)

    def keys(self, prefix: str) -> list[str]:
        return self._line().keys(prefix)

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> Committed | Refused:
        server = self._line()
        if self.lose_requests:
            self.lose_requests -= 1
            self._late.append(lambda: server.txn(compares, ops))
            raise OutcomeUnknown("etcd: the request was lost, or is late")
        result = server.txn(compares, ops)
        if self.lose_answers:
            self.lose_answers -= 1
            raise OutcomeUnknown("etcd: the answer was lost")
        return result

    def watch(self, prefix: str, start_rev: int, below: str = "") -> MemoryWatch:
        self._line()
        return MemoryWatch(self, prefix, start_rev, below)

    def grant(self, ttl: timedelta) -> Lease:
        return self._line().grant(ttl)

    def keep_alive(self, lease: int, timeout: timedelta) -> timedelta | None:
        return self._line().keep_alive(lease)

    def revoke(self, lease: int) -> None:
        self._line().revoke(lease)

    def time_to_live(self, lease: int) -> timedelta | None:
        return self._line().time_to_live(lease)

    def _line(self) -> MemoryEtcd:
        if not self.connected:
            raise CoordinationUnavailable("etcd: not connected")
        return self.server


class MemoryWatch:
    """Reads the server's history at its own pace. With a timeout of zero it never waits."""

    def __init__(self, client: MemoryClient, prefix: str, start_rev: int, below: str) -> None:
        self._client = client
        self._prefix = prefix
        self._below = below
        self._next_rev = start_rev
        self._reported_rev = start_rev - 1
        self._closed = False

    def next(self, timeout: timedelta) -> WatchUpdate | None:
        changed = self._client.server.changed
        with changed:
            changed.wait_for(lambda: self._over() or self._peek() is not None, timeout.total_seconds())
            if self._over():
                raise self._reason()
            update = self._peek()
            if update is not None:
                self._reported_rev = update.revision
                self._next_rev = max(self._next_rev, update.revision + 1)
            return update

    def close(self) -> None:
        changed = self._client.server.changed
        with changed:
            self._closed = True
            changed.notify_all()

    def _peek(self) -> WatchUpdate | None:
        server = self._client.server
        limit = server.revision if self._client.seen_limit is None else self._client.seen_limit
        update = server.since(self._next_rev, self._prefix, self._below)
        if update is not None:
            return update if update.revision <= limit else None
        self._next_rev = max(self._next_rev, server.revision + 1)
        progress = server.progress_rev
        return WatchUpdate(revision=progress) if self._reported_rev < progress <= limit else None

    def _over(self) -> bool:
        return self._closed or not self._client.connected or self._next_rev <= self._client.server.compacted_rev

    def _reason(self) -> CoordinationUnavailable:
        if self._closed or not self._client.connected:
            return CoordinationUnavailable("etcd: the watch was closed")
        floor = self._client.server.compacted_rev
        return HistoryCompacted(f"etcd: the watch asked for revisions compacted up to {floor}")
