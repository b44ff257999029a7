"""`ConsumerClasses`: the classes that consume messages of Debezium and of MongoDB's connector for Kafka, given messages as a Connect worker gives them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from devstack.kafka.release import PinnedJars

Line: TypeAlias = Mapping[str, str | None]
"""A message: its topic, key and value."""

_PROGRAM = Path(__file__).with_name("Consumers.java")
_KAFKA = "org.apache.kafka"
_WORKER = (
    PinnedJars(_KAFKA, "connect-json", "4.1.1", "47b8ac8fcc961daf64f5343a59ee59dfa66094f0f06b7ba20ae7ea5a0ed225d1"),
    PinnedJars(
        _KAFKA, "connect-transforms", "4.1.1", "1671846e2f127133684a472b8428708398fd7617c5f029c48baadba7156cd942"
    ),
)
"""What a Connect worker has. It comes first, so its versions count."""


@dataclass(frozen=True, slots=True)
class ConsumerClasses:
    jars: PinnedJars

    def __str__(self) -> str:
        return f"{self.jars.artifact} {self.jars.version}"

    def flattened(self, lines: Sequence[Line], **settings: str) -> list[dict[str, Any]]:
        """What `ExtractNewDocumentState` makes of each message."""
        return [json.loads(line) for line in self._run("flatten", lines, settings).splitlines()]

    def applied(self, lines: Sequence[Line], **settings: str) -> str:
        """What becomes of messages that MongoDB's sink is given: "applied <n>", or its error."""
        return self._run("apply", lines, settings).strip()

    def _run(self, what: str, lines: Sequence[Line], settings: Mapping[str, str]) -> str:
        given = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", self._classpath(), str(_PROGRAM)]
        done = subprocess.run(
            [*command, what, *given],
            input="\n".join(map(json.dumps, lines)),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self}: {what} ended with status {done.returncode}:\n{done.stderr}")
        return done.stdout

    def _classpath(self) -> str:
        """One version of each jar."""
        found: dict[str, Path] = {}
        for folder in (each.folder() for each in (*_WORKER, self.jars)):
            for jar in sorted(folder.glob("*.jar")):
                found.setdefault(jar.stem.rpartition("-")[0], jar)
        return ":".join(map(str, found.values()))


DEBEZIUM = tuple(
    ConsumerClasses(PinnedJars("io.debezium", "debezium-connector-mongodb", version, sha256))
    for version, sha256 in (
        ("2.7.4.Final", "b05a5feaf7c1d04a3048426b6d320e875ddc3ec8e4b09be264a67062f79cd112"),
        ("3.2.0.Final", "e905975a1cd76a0aa4ddda1b1aa8fb7da34468b3d37ab1d21289ae2c020b8689"),
    )
)
MONGODB = tuple(
    ConsumerClasses(PinnedJars("org.mongodb.kafka", "mongo-kafka-connect", version, sha256))
    for version, sha256 in (
        ("1.13.0", "efea601e1d46f12f174c3b7f58e212bded818a20a086de0d01a7d3d4cde91a28"),
        ("2.0.1", "013113a9eb525414bb5e17c94aaaefa3759d4560d329f890832b60bd9c58bab2"),
    )
)
