"""The simulation finds each planted bug within the number of seeds that is given for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pytest

from tests.simulation.planted.bugs import ALWAYS, BUGS
from tests.simulation.run import simulate, workers

pytestmark = pytest.mark.costly("up to thirty lives of a cluster for each bug")

_UNFIT = re.compile(r"takes \d+ positional arguments? but|unexpected keyword argument|missing \d+ required")
"""A bug that cannot be called would be found at once, whatever it is."""


def _hunt(name: str) -> str:
    """The first error found. Empty: none was found."""
    bug = BUGS[name]
    outcomes = (simulate(seed, planted=bug.plant, **bug.mode) for seed in range(bug.found_within))
    return next((f"seed {outcome.seed}: {outcome.error}" for outcome in outcomes if outcome.error), "")


def _hunted(names: Iterable[str]) -> Mapping[str, str]:
    """Starts the longest searches first."""
    ordered = sorted(names, key=lambda name: -BUGS[name].found_within)
    with workers() as pool:
        return dict(zip(ordered, pool.map(_hunt, ordered, chunksize=1), strict=True))


@pytest.fixture(scope="module")
def found_always() -> Mapping[str, str]:
    return _hunted(ALWAYS)


@pytest.fixture(scope="module")
def found() -> Mapping[str, str]:
    return _hunted(BUGS.keys() - set(ALWAYS))


@pytest.mark.parametrize("name", sorted(BUGS))
def test_what_a_planted_bug_replaces_is_there(name: str) -> None:
    with BUGS[name].plant():
        pass


@pytest.mark.parametrize("name", ALWAYS)
def test_a_planted_bug_of_each_family_is_found(name: str, found_always: Mapping[str, str]) -> None:
    _assert_found(name, found_always[name])


@pytest.mark.planted
@pytest.mark.parametrize("name", sorted(BUGS.keys() - set(ALWAYS)))
def test_a_planted_bug_is_found(name: str, found: Mapping[str, str]) -> None:
    _assert_found(name, found[name])


def _assert_found(name: str, error: str) -> None:
    assert error, f"{name}: not found within {BUGS[name].found_within} seeds"
    assert not _UNFIT.search(error), f"{name}: what is planted no longer fits what it replaces: {error}"
