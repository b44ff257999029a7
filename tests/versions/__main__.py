"""`python -m tests.versions`: what is proven of each version of MongoDB. Exit code 1 when something went wrong.

python -m tests.versions                        the component tests on each version, then each pair of source and target
python -m tests.versions pairs                  the pairs alone
python -m tests.versions pairs 4.4.2:6.0.27     this pair alone
python -m tests.versions components 5.0.4       the component tests on this version alone
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rich.console import Console

from devstack.mongodb.release import VERSIONS
from tests.versions.components import component_tests
from tests.versions.findings import Findings
from tests.versions.pair import PAIRS, REFUSED, Pair, Versions
from tests.versions.report import print_report

_WIDTH = 160
"""The table's width where no terminal gives one."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=["all", "components", "pairs"], default="all")
    parser.add_argument("names", nargs="*", help="versions, or pairs as SOURCE:TARGET")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    directory = Path(tempfile.mkdtemp(prefix="sluice-versions-"))
    findings: dict[str, Findings] = {}
    for name, work in _works(given.part, given.names, directory):
        console.print(f"{name} ...", highlight=False)
        findings[name] = work()
    print_report(console, findings)
    good = bool(findings) and all(found.good for found in findings.values())
    if good:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        console.print(f"Data and logs are in {directory}", soft_wrap=True)
    return 0 if good else 1


def _works(part: str, names: list[str], directory: Path) -> Iterator[tuple[str, Callable[[], Findings]]]:
    if part in ("all", "components"):
        for version in names or VERSIONS:
            yield version, partial(component_tests, version, directory / f"components-{version}.log")
    if part in ("all", "pairs"):
        for versions in map(Versions.parse, names) if names else (*PAIRS, *REFUSED):
            yield str(versions), partial(_pair, versions, directory / f"{versions.source}-{versions.target}")


def _pair(versions: Versions, directory: Path) -> Findings:
    pair = Pair(versions, directory)
    try:
        return pair.refused() if versions in REFUSED else pair.run()
    except Exception as error:  # noqa: BLE001 - whatever ends this pair, the others run
        findings = Findings()
        findings.looked_at("replication", [f"{type(error).__name__}: {error}"])
        return findings


if __name__ == "__main__":
    sys.exit(main())
