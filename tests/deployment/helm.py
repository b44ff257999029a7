"""What helm makes of the chart: `RealHelm` (`make kubernetes`), and its answers as they were recorded (`make test`).

Building helm from its module takes minutes. `recorded.json` names the chart by its digest: when the chart or the values of a test change,
`make chart` asks the real helm again and records what it answers.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import yaml

from tests.deployment.go_build import built

VERSION = "v3.22.0"
NAMESPACE = "data"
RELEASE = "trial"
CHART = Path(__file__).parents[2] / "helm" / "sluice"
RECORDED = Path(__file__).parent / "recorded.json"
_STALE = "is not recorded for this chart: run `make chart`"

Manifest = dict[str, Any]


def binary() -> Path:
    return built("helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm", VERSION)


class Refused(Exception):
    """Carries helm's message."""


class Answer(NamedTuple):
    manifests: list[Manifest]
    text: str
    refused: bool = False


class Helm(Protocol):
    def ask(self, question: str, values: Manifest) -> Answer:
        """`question`: "lint", "notes", or "template" and a version of Kubernetes."""
        ...


class Chart:
    """Asks for the same only once, because many tests use the same rendering."""

    def __init__(self, helm: Helm) -> None:
        self._helm = helm
        self._answers: dict[str, Answer] = {}

    def lint(self, values: Manifest) -> str:
        return self._asked("lint", values).text

    def render(self, values: Manifest, kubernetes: str = "1.33") -> list[Manifest]:
        return self._asked(f"template {kubernetes}", values).manifests

    def panels(self, values: Manifest) -> list[dict[str, Any]]:
        """Of the dashboard."""
        [dashboard] = [
            each["data"]["sluice.json"] for each in self.render(values) if "sluice.json" in each.get("data", {})
        ]
        found: list[dict[str, Any]] = json.loads(dashboard)["panels"]
        return found

    def notes(self, values: Manifest) -> str:
        return self._asked("notes", values).text

    def _asked(self, question: str, values: Manifest) -> Answer:
        key = _key(question, values)
        if key not in self._answers:
            self._answers[key] = self._helm.ask(question, values)
        answer = self._answers[key]
        if answer.refused:
            raise Refused(answer.text)
        return answer


class Recording:
    """Each manifest is stored once, in a line of its own, so that a difference between two recordings can be read."""

    def __init__(self, chart: str, manifests: dict[str, Manifest], answers: dict[str, list[Any]]) -> None:
        self._chart = chart
        self._manifests = manifests
        self._answers = answers

    @classmethod
    def read(cls) -> Self:
        return cls(**json.loads(RECORDED.read_text()))

    @classmethod
    def of(cls, answers: dict[str, Answer]) -> Self:
        manifests = {_digest(each): each for answer in answers.values() for each in answer.manifests}
        stored = {
            key: [[_digest(each) for each in answer.manifests], answer.text, answer.refused]
            for key, answer in answers.items()
        }
        return cls(_chart_digest(), manifests, stored)

    def write(self) -> None:
        lines = [json.dumps({"chart": self._chart})[:-1]]
        for name, entries in (("manifests", self._manifests), ("answers", self._answers)):
            each = (f"{json.dumps(key)}: {json.dumps(entries[key])}" for key in sorted(entries))
            lines.append(f'"{name}": {{\n' + ",\n".join(each) + "\n}")
        RECORDED.write_text(",\n".join(lines) + "}\n")

    def ask(self, question: str, values: Manifest) -> Answer:
        key = _key(question, values)
        if self._chart != _chart_digest() or key not in self._answers:
            raise LookupError(f"helm's answer to {question!r} {_STALE}")
        manifests, text, refused = self._answers[key]
        return Answer([self._manifests[each] for each in manifests], text, refused)


class RealHelm:
    """Each answer has to be the recorded one. Without a recording, `answers` becomes the next."""

    def __init__(self, recording: Recording | None) -> None:
        self.answers: dict[str, Answer] = {}
        self._helm = binary()
        self._recording = recording

    def ask(self, question: str, values: Manifest) -> Answer:
        command, _, kubernetes = question.partition(" ")
        answer = self._notes(values) if command == "notes" else self._run(CHART, command, kubernetes or "1.33", values)
        self.answers[_key(question, values)] = answer
        if self._recording is not None and self._recording.ask(question, values) != answer:
            raise LookupError(f"what helm answers to {question!r} {_STALE}")
        return answer

    def _notes(self, values: Manifest) -> Answer:
        """The rendered notes. `helm template` omits them, so a copy of the chart renders them as the text of an object."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(shutil.copytree(CHART, Path(folder) / "sluice"))
            text = (path / "templates" / "NOTES.txt").read_text()
            (path / "templates" / "notes.yaml").write_text(
                f'{{{{ define "notes" }}}}{text}{{{{ end }}}}\nnotes: {{{{ include "notes" . | quote }}}}\n'
            )
            rendered = self._run(path, "template", "1.33", values)
        return Answer([], str(next(each["notes"] for each in rendered.manifests if "notes" in each)))

    def _run(self, chart: Path, command: str, kubernetes: str, values: Manifest) -> Answer:
        names = ("--strict", chart.name) if command == "lint" else (RELEASE, chart.name, "--namespace", NAMESPACE)
        done = subprocess.run(
            [str(self._helm), command, *names, "--kube-version", f"{kubernetes}.0", "--values", "-"],
            cwd=chart.parent,
            input=yaml.safe_dump(values),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            return Answer([], done.stderr + done.stdout, refused=True)
        if command == "lint":
            return Answer([], done.stdout)
        return Answer([manifest for manifest in yaml.safe_load_all(done.stdout) if manifest], "")


def _key(question: str, values: Manifest) -> str:
    return f"{question} {_digest(values)}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _chart_digest() -> str:
    files = sorted(path for path in CHART.rglob("*") if path.is_file())
    return _digest([[str(path.relative_to(CHART)), path.read_text()] for path in files])
