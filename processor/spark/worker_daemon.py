"""What forks Spark's Python workers on a machine: PySpark's daemon, with everything that our tasks import already there.

    python -m processor.spark.worker_daemon pyspark.worker      as Spark starts it (`spark.python.daemon.module`)

Spark ends a worker after a minute without a task. A new one would spend three quarters of a second of CPU on imports: as much as on 70,000 inserts. Forked with
them it is ready at once, and shares their memory. Nothing that is imported here may start a thread or open a connection: a fork copies neither.
"""

from pyspark.daemon import manager

import processor.copy.steps
import processor.task.staying_task
import processor.task.window_task  # noqa: F401 - to be there

if __name__ == "__main__":
    manager()
