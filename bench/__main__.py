"""Measures, prints a table and writes `bench/results/latest.json`.

    python -m bench                 everything
    python -m bench event_scan      some measurements

SLUICE_TEST_SOURCE and SLUICE_TEST_TARGET name real servers; without them the embedded ones are started.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from bench.measurements import MEASUREMENTS, ON_REQUEST, Servers
from bench.result import LATEST, Result, table_of, write_results

_WIDTH = 180
"""Of the table, where no terminal says how wide it is."""


def main(arguments: Sequence[str]) -> int:
    known = MEASUREMENTS | ON_REQUEST
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", choices=[[], *known], default=[], metavar="measurement", help=", ".join(known)
    )
    chosen = parser.parse_args(arguments).names
    if not chosen:
        LATEST.unlink(missing_ok=True)
    names = chosen or list(MEASUREMENTS)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    results: list[Result] = []
    servers = Servers()
    try:
        for name in names:
            with console.status(f"measuring {name}"):
                measured = known[name](servers)
            write_results(measured)
            results += measured
    finally:
        servers.stop()
        console.print(table_of(results))
    console.print(f"written to {LATEST}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
