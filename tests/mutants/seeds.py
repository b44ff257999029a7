"""`python -m tests.mutants.seeds COUNT FIRST [OPTION...]`: simulates seeds one after the other, up to the first that fails."""

from __future__ import annotations

import sys
from typing import Any

from tests.simulation.run import ready, simulate


def main() -> int:
    count, first, *options = sys.argv[1:]
    wanted: dict[str, Any] = dict.fromkeys(options, True)
    ready()
    for seed in range(int(first), int(first) + int(count)):
        outcome = simulate(seed, **wanted)
        if outcome.error:
            lines = outcome.error.strip().splitlines()
            sys.stdout.write(f"FAILED seed {seed} - {lines[-1]}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
