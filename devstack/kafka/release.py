"""`kafka_classpath`: the jars of the broker, fetched once into `.kafka/` by the Ivy that PySpark brings along; `PinnedJars`: others that come so.

What was fetched is compared with one hash of all jars. The broker writes its log through PySpark's own slf4j binding, because its own
package has none.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from devstack.pinned_wheel import Unobtainable, fetch
from devstack.spark.daemons import SPARK_HOME

_FOLDER = Path(__file__).parents[2] / ".kafka"
_SPARK_JARS = SPARK_HOME / "jars"
_LOGGING = ("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")


def kafka_classpath() -> str:
    """The value of `java -cp`. Fetches what is missing."""
    logging = [str(next(_SPARK_JARS.glob(pattern))) for pattern in _LOGGING]
    return ":".join([*logging, f"{_BROKER.folder()}/*"])


@dataclass(frozen=True, slots=True)
class PinnedJars:
    """A library of Java with everything that it needs. `sha256`: of all of them."""

    organisation: str
    artifact: str
    version: str
    sha256: str

    def folder(self) -> Path:
        """Where they are. Fetches what is missing."""
        jars = _FOLDER / f"{self.artifact}-{self.version}"
        _FOLDER.mkdir(exist_ok=True)
        with (_FOLDER / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test processes may fetch at the same time
            if not jars.exists():
                self._fetch(jars)
        return jars

    def _fetch(self, jars: Path) -> None:
        with tempfile.TemporaryDirectory(dir=_FOLDER) as directory:
            fetched = Path(directory) / "jars"
            ivy = next(_SPARK_JARS.glob("ivy-*.jar"))
            command = ["java", "-jar", str(ivy), "-cache", str(Path(directory) / "cache"), "-confs", "default"]
            wanted = ["-dependency", self.organisation, self.artifact, self.version]
            what = f"{self.artifact} {self.version}"
            fetch([*command, *wanted, "-retrieve", f"{fetched}/[artifact]-[revision].[ext]"], what)
            found = _hash(fetched)
            if found != self.sha256:
                raise Unobtainable(f"{what}: expected jars with the hash {self.sha256}, fetched some with {found}")
            fetched.rename(jars)


_BROKER = PinnedJars(
    "org.apache.kafka", "kafka_2.13", "4.1.1", "db0e7b45f86a3c02b605405befb51352dd42d2913276849e741797bf0bd6d7f5"
)


def _hash(folder: Path) -> str:
    """Of the names and contents of all jars."""
    lines = [f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n" for jar in sorted(folder.glob("*.jar"))]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def run_tool(main: str, *arguments: str) -> None:
    """Runs one of the command line tools inside the jars."""
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", kafka_classpath(), main, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unobtainable(f"{main} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
