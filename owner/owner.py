"""`Owner`: campaigns in the election and, while it leads, ticks every changefeed.

    campaign ──elected──▶ term: tick, tick, ... ──resigned, fenced or session lost──▶ over

The term ends at the first sign that it may be over: the session's own clock, a refused compare, or `stop`. A new campaign needs a new
session, so an `Owner` has one term at most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

import structlog

from changefeed.config.configuration import Configuration
from changefeed.config.live_options import alike
from changefeed.errors import FencedError, RecordUnreadable, RetryableError
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, DesiredState
from changefeed.records.status import ChangefeedStatus
from coordination.decoded import Decoded, StoredRecord
from coordination.election import Candidate
from coordination.etcd.protocol import CreateRevIs, Delete, DeletePrefix
from coordination.fenced import FencedStore
from coordination.history import lease_history
from coordination.layout import Layout, ResignRequest, decode
from coordination.mirror import Mirror
from coordination.session import Session
from coordination.task_fence import BUDGET
from coordination.view import View
from credentials.logging import Interruption
from owner.changefeed_owner import ChangefeedOwner
from owner.connections import Connections, OwnerTerm, TermPermit
from owner.ddl.jobs import InFlightDdl
from owner.source_watch import OplogLeft
from sink.sink import ARRIVES_WITHIN

_log = structlog.get_logger()

_TICK = timedelta(milliseconds=200)
_IDLE_TICK = timedelta(seconds=1)
"""While rows flow, or nothing, and nothing waits: what changes starts a tick."""
_LEAST_PAUSE = timedelta(milliseconds=20)
_UNHURRIED = timedelta(milliseconds=30)
"""How long changes in etcd are collected before the next tick. New DDL events and ended jobs start a tick at once."""
_CALM = timedelta(milliseconds=150)
"""As long as rows flow and nothing else happens: most changes are the owner's own and the reports that follow from them."""
_CAMPAIGN = timedelta(seconds=2)
_VIEW_TIMEOUT = timedelta(seconds=2)
_REPORTS_KEPT = timedelta(minutes=1)
_RETRY = timedelta(milliseconds=500)


