"""Forks Spark's Python workers on a machine: PySpark's daemon, with all modules loaded that our tasks import.

    python -m processor.spark.worker_daemon pyspark.worker      as Spark starts it (`spark.python.daemon.module`)

Spark ends a worker after a minute without a task. Imports would cost a new worker three quarters of a second of CPU, as much as 70,000
inserts. A worker that is forked with the modules loaded is ready at once and shares their memory. No imported module may start a thread
or open a connection: a fork copies neither.

PySpark collects garbage after each task. The modules are left out of that (`gc.freeze`): to look through them costs 55 ms of CPU.
"""

import gc
import os
import warnings

from pyspark.daemon import manager

import processor.copy.copy_task
import processor.task.staying_task
import processor.task.window_task  # noqa: F401 - loaded for the workers
from credentials import logging
from processor.spark.worker_memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()
    logging.set_up(logging.LogFormat(os.environ.get(logging.VARIABLE, logging.LogFormat.CONSOLE)))
    warnings.filterwarnings("ignore", module=r"pymongo\.")  # the node has said what the driver's library warns of
    gc.freeze()
    manager()
