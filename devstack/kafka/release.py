"""`kafka_classpath`: the jars of the broker, fetched once into `.kafka/` by the Ivy that PySpark brings along.

What it fetched is compared with one hash of all jars. The broker writes its log through PySpark's own slf4j binding, because its own
package has none.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import tempfile
from pathlib import Path

from devstack.pinned_wheel import Unobtainable, fetch
from devstack.spark.daemons import SPARK_HOME

VERSION = "4.1.1"
_SHA256 = "db0e7b45f86a3c02b605405befb51352dd42d2913276849e741797bf0bd6d7f5"
_FOLDER = Path(__file__).parents[2] / ".kafka"
_SPARK_JARS = SPARK_HOME / "jars"
_LOGGING = ("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")


def kafka_classpath() -> str:
    """The value of `java -cp`. Fetches what is missing."""
    logging = [str(next(_SPARK_JARS.glob(pattern))) for pattern in _LOGGING]
    return ":".join([*logging, f"{_jars()}/*"])


def _jars() -> Path:
    jars = _FOLDER / VERSION
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test processes may fetch at the same time
        if not jars.exists():
            _fetch(jars)
    return jars


def _fetch(jars: Path) -> None:
    with tempfile.TemporaryDirectory(dir=_FOLDER) as directory:
        fetched = Path(directory) / "jars"
        ivy = next(_SPARK_JARS.glob("ivy-*.jar"))
        command = ["java", "-jar", str(ivy), "-cache", str(Path(directory) / "cache"), "-confs", "default"]
        wanted = ["-dependency", "org.apache.kafka", "kafka_2.13", VERSION]
        fetch([*command, *wanted, "-retrieve", f"{fetched}/[artifact]-[revision].[ext]"], f"Kafka {VERSION}")
        found = _hash(fetched)
        if found != _SHA256:
            raise Unobtainable(f"Kafka {VERSION}: expected jars with the hash {_SHA256}, fetched some with {found}")
        fetched.rename(jars)


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
