"""Forks Spark's Python workers on a machine: PySpark's daemon, with all modules loaded that our tasks import.

    python -m processor.spark.worker_daemon pyspark.worker      as Spark starts it (`spark.python.daemon.module`)

Spark ends a worker after a minute without a task. Imports would cost a new worker three quarters of a second of CPU, as much as 70,000
inserts. A worker that is forked with the modules loaded is ready at once and shares their memory. No imported module may start a thread
or open a connection: a fork copies neither.

Spark puts archives of PySpark and Py4J before the installed packages that they were made of. Modules in an archive are compiled at each start, which
costs as much as all imports together, so the installed ones are taken.

PySpark collects garbage after each task. The modules are left out of that (`gc.freeze`): to look through them costs 55 ms of CPU.

A worker keeps freed memory for its next reply, instead of giving it back to the kernel: it reads replies of 16 MB and writes commands as large. The
C library gives blocks of this size back when they are freed, and the kernel clears each page again at the next one: half of the CPU time of a
copy of large documents. Its other threads would use heaps of their own, which it gives back in any case, so all of them share one. They hold
the interpreter's lock anyway.
"""

import ctypes
import gc
import os
import sys
import warnings

for archive in tuple(sys.path):
    installed, within, _ = archive.partition("/pyspark/python/lib/")
    if within and installed in sys.path:
        sys.path.remove(archive)

# ruff: noqa: E402 - the path comes first
from pyspark.daemon import manager

import processor.copy.copy_task
import processor.task.wide_window
import processor.task.window_task  # noqa: F401 - loaded for the workers
from credentials import logging

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


if __name__ == "__main__":
    keep_freed_memory()
    logging.set_up(logging.LogFormat(os.environ.get(logging.VARIABLE, logging.LogFormat.CONSOLE)))
    warnings.filterwarnings("ignore", module=r"pymongo\.")  # the node has said what the driver's library warns of
    gc.freeze()
    manager()
