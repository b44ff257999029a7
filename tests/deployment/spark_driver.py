"""A Spark driver that starts one executor with the given command, as Spark on Kubernetes would, and runs tasks on it.

It runs with the image's interpreter, so it imports nothing from the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from pyspark import SparkConf, SparkContext

_DEADLINE_SECONDS = 200.0
_OPTIONS = {
    "spark.master": "local-cluster[1,1,512]",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.pyspark.python": sys.executable,
}


def main(entrypoint: str) -> None:
    context = SparkContext(conf=SparkConf().setAll(list(_OPTIONS.items())))
    java = context._jsc.sc()  # the Python API does not list executors
    driver = java.conf().get("spark.driver.port")
    told = {
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{driver}",
        "SPARK_EXECUTOR_ID": "100",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": context.applicationId,
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "pod-of-the-test",
        "SPARK_RESOURCE_PROFILE_ID": "0",
    }
    options = java.conf().get("spark.executor.extraJavaOptions").split()
    told |= {f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(options)}
    with subprocess.Popen([entrypoint, "executor"], env=os.environ | told) as executor:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        names: set[str | None] = set()
        while "pod-of-the-test" not in names and time.monotonic() < deadline and executor.poll() is None:
            tasks = context.parallelize(range(8), 8)
            names = set(tasks.map(lambda _: os.environ.get("SPARK_EXECUTOR_POD_NAME")).collect())
            time.sleep(0.2)
        context.stop()
        executor.terminate()
    if "pod-of-the-test" not in names:
        raise SystemExit(f"no task ran on the executor; tasks ran on {names}")


if __name__ == "__main__":
    main(sys.argv[1])
