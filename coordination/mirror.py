"""`Mirror`: a copy of all keys under a prefix, updated revision by revision.

It reads a snapshot at revision R, then watches from R+1 and applies one whole revision at a time. When the watch breaks, it opens another
after the last applied revision. When that has been compacted, it starts over from a snapshot. So a view is always the state of etcd at
one revision, and never goes back.

    snapshot R ──▶ watch from R+1 ──▶ apply revision by revision
        ▲               │   ▲                 │
        └── compacted ──┘   └── broken: again from the last applied + 1

**Apart.** The keys from `apart` on, which change most often, are mirrored only while somebody needs them: as long as a node is the owner, and for
a minute after its admin API was asked. The mirror then reads them as they were at its revision, and watches all keys as one range from there:
two watches would show a transaction at different moments.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import structlog

from changefeed.errors import CoordinationUnavailable, InvariantError, RetryableError, SluiceError
from coordination.etcd.protocol import Etcd, HistoryCompacted, Snapshot, Watch
from coordination.view import Replica, View

_RETRY_AFTER = timedelta(milliseconds=200)
_POLL = timedelta(seconds=1)
_NOTHING = "\0"
"""No key begins with it: a read of this prefix returns etcd's revision and nothing else."""

_log = structlog.get_logger()


class Mirror:
    """Follows a prefix in its own thread between `start` and `stop`; in a simulation, whenever `poll` is called.

    Listeners are called after each applied revision, without arguments, on the mirror's thread. They only set an event.
    """

    def __init__(self, etcd: Etcd, prefix: str, *, apart: str = "", end: str = "") -> None:
        """`apart`: the first of the keys that are mirrored only while they are needed. Empty: all keys always are. `end`: the first that never is."""
        self._etcd = etcd
        self._prefix = prefix
        self._apart = apart
        self._end = end
        self._replica = Replica(etcd)
        self._whole = False
        """Whether the replica has the keys apart."""
        self._needed_until = float("-inf")
        self._watch: Watch | None = None
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], None]] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._interrupted_by: RetryableError | None = None
        self._ended_by: Exception | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"mirror {self._prefix}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """May be called twice. Wakes the threads that wait in `at_least`."""
        self._stopping.set()
        self._end_watch()
        if self._thread is not None:
            self._thread.join()
        self._end_watch()
        with self._changed:
            self._changed.notify_all()

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    @property
    def current(self) -> bool:
        """Whether it is up to date: it has a snapshot, and etcd answered the last request."""
        return self._replica.revision > 0 and self._interrupted_by is None and not self._stopping.is_set()

    @property
    def whole(self) -> bool:
        """Whether it has the keys apart, too."""
        return self._whole

    @property
    def interrupted_by(self) -> str:
        """Why it is not up to date. Empty if it is, or if it has not started."""
        return str(self._interrupted_by or "")

    def need_apart_for(self, span: timedelta) -> None:
        """For that time from now on. The thread does not wait out a watch that has too little."""
        self._needed_until = time.monotonic() + span.total_seconds()
        if self._lacks_apart:
            self._end_watch()

    def _end_watch(self) -> None:
        if (watch := self._watch) is not None:
            watch.close()

    def view(self) -> View:
        """The newest known state. Before the first snapshot it is empty, at revision 0. Raises the error that ended the mirror, if any."""
        with self._changed:
            if self._ended_by is not None:
                raise self._ended_by
            return self._replica.view()

    def at_least(self, revision: int, timeout: timedelta, *, whole: bool = False) -> View:
        """A view of that revision or a later one. No decision is taken on a state older than the caller's own last commit.

        The revision must not be later than the last change of a key that is always mirrored: etcd reports no other revision. `whole`: with
        the keys apart, which the caller has said to need.
        """

        def there() -> bool:
            return self._replica.revision >= revision and (self._whole or not whole)

        with self._changed:
            self._changed.wait_for(lambda: self._stopping.is_set() or there(), timeout.total_seconds())
            if self._ended_by is not None:
                raise self._ended_by
            if there():
                return self._replica.view()
            seen = self._replica.revision
        raise CoordinationUnavailable(
            f"{self._prefix}: not at revision {revision} within {timeout}, last seen {seen}: {self._interrupted_by or 'no failure'}"
        )

    def poll(self, timeout: timedelta) -> bool:
        """One step: a snapshot, or the next update of the watch. Whether anything was applied."""
        if self._replica.revision == 0:
            return self._start_over()
        if self._whole and not self._apart_is_needed:
            self._leave_out()
        to_take_in = self._lacks_apart
        try:
            if to_take_in:
                self._drop_watch()
            if self._watch is None:
                self._check_revision(self._etcd.range(f"{self._prefix}{_NOTHING}"))
                if to_take_in:
                    self._take_in()
                self._watch = self._etcd.watch(self._prefix, self._replica.revision + 1, self._below)
            update = self._watch.next(timeout)
        except HistoryCompacted as compacted:
            self._drop_watch()
            _log.info("mirror_starts_over", prefix=self._prefix, revision=self._replica.revision, reason=str(compacted))
            return self._start_over()
        except SluiceError:
            self._drop_watch()
            if self._stopping.is_set() or to_take_in != self._lacks_apart:
                return False  # another thread has ended the watch; should it be an error, the next step meets it again
            raise
        if update is None:
            return False
        with self._changed:
            self._replica.apply(update)
        self._notify()
        return True

    @property
    def _apart_is_needed(self) -> bool:
        return not self._apart or time.monotonic() < self._needed_until

    @property
    def _lacks_apart(self) -> bool:
        return self._apart_is_needed and not self._whole

    @property
    def _below(self) -> str:
        return self._end if self._whole else self._apart

    def _start_over(self) -> bool:
        whole = self._apart_is_needed
        snapshot = self._etcd.range(self._prefix, self._end if whole else self._apart)
        self._check_revision(snapshot)
        with self._changed:
            self._replica.reset(snapshot)
            self._whole = whole
        self._notify()
        return True

    def _take_in(self) -> None:
        apart = self._etcd.range(self._apart, self._end, at_rev=self._replica.revision)
        with self._changed:
            self._replica.add(apart)
            self._whole = True
        self._notify()

    def _leave_out(self) -> None:
        self._drop_watch()
        with self._changed:
            self._replica.leave_out(self._apart)
            self._whole = False

    def _check_revision(self, snapshot: Snapshot) -> None:
        """A watch from a future revision would stay silent until etcd reaches that revision."""
        if snapshot.revision < self._replica.revision:
            raise InvariantError(
                f"{self._prefix}: etcd is at revision {snapshot.revision}, but was at {self._replica.revision} before: it lost data "
                "or was restored from a backup; restart every node"
            )

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
        for listener in self._listeners:
            listener()

    def _drop_watch(self) -> None:
        self._end_watch()
        self._watch = None

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.poll(_POLL)
                self._interrupted_by = None
            except RetryableError as error:
                self._note(error)
                self._stopping.wait(_RETRY_AFTER.total_seconds())
            except Exception as error:  # noqa: BLE001 - raised to every caller of `view`
                _log.exception("mirror_ended", prefix=self._prefix)
                self._ended_by = error
                self._stopping.set()
                self._notify()

    def _note(self, error: RetryableError) -> None:
        if self._interrupted_by is None:
            _log.warning("mirror_interrupted", prefix=self._prefix, revision=self._replica.revision, error=str(error))
        self._interrupted_by = error
