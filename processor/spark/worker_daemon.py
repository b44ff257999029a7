"""Forks Spark's Python workers on a machine: PySpark's daemon, with all modules loaded that our tasks import.

    python -m processor.spark.worker_daemon pyspark.worker      as Spark starts it (`spark.python.daemon.module`)

Spark ends a worker after a minute without a task. Imports would cost a new worker three quarters of a second of CPU, as much as 70,000
inserts. A worker that is forked with the modules loaded is ready at once and shares their memory. No imported module may start a thread
or open a connection: a fork copies neither.
"""

import logging
import sys
import warnings

import structlog
from pyspark.daemon import manager

import processor.copy.steps
import processor.task.staying_task
import processor.task.window_task  # noqa: F401 - loaded for the workers
from credentials.log_lines import redacted_line


def log_safely() -> None:
    """A worker's lines and tracebacks contain no secret. What the driver's library warns of, the node has said already."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=True),
            redacted_line,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    warnings.filterwarnings("ignore", module=r"pymongo\.")


if __name__ == "__main__":
    log_safely()
    manager()
