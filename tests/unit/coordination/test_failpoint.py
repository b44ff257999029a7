"""Failpoints are off by default, and a mistake in their variable is reported."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from changefeed.errors import ConfigurationError
from coordination import failpoint
from tests.until import PATIENCE_SECONDS

_REACH = "from coordination import failpoint; failpoint.reach('applied', 'drop'); print('alive')"


def run(failpoints: str) -> subprocess.CompletedProcess[bytes]:
    environment = {failpoint.VARIABLE: failpoints, "PYTHONPATH": str(Path.cwd())}
    return subprocess.run([sys.executable, "-c", _REACH], env=environment, capture_output=True, check=False)


@pytest.mark.parametrize("failpoints", ["applied=kill", "applied/drop=kill", "other=kill applied/drop=kill"])
def test_a_process_dies_at_its_point(failpoints: str) -> None:
    killed = run(failpoints)
    assert (killed.returncode, killed.stdout) == (-9, b"")


@pytest.mark.parametrize("failpoints", ["", "applied/create=kill", "observed=kill"])
def test_other_points_are_passed(failpoints: str) -> None:
    passed = run(failpoints)
    assert (passed.returncode, passed.stdout) == (0, b"alive\n")


def test_a_hold_stops_its_subject_for_as_long_as_it_is_there_and_no_other(tmp_path: Path) -> None:
    hold = failpoint.parse(f"applied=hold:{tmp_path}")["applied"]
    on, reached = tmp_path / "applied" / "shop", tmp_path / "applied" / "shop.reached"
    on.parent.mkdir()
    on.touch()
    hold(["drop", "bank"])
    assert not reached.exists()
    held = [threading.Thread(target=hold, args=[["drop", "shop"]], daemon=True) for _ in range(2)]
    for thread in held:
        thread.start()
    while not reached.exists() or len(reached.read_text().splitlines()) < len(held):
        assert all(thread.is_alive() for thread in held)
    on.unlink()
    for thread in held:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in held)
    hold(["drop", "shop"])


@pytest.mark.parametrize("wrong", ["applied", "applied=explode", "applied=kill:now", "applied=hold"])
def test_what_cannot_be_done_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="point=kill"):
        failpoint.parse(wrong)
