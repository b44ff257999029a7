"""The component tests on servers of one version, as `make test` runs them on the default one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from devstack.mongodb.release import VERSION_VARIABLE
from tests.versions.findings import Findings

_ROOT = Path(__file__).parents[2]
_PYTEST = (
    *(sys.executable, "-m", "pytest", "tests/component", "--quiet", "--tb=short"),
    *("--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"),
)


def component_tests(version: str, log: Path) -> Findings:
    with log.open("wb") as output:
        done = subprocess.run(
            _PYTEST,
            cwd=_ROOT,
            env={**os.environ, VERSION_VARIABLE: version},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    findings = Findings()
    said = log.read_text(encoding="utf-8", errors="replace").splitlines()
    failed = [line for line in said if line.startswith(("FAILED", "ERROR"))]
    findings.looked_at("component tests", (failed or said[-1:]) if done.returncode != 0 else ())
    return findings
