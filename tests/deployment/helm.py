"""The real helm."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.deployment.go_build import built

VERSION = "v3.22.0"
NAMESPACE = "data"
RELEASE = "trial"

Manifest = dict[str, Any]


def binary() -> Path:
    return built("helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm", VERSION)


class Refused(Exception):
    """Carries helm's message."""


class Chart:
    def __init__(self, helm: Path, path: Path) -> None:
        self._helm = helm
        self.path = path
        self._rendered: dict[str, str] = {}

    def lint(self, values: Manifest) -> str:
        return self._run("lint", "--strict", str(self.path), "--kube-version", "1.33.0", values=values)

    def render(self, values: Manifest, kubernetes: str = "1.33") -> list[Manifest]:
        """The rendered manifests. Cached, because many tests use the same rendering."""
        key = f"{kubernetes} {json.dumps(values)}"
        if key not in self._rendered:
            options = "--namespace", NAMESPACE, "--kube-version", f"{kubernetes}.0"
            self._rendered[key] = self._run("template", RELEASE, str(self.path), *options, values=values)
        return [manifest for manifest in yaml.safe_load_all(self._rendered[key]) if manifest]

    def notes(self, values: Manifest) -> str:
        """The rendered notes. `helm template` omits them, so a copy of the chart renders them as the text of an object."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(shutil.copytree(self.path, Path(folder) / "sluice"))
            text = (path / "templates" / "NOTES.txt").read_text()
            (path / "templates" / "notes.yaml").write_text(
                f'{{{{ define "notes" }}}}{text}{{{{ end }}}}\nnotes: {{{{ include "notes" . | quote }}}}\n'
            )
            rendered = Chart(self._helm, path).render(values)
        return str(next(each["notes"] for each in rendered if "notes" in each))

    def _run(self, *arguments: str, values: Manifest) -> str:
        done = subprocess.run(
            [str(self._helm), *arguments, "--values", "-"],
            input=yaml.safe_dump(values),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Refused(done.stderr + done.stdout)
        return done.stdout
