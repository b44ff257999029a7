"""`sluice dev` runs from any directory of a user who has a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_development_stack_of_a_checkout_is_found_from_elsewhere(tmp_path: Path) -> None:
    found = "from cli.commands import dev; print(dev._devstack('demo.playground').keep.__module__)"
    answer = subprocess.run([sys.executable, "-c", found], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (0, "devstack.demo.playground\n"), answer.stderr
