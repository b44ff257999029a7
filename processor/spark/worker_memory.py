"""How a Python worker keeps freed memory: for its next reply, instead of giving it back to the kernel.

A worker reads replies of 16 MB and writes commands as large. The C library gives blocks of this size back when they are freed, and the kernel
clears each page again at the next one: half of the CPU time of a copy of large documents. Its other threads would use heaps of their own, which
it gives back in any case, so all of them share one. They hold the interpreter's lock anyway.
"""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

_KEPT_BYTES = 128 << 20
"""A reply and a command in each of two threads, and as much again."""

_LARGEST_REPLY_BYTES = 48_000_000
"""The server's limit of a message."""


def keep_freed_memory() -> None:
    """For this process and those that it forks. A C library without these options (musl) goes on as it is."""
    options = {_M_TRIM_THRESHOLD: _KEPT_BYTES, _M_MMAP_THRESHOLD: _LARGEST_REPLY_BYTES, _M_ARENA_MAX: 1}
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for option, value in options.items():
        if mallopt is not None:
            mallopt(option, value)