class Owner:
    """Runs in a thread of its own between `start` and `stop`."""

    def __init__(
        self,
        candidate: Candidate,
        session: Session,
        mirror: Mirror,
        layout: Layout,
        connect: Callable[[], Connections],
        *,
        margin: timedelta = BUDGET + ARRIVES_WITHIN,
    ) -> None:
        """`connect`: at the start of each term.

        `margin`: how long writes of a node's Spark tasks may still arrive after its lease is gone.
        """
        self._candidate = candidate
        self._session = session
        self._mirror = mirror
        self._layout = layout
        self._connect = connect
        self._margin = margin
        self._changefeeds: dict[ChangefeedId, ChangefeedOwner] = {}
        self._last_errors: dict[ChangefeedId, str] = {}
        self._log = _log.bind(node=session.node, role="owner")
        self._campaign_outage = Interruption(self._log, "campaign_interrupted", "campaign_goes_on")
        self._etcd_outage = Interruption(self._log, "owner_waits_for_etcd", "owner_goes_on")
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="owner", daemon=True)
        self.leads = threading.Event()
        self.oplog_left: Mapping[ChangefeedId, OplogLeft] = {}
        """How long each changefeed may stop before its source's oplog loses the events that it needs next, as far as known."""
        mirror.listen(self._wake.set)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the term, then lets the next candidate lead at once. May be called twice."""
        self._stopping.set()
        self._hurry()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def ended(self) -> bool:
        """Its thread has ended, with or without a term. A new campaign needs a new `Owner`."""
        return self._thread.ident is not None and not self._thread.is_alive()

    @property
    def over(self) -> bool:
        return self._stopping.is_set() or not self._session.alive

    def _hurry(self) -> None:
        self._wake.set()
        self._urgent.set()

    def _run(self) -> None:
        try:
            store = self._elected()
            if store is not None:
                self._lead(store)
        except FencedError as error:
            self._log.warning("owner_fenced", error=str(error))
        except Exception:
            self._log.exception("owner_failed")
            raise
        finally:
            self.leads.clear()
            self._resign()

    def _elected(self) -> FencedStore | None:
        while not self.over:
            try:
                store = self._candidate.campaign(_CAMPAIGN)
            except RetryableError as error:
                self._campaign_outage.occurred(error)
                self._stopping.wait(_RETRY.total_seconds())
                continue
            self._campaign_outage.over()
            if store is not None:
                return store
        return None

    def _resign(self) -> None:
        if not self._session.alive:
            return
        try:
            self._candidate.resign()
        except RetryableError as error:
            self._log.warning("owner_left_to_expire", error=str(error))

    def _lead(self, store: FencedStore) -> None:
        self._log.info("owner_elected", epoch=store.epoch)
        self.leads.set()
        term = OwnerTerm(
            store=store,
            layout=self._layout,
            reader=Decoded(self._layout),
            connections=self._connect(),
            permit=TermPermit(self._left),
            wake=self._hurry,
            margin=self._margin,
            in_flight=InFlightDdl(self._left),
        )
        unreadable = UnreadableChangefeeds(store, self._layout, self._margin)
        try:
            while not self.over:
                self._wake.clear()
                self._urgent.clear()
                self._round(term, unreadable)
                time.sleep(_LEAST_PAUSE.total_seconds())
                calm = all(changefeed.calm for changefeed in self._changefeeds.values())
                self._urgent.wait((_CALM if calm else _UNHURRIED).total_seconds())
                self._wake.wait((_IDLE_TICK if calm else _TICK).total_seconds())
        finally:
            latest = self._session.lost_at
            for changefeed in self._changefeeds.values():
                changefeed.close()
            term.in_flight.wait(latest - time.monotonic())

    def _left(self) -> float:
        return 0.0 if self.over else self._session.lost_at - time.monotonic()

    def _round(self, term: OwnerTerm, unreadable: UnreadableChangefeeds) -> None:
        try:
            view = self._view(term)
        except RetryableError as error:
            self._etcd_outage.occurred(error)
            self._stopping.wait(_RETRY.total_seconds())
            return
        if _asked_to_resign(view, self._layout, term.store.epoch):
            self._log.info("owner_resigns_as_asked")
            self._stopping.set()
            return
        present = term.reader.changefeeds(view)
        for id in self._changefeeds.keys() - set(present):
            self._changefeeds.pop(id).close()
            self._last_errors.pop(id, None)
        answered = [self._tick(id, term, unreadable) for id in present if not self.over]
        if all(answered):
            self._etcd_outage.over()
        self.oplog_left = {id: known.oplog_left for id, known in self._changefeeds.items() if known.oplog_left}

    def _view(self, term: OwnerTerm) -> View:
        self._mirror.need_apart_for(_REPORTS_KEPT)
        return self._mirror.at_least(term.store.settle(), _VIEW_TIMEOUT, whole=True)

    def _tick(self, id: ChangefeedId, term: OwnerTerm, unreadable: UnreadableChangefeeds) -> bool:
        """An error of one changefeed does not affect the others. Returns whether etcd answered."""
        try:
            self._tick_as_read(id, self._view(term), term, unreadable)
        except FencedError:
            raise
        except RetryableError as error:
            self._etcd_outage.occurred(error, changefeed=id)
            return False
        except Exception as error:  # noqa: BLE001  # the others go on; it is logged once, not at every tick
            if self._last_errors.get(id) != str(error):
                self._last_errors[id] = str(error)
                self._log.exception("changefeed_tick_failed", changefeed=id)
        else:
            self._last_errors.pop(id, None)
        return True

    def _tick_as_read(self, id: ChangefeedId, view: View, term: OwnerTerm, unreadable: UnreadableChangefeeds) -> None:
        try:
            info = term.reader.one(ChangefeedInfo, view, self._layout.info(id))
            if info is not None and unreadable.asked_to_remove(id, info.record, view):
                self._remove_unread(id, view, unreadable)
                return
            status = term.reader.one(ChangefeedStatus, view, self._layout.status(id))
            if info is not None:
                self._owner_of(info, status.record if status else None, term).tick(view)
        except RecordUnreadable as error:
            unreadable.met(id, error)
            if unreadable.asked_to_remove(id, None, view):
                self._remove_unread(id, view, unreadable)
        else:
            unreadable.forget(id)

    def _remove_unread(self, id: ChangefeedId, view: View, unreadable: UnreadableChangefeeds) -> None:
        if id in self._changefeeds:
            self._changefeeds.pop(id).close()
        unreadable.remove(id, view)

    def _owner_of(
        self, stored: StoredRecord[ChangefeedInfo], status: ChangefeedStatus | None, term: OwnerTerm
    ) -> ChangefeedOwner:
        """A changefeed whose capture, sink or configuration was changed, in more than limits, gets a new `ChangefeedOwner`."""
        info = stored.record
        configuration = status.as_found(info.configuration) if status else info.configuration
        id = ChangefeedId(configuration.id)
        known = self._changefeeds.get(id)
        if known is not None and (known.capture is not info.capture or not _same(known.configuration, configuration)):
            self._changefeeds.pop(id).close()
        if id not in self._changefeeds:
            self._changefeeds[id] = ChangefeedOwner(
                id, configuration, info.capture, term, created_rev=stored.create_rev
            )
        return self._changefeeds[id]


def _same(one: Configuration, other: Configuration) -> bool:
    return one is other or (one.sink == other.sink and alike(one, other))


def _asked_to_resign(view: View, layout: Layout, epoch: int) -> bool:
    """A request that cannot be read is nobody's: an owner that ended with it would end in each term."""
    found = view.get(layout.resign)
    try:
        return found is not None and decode(ResignRequest, found).epoch == epoch
    except RecordUnreadable:
        return False


class UnreadableChangefeeds:
    """Changefeeds with a record in etcd that the owner cannot read. They stand still, and no other one is affected.

    A user may have such a changefeed removed: `removed/<id>` is written beside its `info`, which stays as it is. What runs of it is not
    known, since its records say so. So the owner removes it in two steps:

        status and barrier deleted ──the margin──▶ all keys deleted, `info` with them

    After the first step no task finds its run confirmed in etcd, and after the margin none may write any more. Until the second, no changefeed of
    this name can be created. A new owner begins with the margin again.
    """

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
            lease_history(self._store, layout, id)
            groups = layout.changefeed, layout.large, layout.positions
            self._store.commit([DeletePrefix(group(id)) for group in groups], same)
            _log.warning("unreadable_changefeed_removed", changefeed=id)
