"""`SparkSettings`: Spark's options, from those of the user, the place where tasks run, and what correctness needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from changefeed.errors import ConfigurationError

_DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "sluice",
    "spark.master": "local[*]",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "processor.spark.worker_daemon",
    "spark.python.worker.memory": "256m",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xms64m",
}
"""The driver does little, so its heap begins small and grows by need."""
_FIXED: Mapping[str, str] = {
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.stage.ignoreDecommissionFetchFailure": "false",
    "spark.speculation": "false",
}
_LOCAL: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_CLUSTER: Mapping[str, str] = {
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.syncLogLevel.enabled": "true",
    "spark.network.timeout": "60s",
    "spark.network.timeoutInterval": "15s",
}
"""A silent executor keeps its windows until its heartbeats have been missing for the timeout; by default Spark takes up to three minutes."""

_STANDALONE: Mapping[str, str] = {"spark.cores.max": "4"}
"""By default the first application gets all cores of a standalone cluster, and the next node's waits for as long as the first one lives."""

_HAND_OVER_PORT = "spark.sluice.handOver.port"
"""Sluice's own option: the port where staying tasks reach their driver. The addresses are those of Spark's driver."""

_LAST_PORT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """`options` are Spark options (`spark.*`). They override the defaults, but not the options that correctness needs."""

    master: str = "local[*]"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reports mistakes when the node starts."""
        assert self.hand_over_port >= 0

    def all(self) -> dict[str, str]:
        place = _LOCAL if self.local else _CLUSTER
        share = _STANDALONE if self.standalone else {}
        return {**_DEFAULTS, **place, **share, "spark.master": self.master, **self.options, **_FIXED}

    @property
    def local(self) -> bool:
        """Whether tasks run on this machine rather than on executors."""
        return self.master == "local" or self.master.startswith("local[")

    @property
    def standalone(self) -> bool:
        return self.master.startswith("spark://")

    @property
    def patience(self) -> timedelta:
        """How long an executor may take to start. The machines of a standalone cluster run already; others may have to be started."""
        return timedelta(minutes=1 if self.standalone else 5)

    @property
    def grows(self) -> bool:
        """Whether Spark asks for more executors when tasks wait."""
        return not self.local and self.options.get("spark.dynamicAllocation.enabled") == "true"

    @property
    def hand_over_port(self) -> int:
        """0: any free port."""
        port = self.options.get(_HAND_OVER_PORT, "0")
        if not port.isdecimal() or int(port) > _LAST_PORT:
            raise ConfigurationError(
                [f"spark.conf.{_HAND_OVER_PORT}: expected a port, found {port!r}; write for example 7080"]
            )
        return int(port)

    @property
    def python(self) -> str:
        """The interpreter of the workers: on this machine the one that has our packages, elsewhere the `python3` of the executor's PATH."""
        default = sys.executable if self.local else os.environ.get("PYSPARK_PYTHON", "python3")
        return self.options.get("spark.pyspark.python", default)
