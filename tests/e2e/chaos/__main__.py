"""`python -m tests.e2e.chaos --minutes 20 --seed 7`: a chaos run (`tests/e2e/chaos/run.py`). Exit code 1 when something went wrong."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.e2e.chaos.run import Chaos


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.chaos", description="Replicates while everything around it breaks."
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="how long accidents happen; default: 20")
    parser.add_argument(
        "--seed", type=int, default=None, help="the same seed gives the same schedule; default: a new one"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=None,
        help="for data and logs; default: a new one, kept when something went wrong",
    )
    given = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    directory = given.directory or Path(tempfile.mkdtemp(prefix="sluice-chaos-"))
    sys.stdout.write(f"seed {seed}, {given.minutes:g} minutes, data and logs in {directory}\n")
    chaos = Chaos(directory, seconds=given.minutes * 60, seed=seed)
    clean = chaos.run()
    sys.stdout.write("".join(f"WRONG: {fault}\n" for fault in chaos.journal.faults) or "Nothing went wrong.\n")
    if clean and given.directory is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
