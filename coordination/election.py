"""`Candidate`: campaign for the owner's place, and know when it is one's own.

A candidate puts `owner/<lease>` under its session's lease. Of the keys there, the one with the lowest create-revision leads; everybody
else watches only the one just before its own, so the end of an owner wakes one candidate, not all.

    owner/0a  created at 17   leads, epoch 17
    owner/3c  created at 40   watches owner/0a
    owner/11  created at 52   watches owner/3c

The epoch of an owner is the create-revision of its key: every write of an owner compares it (`FencedStore`), and epochs of later
owners are higher. A dead owner's key goes with its lease, so another leads after at most the TTL and one watch event. It stood in line while
the one before still wrote, so its first write comes before its first look: what it decides on is no older than that, and so holds all of theirs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

from changefeed.errors import FencedError
from changefeed.records import NodeId
from coordination.etcd.protocol import CreateRevIs, Delete, Etcd, HistoryCompacted, KeyValue, Put, Snapshot
from coordination.fenced import FencedStore
from coordination.layout import Layout, OwnerRecord, decode, encode
from coordination.mirror import View


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
        """The store for an owner's writes once this candidate leads; None when it does not lead in time.

        It stays in line: call it again until `FencedError` says that the session is over, or `resign`. After a retryable error it may
        or may not stand in line: call it again.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        self._stand()
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
        """Leave the line, or the owner's place: the next in line leads at once. May be called twice."""
        self._etcd.txn((), (Delete(self.key),))

    def _stand(self) -> None:
        """Safe to repeat: of two puts, only the first finds no key."""
        self._etcd.txn((CreateRevIs(self.key, 0),), (Put(self.key, self._record, self._lease),))

    def _place(self, line: Snapshot) -> tuple[KeyValue | None, KeyValue]:
        """Who stands just ahead, and this candidate's own key."""
        ahead = None
        for kv in sorted(line.items, key=lambda kv: kv.create_rev):
            if kv.key == self.key:
                return ahead, kv
            ahead = kv
        raise FencedError(
            f"{self.key}: expected it in the line for the owner's place, found it gone; its session is over"
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
            return True  # it may be gone or not: the caller looks at the line again
        finally:
            watch.close()
        return False


def owner_in(view: View, layout: Layout) -> ElectedOwner | None:
    """Who leads in a view of the mirror."""
    line = view.group(layout.owners).values()
    first = min(line, key=lambda kv: kv.create_rev, default=None)
    return ElectedOwner(decode(OwnerRecord, first).node, first.create_rev) if first else None
