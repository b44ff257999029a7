from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

_LOOK = "; import os; print(len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')))"


def test_what_workers_are_forked_with_starts_no_thread_opens_nothing_and_says_nothing() -> None:
    """Spark reads the daemon's port from its standard output."""
    ours, bare = (
        subprocess.run([sys.executable, "-c", code + _LOOK], capture_output=True, text=True, check=True).stdout
        for code in ("import processor.spark.worker_daemon", "pass")
    )
    assert ours == bare


def test_modules_come_from_the_installed_packages_and_not_from_archives_where_each_start_compiles_them() -> None:
    installed = Path(pyspark.__file__).parent
    archives = sorted(map(str, installed.glob("python/lib/*.zip")))
    assert len(archives) >= 2
    look = "import processor.spark.worker_daemon, py4j, pyspark; print(py4j.__file__, pyspark.__file__)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*archives, ".", "elsewhere.zip"])}
    command = [sys.executable, "-c", look]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [str(installed.parent / name / "__init__.py") for name in ("py4j", "pyspark")]


_SCRIPT = """
import resource, threading
from processor.spark.worker_daemon import keep_freed_memory

def replies():
    for _ in range(20):
        bytearray(16 << 20)[::4096] = b"x" * (4 << 10)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

{kept}
thread = threading.Thread(target=replies)
replies()
before = faults()
replies()
thread.start()
thread.join()
print(faults() - before)
"""


def faults(kept: str) -> int:
    """Pages that the kernel gives to a process which reads twenty replies in its main thread and twenty in another one, after the first twenty."""
    done = subprocess.run([sys.executable, "-c", _SCRIPT.format(kept=kept)], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_a_worker_reads_its_next_reply_into_memory_that_it_has() -> None:
    assert faults("keep_freed_memory()") < 4096 < faults("")
