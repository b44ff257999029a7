"""`Limiter`: lets a task write no faster than its changefeed allows.

While a task waits it asks its permit at least twice a second, as before each write: so the permit stays confirmed, and a pause, a stop or a
lost lease end the wait with `FencedError`. Nothing is read ahead for it: what waits is one batch, and the next one at most.

The limit is read from etcd every two seconds while it is in force, so a change is obeyed within that, by running tasks too. A task that began
without a limit goes on without one: it is a window of some seconds, or one chunk of a copy.

All Python workers of an executor, which are processes of one parent, have one token bucket (`SharedBucket`). It is a file of 24 bytes that is locked for each look: the kernel takes a lock from a process that dies. Where no such file can be made,
a bucket counts for its own process alone: the limit is then exceeded, which is logged, rather than the changefeed stopped.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from changefeed.config.written_values import RateLimit
from changefeed.errors import RetryableError
from processor.rate import Amount, Rate, TokenBucket

_LOOK_EVERY = 2.0
_NAP = 0.5
_COPIED_AT_ONCE = 0.25
_APPLIED_AT_ONCE = 1.0
"""Seconds that one write may cost. Each has a constant price at the target, that of changes a higher one."""

_log = structlog.get_logger(__name__)


class Bucket(Protocol):
    def take(self, cost_seconds: float, share: float, told_at: float) -> float: ...


@dataclass(frozen=True, slots=True)
class FollowedLimit:
    """The limit of a whole changefeed."""

    at_begin: RateLimit | None
    """When the task began."""
    present: Callable[[], RateLimit | None]


class Limiter:
    """`share`: this executor's part of it when the task began. Of the tasks that share a bucket, the
    newest one knows it best.
    """

    def __init__(
        self,
        limit: FollowedLimit,
        share: float,
        bucket: Callable[[], Bucket] | None,
        *,
        permit: Callable[[], object],
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._share = share
        self._present = limit.at_begin
        self._limit = limit.present
        self._begun_at = self._looked_at = monotonic()
        self._permit = permit
        self._monotonic = monotonic
        self._pause = pause
        self._bucket = bucket() if bucket is not None and limit.at_begin is not None else None

    def parts(self, documents: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """The documents of a batch, in parts that may be written when they are handed out."""
        begin = 0
        while begin < len(documents):
            end, size = _fitting(documents, begin, self._at_once(_COPIED_AT_ONCE))
            self.pay(end - begin, size)
            yield documents[begin:end]
            begin = end

    def room(self) -> Amount | None:
        """How many changes to write at once. None: any number."""
        return self._at_once(_APPLIED_AT_ONCE)

    def pay(self, documents: int, size: int) -> None:
        """Waits until a write of this size may begin."""
        rate = self._rate()
        if rate is None or self._bucket is None:
            return
        cost = rate.seconds(Amount(documents=documents, bytes=size))
        begins_at = self._monotonic() + self._bucket.take(cost, self._share, self._begun_at)
        while (left := begins_at - self._monotonic()) > 0:
            self._permit()
            if self._rate() is None:
                return
            self._pause(min(left, _NAP))

    def _at_once(self, seconds: float) -> Amount | None:
        rate = self._rate()
        return None if rate is None else rate.part(seconds * self._share)

    def _rate(self) -> Rate | None:
        now = self._monotonic()
        if self._bucket is not None and now >= self._looked_at + _LOOK_EVERY:
            self._looked_at = now
            try:
                self._present = self._limit()
            except RetryableError as error:
                _log.info("limit_not_read", error=str(error))
        limit = self._present
        return None if limit is None else Rate(documents=limit.documents, bytes=limit.bytes)


def _fitting(documents: Sequence[bytes], begin: int, most: Amount | None) -> tuple[int, int]:
    """Where the next part ends, and its bytes. It has at least one document."""
    if most is None:
        return len(documents), sum(map(len, documents[begin:]))
    end, size = begin, 0
    while end < len(documents) and end - begin < most.documents:
        if end > begin and size + len(documents[end]) > most.bytes:
            break
        size += len(documents[end])
        end += 1
    return end, size


UNLIMITED = Limiter(FollowedLimit(None, lambda: None), 1.0, None, permit=lambda: None)


_STATE = struct.Struct("<3d")


class SharedBucket:
    """Thread-safe. The clock is that of the machine: `time.monotonic` is the same in all its processes."""

    def __init__(self, name: str, directory: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._own = TokenBucket()
        self._file = _opened(name, directory or Path(tempfile.gettempdir()) / f"sluice-limits-{os.getuid()}")

    def take(self, cost_seconds: float, share: float, told_at: float) -> float:
        """How many seconds to wait before the write begins. `share`: as the asking task was told when it began."""
        with self._lock:
            if self._file is None:
                now = time.monotonic()
                self._own, wait = self._own.told(share, told_at, now).take(cost_seconds, now)
                return wait
            fcntl.flock(self._file, fcntl.LOCK_EX)
            now = time.monotonic()
            try:
                stored = os.pread(self._file, _STATE.size, 0)
                before = TokenBucket(*_STATE.unpack(stored)) if len(stored) == _STATE.size else TokenBucket()
                after, wait = before.told(share, told_at, now).take(cost_seconds, now)
                os.pwrite(self._file, _STATE.pack(after.paid_until, after.told_at, after.share), 0)
                return wait
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """May be called twice."""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                os.close(file)


def _opened(name: str, directory: Path) -> int | None:
    """In a directory that nobody else can write to. Files of parents that are gone are removed."""
    parent = os.getppid()
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022 or not directory.is_dir() or directory.is_symlink():
            raise PermissionError(f"{directory} is not ours alone")
        for old in directory.iterdir():
            owner = old.name.partition("-")[0]
            if owner.isdigit() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
                old.unlink(missing_ok=True)
        digest = hashlib.sha256(name.encode()).hexdigest()[:24]
        return os.open(directory / f"{parent}-{digest}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        _log.warning("limit_not_shared", name=name, reason=str(error))
        return None
