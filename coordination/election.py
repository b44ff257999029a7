"""`Candidate`: takes part in the election of the owner.

A candidate creates the key `owner/<lease>` under its session's lease. The key with the lowest create-revision leads. Each other
candidate watches only the key just before its own, so the end of an owner wakes one candidate, not all.

    owner/0a  created at 17   leads, epoch 17
    owner/3c  created at 40   watches owner/0a
    owner/11  created at 52   watches owner/3c

The epoch of an owner is the create-revision of its key: every write of an owner compares it (`FencedStore`), and epochs of later
owners are higher. A dead owner's key is deleted with its lease, so another leads after at most the TTL and one watch event. Its key
is older than the last writes of its predecessor. So it writes once before it first reads the state: a state at least as new as that
write holds all writes of earlier owners.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

from changefeed.errors import FencedError, RecordUnreadable
from changefeed.records.node import NodeId
from coordination.etcd.protocol import CreateRevIs, Delete, Etcd, HistoryCompacted, KeyValue, Put, Snapshot
from coordination.fenced import FencedStore
from coordination.layout import Layout, OwnerRecord, child, decode, encode
from coordination.view import View


@dataclass(frozen=True, slots=True)
class ElectedOwner:
    node: NodeId
    epoch: int


class Candidate:
    """For one thread. Campaign again after `FencedError` only in a new session."""

    def __init__(self, etcd: Etcd, layout: Layout, *, lease: int, node: NodeId) -> None:
        self._etcd = etcd
        self._layout = layout
        self._lease = lease
        self._record = encode(OwnerRecord(node=node))
        self.key = layout.owner(lease)

    def campaign(self, timeout: timedelta) -> FencedStore | None:
        """The store for an owner's writes once this candidate leads. None if it does not lead in time.

        The candidate keeps its key: call `campaign` again until `FencedError` says that the session is over, or call `resign`. After a
        retryable error the key may or may not exist: call `campaign` again.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        self._create_key()
        while True:
            line = self._etcd.range(self._layout.owners)
            ahead, own = self._place(line)
            if ahead is None:
                store = FencedStore(self._etcd, key=self.key, epoch=own.create_rev)
                store.begin_turn()
                return store
            left = timedelta(seconds=deadline - time.monotonic())
            if left <= timedelta(0) or not self._gone(ahead, line.revision + 1, left):
                return None

    def resign(self) -> None:
        """Delete the candidate's key. If it led, the next candidate leads at once. May be called twice."""
        self._etcd.txn((), (Delete(self.key),))

    def _create_key(self) -> None:
        """Safe to repeat: only the first put finds no key."""
        self._etcd.txn((CreateRevIs(self.key, 0),), (Put(self.key, self._record, self._lease),))

    def _place(self, line: Snapshot) -> tuple[KeyValue | None, KeyValue]:
        """The key just before this candidate's, and its own."""
        ahead = None
        for kv in sorted(line.items, key=lambda kv: kv.create_rev):
            if kv.key == self.key:
                return ahead, kv
            ahead = kv
        raise FencedError(
            f"{self.key}: expected this key in the election of the owner, found it gone; its session is over"
        )

    def _gone(self, ahead: KeyValue, start_rev: int, timeout: timedelta) -> bool:
        deadline = time.monotonic() + timeout.total_seconds()
        watch = self._etcd.watch(ahead.key, start_rev)
        try:
            while (left := deadline - time.monotonic()) > 0:
                update = watch.next(timedelta(seconds=left))
                if update is not None and any(change.now is None for change in update.changes):
                    return True
        except HistoryCompacted:
            return True  # the key may or may not be gone: the caller reads all keys again
        finally:
            watch.close()
        return False


def owner_in(view: View, layout: Layout) -> ElectedOwner | None:
    """The owner in a view of the mirror."""
    line = view.group(layout.owners).values()
    first = min(line, key=lambda kv: kv.create_rev, default=None)
    return ElectedOwner(_node_of(first, view, layout), first.create_rev) if first else None


def _node_of(owner: KeyValue, view: View, layout: Layout) -> NodeId:
    """The lease in its key, which ends the id of its node, tells the same as its record."""
    try:
        return decode(OwnerRecord, owner).node
    except RecordUnreadable:
        lease = child(owner.key, layout.owners).lstrip("0")
        nodes = (child(key, layout.nodes) for key in view.group(layout.nodes))
        return NodeId(next((node for node in nodes if node.endswith(f"-{lease}")), owner.key))
