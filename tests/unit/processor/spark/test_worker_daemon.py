from __future__ import annotations

import subprocess
import sys

_LOOK = "; import os; print(len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')))"


def test_what_workers_are_forked_with_starts_no_thread_opens_nothing_and_says_nothing() -> None:
    """Spark reads the daemon's port from its standard output."""
    ours, bare = (
        subprocess.run([sys.executable, "-c", code + _LOOK], capture_output=True, text=True, check=True).stdout
        for code in ("import processor.spark.worker_daemon", "pass")
    )
    assert ours == bare
