"""`FencedStore`: writes that etcd accepts only while their writer's epoch is valid.

Each transaction compares the create-revision of the writer's own key (an owner's `owner/<lease>`, a processor's `nodes/<node>`)
with its epoch. The possible results, and what the caller does:

    commit returns a revision   done; take no decision on a state older than it (`Mirror.at_least`)
    FencedError                 the epoch is over: nothing was written; stop at once
    ConflictError               one of the caller's compares failed: nothing was written; read the state again
    OutcomeUnknown              sent but not answered: it may have happened, or may *still* happen, because a request in flight
                                cannot be cancelled. Call `settle` until it returns, then decide again from a state at least as
                                new as the revision it returns. Never just send it again. (`CoordinationFull` is one.)
    CoordinationUnavailable     not sent: nothing was written

How `settle` makes an unknown outcome known. Every transaction also compares the mod-revision of the writer's key, its
*turn*. `settle` rewrites the key with its present value, which ends the turn: a transaction of an earlier turn that arrives
later is refused. So at the revision that `settle` returns, each earlier transaction is either visible or will never be.

    commit(A) at turn 40  ─▶ no answer
    settle                ─▶ writer's key rewritten at 57; the turn is now 57
    A arrives late        ─▶ compares 40 with 57: refused
    decide on a state of revision >= 57, commit(B) at turn 57
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta

from changefeed.errors import ConflictError, FencedError, OutcomeUnknown
from coordination.etcd.protocol import (
    Committed,
    Compare,
    CreateRevIs,
    Etcd,
    KeyValue,
    Lease,
    ModRevIs,
    Op,
    Put,
    Refused,
    Snapshot,
    batches,
)


class FencedStore:
    """Safe to use from many threads of one writer."""

    def __init__(self, etcd: Etcd, *, key: str, epoch: int) -> None:
        self._etcd = etcd
        self._key = key
        self._lock = threading.Lock()
        self._turn = epoch
        self._unknown_turn = 0
        self._last_rev = epoch
        self.epoch = epoch

    def commit(self, ops: Sequence[Op], compares: Sequence[Compare] = (), *, apart: bool = False) -> int:
        """The revision at which all operations were written. `apart`: of keys that the writer's mirror need not show."""
        while True:
            turn = self._turn
            fence = (CreateRevIs(self._key, self.epoch), ModRevIs(self._key, turn))
            try:
                result = self._etcd.txn((*fence, *compares), ops)
            except OutcomeUnknown:
                with self._lock:
                    self._unknown_turn = max(self._unknown_turn, turn)
                raise
            if isinstance(result, Committed):
                if not apart:
                    self._wrote(result.revision)
                return result.revision
            own = self._own(result.found[self._key])
            if own.mod_rev == turn:
                raise ConflictError(conflict(compares, result))
            self._begin_turn(own.mod_rev)

    def commit_in_parts(self, ops: Sequence[Op]) -> int:
        """Write in as many transactions as etcd's limits require, in order: each prefix of `ops` must leave a correct state."""
        for batch in batches([op] for op in ops):
            self.commit(batch)
        return self._last_rev

    def range(self, prefix: str) -> Snapshot:
        """What is apart is read here. After an unknown outcome, `settle` comes first."""
        return self._etcd.range(prefix)

    def keys(self, prefix: str) -> Sequence[str]:
        """As `range`, without the values."""
        return self._etcd.keys(prefix)

    def grant(self, ttl: timedelta) -> Lease:
        return self._etcd.grant(ttl)

    def settle(self) -> int:
        """A revision at which the outcome of every earlier transaction is visible. It calls etcd only if an outcome is unknown."""
        return self.begin_turn() if self._unknown_turn >= self._turn else self._last_rev

    def begin_turn(self) -> int:
        """End the earlier turn: its late transactions are refused. The revision returned is higher than those of all writes of earlier owners."""
        own = self._own(self._etcd.get(self._key))
        result = self._etcd.txn((ModRevIs(self._key, own.mod_rev),), (Put(self._key, own.value, own.lease),))
        if isinstance(result, Committed):
            self._begin_turn(result.revision)
        else:
            self._begin_turn(self._own(result.found[self._key]).mod_rev)
        return self._last_rev

    def _own(self, found: KeyValue | None) -> KeyValue:
        if found is None or found.create_rev != self.epoch:
            observed = f"the key was created at {found.create_rev}" if found else "the key does not exist"
            raise FencedError(
                f"{self._key}: this writer's epoch is {self.epoch}, but {observed}; the writer must stop at once"
            )
        return found

    def _begin_turn(self, rev: int) -> None:
        with self._lock:
            self._turn = max(self._turn, rev)
        self._wrote(rev)

    def _wrote(self, rev: int) -> None:
        with self._lock:
            self._last_rev = max(self._last_rev, rev)


def conflict(compares: Sequence[Compare], refused: Refused) -> str:
    """The expected and the observed state of each key whose compare failed."""
    told = []
    for compare in compares:
        found, rev = refused.found[compare.key], 0
        if found is not None:
            rev = found.create_rev if isinstance(compare, CreateRevIs) else found.mod_rev
        if rev != compare.rev:
            expected = f"unchanged since revision {compare.rev}" if compare.rev else "absent"
            told.append(f"{compare.key}: expected {expected}, found it {f'at revision {rev}' if found else 'gone'}")
    return "; ".join(told)


def compare_and_swap(etcd: Etcd, compares: Sequence[Compare], ops: Sequence[Op]) -> int:
    """For writers without an epoch (the admin API): guarded only by the revisions that were read.

    After `OutcomeUnknown`, read again. A compare on the mod-revision of each written key makes a repetition harmless.
    """
    result = etcd.txn(compares, ops)
    if isinstance(result, Refused):
        raise ConflictError(f"{conflict(compares, result)}; read it again")
    return result.revision
