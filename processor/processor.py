"""`Processor`: the part of a node that replicates. It ticks every changefeed while its session lives.

    started ──tick, tick, ...──▶ stopped, fenced or session lost ──jobs cancelled──▶ over

The tasks of a lost session stop by themselves: they see in etcd that the node's key is gone, and write no more. A node that goes on gets
a new session and a new `Processor`. The Spark session belongs to the node and outlives the `Processor`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import structlog

from changefeed.errors import ConflictError, FencedError, RetryableError, SluiceError
from changefeed.records.requests import ChangefeedId
from coordination.decoded import Decoded
from coordination.etcd.protocol import EtcdConfig, KeyValue
from coordination.fenced import FencedStore
from coordination.layout import Layout
from coordination.mirror import Mirror
from coordination.session import Session
from coordination.view import View
from credentials.logging import Interruption
from processor import etcd_view
from processor.changefeed_processor import ChangefeedProcessor
from processor.etcd_view import ProcessorView
from processor.job_runs import Attempts, JobSetup, ProcessorSession

_log = structlog.get_logger()

_TICK = timedelta(milliseconds=200)
_IDLE_TICK = timedelta(seconds=1)
"""While nothing is due. Changes in etcd and ended jobs start a tick at once."""
_LEAST_PAUSE = timedelta(milliseconds=5)
_VIEW_TIMEOUT = timedelta(seconds=2)
_RETRY = timedelta(milliseconds=500)
_MOST_JOBS = 64
"""Running at once, over all changefeeds."""

_Groups = tuple[Mapping[str, KeyValue], ...]


class Processor:
    """Runs in a thread of its own between `start` and `stop`, for one session at most."""

    def __init__(
        self, session: Session, store: FencedStore, mirror: Mirror, layout: Layout, etcd: EtcdConfig, setup: JobSetup
    ) -> None:
        self._session = session
        self._mirror = mirror
        self._layout = layout
        self._reader = Decoded(layout)
        self._log = _log.bind(node=session.node, role="processor")
        self._etcd_outage = Interruption(self._log, "processor_waits_for_etcd", "processor_goes_on")
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(_MOST_JOBS, thread_name_prefix="job")
        self._processor_session = ProcessorSession(
            store=store,
            node=session.node,
            layout=layout,
            etcd=etcd,
            setup=setup,
            attempts=Attempts(store, layout, session.node, session.lease, self._stopping),
            threads=self._threads,
            wake=self._wake.set,
        )
        self._changefeeds: dict[ChangefeedId, ChangefeedProcessor] = {}
        self._seen: dict[ChangefeedId, _Groups] = {}
        self._last_errors: dict[ChangefeedId, str] = {}
        """An error is logged once, not at every tick."""
        self._thread = threading.Thread(target=self._run, name="processor", daemon=True)
        mirror.listen(self._wake.set)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Starts no further job and cancels the running ones. May be called twice."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def ended(self) -> bool:
        """Its thread has ended, for whatever reason. To go on, the node needs a new session and a new `Processor`."""
        return self._thread.ident is not None and not self._thread.is_alive()

    @property
    def over(self) -> bool:
        return self._stopping.is_set() or not self._session.alive

    def _run(self) -> None:
        try:
            while not self.over:
                self._wake.clear()
                self._round()
                time.sleep(_LEAST_PAUSE.total_seconds())
                self._wake.wait(self._pause())
        except FencedError as error:
            self._log.warning("processor_fenced", error=str(error))
        except Exception:
            self._log.exception("processor_failed")
            raise
        finally:
            self._end()

    def _pause(self) -> float:
        now = time.monotonic()
        due_at = min((changefeed.due_at(now) for changefeed in self._changefeeds.values()), default=float("inf"))
        return min(max(due_at - now, _TICK.total_seconds()), _IDLE_TICK.total_seconds())

    def _end(self) -> None:
        self._stopping.set()
        for changefeed in self._changefeeds.values():
            changefeed.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _round(self) -> None:
        try:
            present = set(self._reader.changefeeds(self._view()))
        except RetryableError as error:
            self._etcd_outage.occurred(error)
            self._stopping.wait(_RETRY.total_seconds())
            return
        for id in self._changefeeds.keys() - present:
            self._wind_up(id)
        for id in self._last_errors.keys() - present:
            self._last_errors.pop(id)
        answered = [self._tick(id) for id in sorted(present) if not self.over]
        if all(answered):
            self._etcd_outage.over()

    def _view(self) -> View:
        return self._mirror.at_least(self._processor_session.store.settle(), _VIEW_TIMEOUT)

    def _wind_up(self, id: ChangefeedId) -> None:
        """Its tasks stop by themselves: they see in etcd that the changefeed is gone."""
        self._changefeeds.pop(id).cancel()
        self._seen.pop(id, None)

    def _tick(self, id: ChangefeedId) -> bool:
        """An error of one changefeed does not affect the others. Returns whether etcd answered."""
        etcd_answers = True
        try:
            self._step(id, self._view())
        except FencedError:
            raise
        except ConflictError:
            self._log.info("changefeed_is_gone", changefeed=id)
        except RetryableError as error:
            self._etcd_outage.occurred(error, changefeed=id)
            etcd_answers = False
        except SluiceError as error:
            if self._last_errors.get(id) != str(error):
                self._last_errors[id] = str(error)
                self._log.exception("changefeed_tick_failed", changefeed=id, code=error.code)
        else:
            self._last_errors.pop(id, None)
            return True
        self._seen.pop(id, None)
        return etcd_answers

    def _step(self, id: ChangefeedId, view: View) -> None:
        changefeed, groups = self._changefeeds.get(id), self._groups(id, view)
        now = time.monotonic()
        if changefeed is not None and changefeed.due_at(now) > now and _same(self._seen.get(id), groups):
            return
        stored = etcd_view.read(self._reader, view, self._layout, id, self._session.node)
        if stored is not None:
            self._follow(id, view, stored)
        self._seen[id] = groups

    def _follow(self, id: ChangefeedId, view: View, stored: ProcessorView) -> None:
        changefeed = self._changefeeds.get(id)
        if changefeed is not None and not changefeed.serves(stored):
            if not changefeed.wound_up():
                return
            changefeed = None
        if changefeed is None:
            changefeed = self._changefeeds[id] = ChangefeedProcessor(id, stored, self._processor_session)
        changefeed.tick(view, stored)

    def _groups(self, id: ChangefeedId, view: View) -> _Groups:
        """A group is the same object as long as nothing in it changes."""
        return tuple(view.group(key) for key in etcd_view.groups(self._layout, id, self._session.node))


def _same(before: _Groups | None, now: _Groups) -> bool:
    return before is not None and all(a is b for a, b in zip(before, now, strict=True))
