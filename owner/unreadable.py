"""`UnreadableChangefeeds`: changefeeds with a record in etcd that the owner cannot read. They stand still, and no other one is affected.

A user may have such a changefeed removed: `removed/<id>` is written beside its `info`, which stays as it is. What runs of it is not known, since its records say so. So the owner
removes it in two steps:

    status and barrier deleted ──the margin──▶ all keys deleted, `info` with them

After the first step no task finds its run confirmed in etcd, and after the margin none may write any more. Until the second, no changefeed of
this name can be created. A new owner begins with the margin again.
"""

from __future__ import annotations

import time
from datetime import timedelta

import structlog

from changefeed.errors import RecordUnreadable
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, DesiredState
from coordination.etcd.protocol import CreateRevIs, Delete, DeletePrefix
from coordination.fenced import FencedStore
from coordination.layout import Layout
from coordination.mirror import View

_log = structlog.get_logger()


class UnreadableChangefeeds:
    def __init__(self, store: FencedStore, layout: Layout, margin: timedelta) -> None:
        self._store = store
        self._layout = layout
        self._margin = margin
        self._said: dict[ChangefeedId, str] = {}
        self._still_since: dict[ChangefeedId, float] = {}

    def met(self, id: ChangefeedId, error: RecordUnreadable) -> None:
        """It is logged once, not at each tick."""
        if self._said.get(id) != str(error):
            self._said[id] = str(error)
            _log.error("changefeed_unreadable", changefeed=id, exc_info=error)

    def asked_to_remove(self, id: ChangefeedId, info: ChangefeedInfo | None, view: View) -> bool:
        """`info`: what can be read, which may be all after the first step; it then says what it said before."""
        if view.get(self._layout.removed(id)) is None:
            return False
        if info is None or info.desired is not DesiredState.REMOVED:
            return True
        begun = any(True for _ in view.groups_below(self._layout.assignments(id)))
        return begun and view.get(self._layout.status(id)) is None

    def forget(self, id: ChangefeedId) -> None:
        """It can be read, or is gone."""
        self._said.pop(id, None)
        self._still_since.pop(id, None)

    def remove(self, id: ChangefeedId, view: View) -> None:
        layout, now = self._layout, time.monotonic()
        info, run = view.get(layout.info(id)), (layout.status(id), layout.barrier(id))
        if info is None:
            return
        same = (CreateRevIs(info.key, info.create_rev),)
        if any(view.get(key) is not None for key in run):
            self._still_since.pop(id, None)
            self._store.commit([Delete(key) for key in run], same)
        elif now - self._still_since.setdefault(id, now) >= self._margin.total_seconds():
            groups = layout.changefeed, layout.large, layout.positions
            self._store.commit([DeletePrefix(group(id)) for group in groups], same)
            _log.warning("unreadable_changefeed_removed", changefeed=id)
