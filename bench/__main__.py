"""Runs measurements, prints a table with goals and with the ratios of the run before, and writes `bench/results/latest.json`.

    python -m bench                 all measurements
    python -m bench event_scan      one measurement

SLUICE_TEST_SOURCE and SLUICE_TEST_TARGET are URIs of existing servers; without them it starts a source and a target.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from rich.console import Console

from bench.goals import GOALS
from bench.measurements import MEASUREMENTS
from bench.result import LATEST, Figure, ratios, table_of, write_results
from devstack.stack import DevStack

_CACHE_GB = 2.0
"""The cache of each server, large enough not to limit the measurements."""
_WIDTH = 180
"""The width of the table without a terminal."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", choices=[[], *MEASUREMENTS], default=[], metavar="measurement", help=", ".join(MEASUREMENTS)
    )
    chosen = parser.parse_args(arguments).names
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops the servers and processes that were started
    earlier = ratios()
    if not chosen:
        LATEST.unlink(missing_ok=True)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    results: list[Figure] = []
    with DevStack(cache_gb=_CACHE_GB) as stack:
        try:
            for name in chosen or MEASUREMENTS:
                with console.status(f"measuring {name}"):
                    measured = MEASUREMENTS[name](stack)
                write_results(measured)
                results += measured
        finally:
            console.print(table_of(results, GOALS, earlier))
    console.print(f"written to {LATEST}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
