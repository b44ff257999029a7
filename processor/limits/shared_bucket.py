"""`SharedBucket`: one token bucket for all Python workers of an executor, which are processes of one parent.

It is a file of 24 bytes that is locked for each look: the kernel takes a lock from a process that dies. Where no such file can be made,
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
from pathlib import Path

import structlog

from processor.limits.token_bucket import TokenBucket

_STATE = struct.Struct("<3d")

_log = structlog.get_logger(__name__)


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


def _opened(name: str, directory: Path) -> int | None:
    """In a directory that nobody else can write to. Files of parents that are gone are removed."""
    parent = os.getppid()
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o022 or not directory.is_dir() or directory.is_symlink():
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
