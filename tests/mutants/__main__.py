"""`python -m tests.mutants`: puts faults into a copy of the product, one at a time, and says which tests see them.

python -m tests.mutants                          all faults; exit code 1 when one is seen by nothing
python -m tests.mutants owner sink               those of these rooms
python -m tests.mutants --name "write concern"   those whose names have this text
python -m tests.mutants --dry                    only looks whether each text stands once in the product

For each fault its tests run from cheap to dear, up to the first that is red. Before all faults they run without any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.mutants.fault import Fault
from tests.mutants.faults.every import FAULTS
from tests.mutants.hunt import Hunt, Sighting
from tests.mutants.looks import Verdict
from tests.mutants.tree import MisplacedFault, place_of

_WIDTH = 180
"""The table's width where no terminal gives one."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="*", help="all, if none is given")
    parser.add_argument("--name", action="append", default=[], help="a part of the names of the faults to run")
    parser.add_argument("--processes", type=int, default=2, help="so many faults at a time")
    parser.add_argument("--dry", action="store_true", help="run no test")
    given = parser.parse_args()
    if unknown := set(given.rooms) - FAULTS.keys():
        parser.error(f"no room {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    faults = [fault for room in given.rooms or FAULTS for fault in FAULTS[room]]
    faults = [fault for fault in faults if not given.name or any(part in fault.name for part in given.name)]
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False, markup=False, soft_wrap=True)
    misplaced = list(_misplaced(faults))
    for error in misplaced:
        console.print(str(error))
    if misplaced or given.dry:
        return 1 if misplaced else 0
    with tempfile.TemporaryDirectory(prefix="sluice-mutants-") as directory:
        return _hunt(console, faults, Path(directory), given.processes)


def _misplaced(faults: Sequence[Fault]) -> Iterator[MisplacedFault]:
    for fault in faults:
        try:
            place_of(fault)
        except MisplacedFault as error:
            yield error


def _hunt(console: Console, faults: Sequence[Fault], directory: Path, processes: int) -> int:
    with Hunt(directory, processes) as hunt:
        red = [seen for seen in hunt.without_fault(faults) if seen.verdict is not Verdict.GREEN]
        for seen in red:
            console.print(f"red without any fault: {seen.told}")
        sightings: list[Sighting] = []
        for sighting in hunt.sightings(faults) if not red else ():
            sightings.append(sighting)
            console.print(f"{sighting!s:12} {sighting.cpu_seconds:6.1f} s  {sighting.fault.name}  [{sighting.told}]")
            console.file.flush()
    _print_table(console, sightings)
    return 1 if red or not all(sighting.good for sighting in sightings) else 0


def _print_table(console: Console, sightings: Sequence[Sighting]) -> None:
    table = Table("fault", "seen by", "CPU s", "test", box=None)
    for sighting in sightings:
        told = sighting.told.partition("\n")[0].partition(" - ")[0]
        test = told.removeprefix("FAILED ").removeprefix("ERROR ").partition("[")[0]
        table.add_row(sighting.fault.name, str(sighting), f"{sighting.cpu_seconds:.0f}", test)
    console.print(table)
    used = sum(sighting.cpu_seconds for sighting in sightings)
    counts = Counter(map(str, sightings))
    of_each = ", ".join(f"{verdict}: {count}" for verdict, count in counts.most_common())
    console.print(f"{len(sightings)} faults in {used:.0f} CPU seconds. {of_each}")


if __name__ == "__main__":
    sys.exit(main())
