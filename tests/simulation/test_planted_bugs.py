"""The simulation is worth what it finds: each planted bug is found, within the number of seeds that stands beside it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping

import pytest

from tests.simulation.planted import BUGS
from tests.simulation.run import ready, simulate


def _hunt(name: str) -> tuple[str, str]:
    """What was found, empty if nothing was."""
    bug = BUGS[name]
    for seed in range(bug.found_within):
        outcome = simulate(seed, planted=bug.plant)
        if outcome.error:
            return name, f"seed {seed}: {outcome.error}"
    return name, ""


@pytest.fixture(scope="module")
def found() -> Mapping[str, str]:
    os.environ["PYTHONHASHSEED"] = "0"
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), ready) as pool:
        return dict(pool.imap_unordered(_hunt, sorted(BUGS, key=lambda name: -BUGS[name].found_within)))


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, found: Mapping[str, str]) -> None:
    assert found[name], f"{name}: not found within {BUGS[name].found_within} seeds"
