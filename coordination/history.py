"""`entry_ops`, `history_of`, `lease_history`: what was done to a changefeed, by whom, and what became of it, in etcd.

An entry is written in the transaction of what it tells, so there is none without it. Users' changes and the changefeed's states stand apart, and the newest
of each are kept: a changefeed that changes its state all the time hides no user's change. When the changefeed is removed, its history
is put under a lease and goes with it.
"""

from __future__ import annotations

from datetime import timedelta

from changefeed.records.history import HistoryEntry
from changefeed.records.requests import ChangefeedId
from coordination.etcd.protocol import Delete, Etcd, Op, Put, batches
from coordination.fenced import FencedStore
from coordination.layout import Layout, decode, encode

MOST_ENTRIES = 200
"""Of each kind."""
KEPT_AFTER_REMOVAL = timedelta(days=7)
_AT_ONCE = 20
"""How many old entries a new one takes away: one is enough, but for what an earlier release has left."""


def entry_ops(keys: Etcd | FencedStore, layout: Layout, id: ChangefeedId, entry: HistoryEntry, salt: str) -> list[Op]:
    """`salt` tells entries of one microsecond by different writers apart."""
    group = layout.history(id, entry.kind)
    known = keys.keys(group)
    surplus = known[: max(0, len(known) + 1 - MOST_ENTRIES)][:_AT_ONCE]
    at = round(entry.at.timestamp() * 1_000_000)
    return [Put(f"{group}{at:016x}-{salt}", encode(entry)), *map(Delete, surplus)]


def lease_history(store: FencedStore, layout: Layout, id: ChangefeedId) -> None:
    """Of a changefeed that is about to go. May be called again: after a crash the next owner does."""
    found = store.range(layout.histories(id)).items
    if not found:
        return
    lease = store.grant(KEPT_AFTER_REMOVAL).id
    for batch in batches([Put(kv.key, kv.value, lease)] for kv in found):
        store.commit(batch, apart=True)


def history_of(etcd: Etcd, layout: Layout, id: ChangefeedId) -> list[HistoryEntry]:
    """The oldest first."""
    found = etcd.range(layout.histories(id)).items
    return sorted((decode(HistoryEntry, kv) for kv in found), key=lambda entry: entry.at)
