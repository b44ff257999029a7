"""All that takes long, one after the other, with one table at the end: `make nightly`. Exit code 1 unless each row has passed.

    make nightly                        the rows that have not passed on this product yet: may be ended at any time, and goes on where it was
    make nightly ROWS="soak chaos"      these rows
    python -m tests.nightly --table     only prints the table

`tests/nightly.json` keeps the newest run of each row, with its commit, so that a night may have several sittings on several machines. A row
holds as long as the product is as it was, which its digest tells: a commit may be squashed or rebased. What a row printed stands in `.nightly/`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256

from rich.console import Console
from rich.table import Table

from devstack.mongodb.release import VERSIONS
from tests.house import PRODUCT, ROOT

_LOGS = ROOT / ".nightly"
_KEPT = ROOT / "tests" / "nightly.json"
_SHIPPED = (*PRODUCT, "proto", "helm", "container")
_WIDTH = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    command: str
    commit: str
    product: str
    began_at: str
    minutes: float
    passed: bool


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.nightly", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help="those to run, instead of all that do not hold")
    parser.add_argument("--table", action="store_true", help="run nothing")
    given = parser.parse_args()
    if unknown := [name for name in given.rows if not _rows_of(name)]:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(_commands())}")
    chosen = [row for name in given.rows for row in _rows_of(name)]
    runs, product = _kept(), _product()
    if not given.table:
        if _edited():
            sys.exit(
                "the product has changes that are not committed: commit them first, since each row names its commit"
            )
        for row in chosen or [row for row in _commands() if not _holds(runs.get(row), product)]:
            runs = {**_kept(), row: _run(row)}
            _keep(runs)
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(_table(runs, product))
    return 0 if all(_holds(runs.get(row), product) for row in _commands()) else 1


def _commands() -> Mapping[str, str]:
    """The seeds of each hour are others. What takes hours has several rows."""
    return {
        "soak": "make soak",
        "failover": "make failover",
        **{f"sinks-{part}": f"make sinks PART={part}" for part in ("steps", "steps_of_a_cluster", "consumers")},
        "kubernetes": "make kubernetes",
        **{f"versions-{version}": f"make versions PART=components NAMES={version}" for version in VERSIONS},
        "versions-pairs": "make versions PART=pairs",
        "chaos": f"make chaos SEED={datetime.now(UTC):%j}",
        **{f"simulate-{part + 1}": _simulate(part * 2500) for part in range(4)},
        "planted": "make planted",
        "mutants": "make mutants",
    }


def _rows_of(name: str) -> list[str]:
    """`simulate` is all its parts."""
    return [row for row in _commands() if name in (row, row.split("-")[0])]


def _simulate(first: int) -> str:
    return f"make simulate SEEDS=2500 FIRST={datetime.now(UTC):%y%m%d%H}{first:04}"


def _run(row: str) -> Run:
    command, commit, product = _commands()[row], _git("rev-parse", "--short", "HEAD"), _product()
    log = _LOGS / f"{row}.log"
    print(f"{row}: {command} > {log.relative_to(ROOT)}", flush=True)
    _LOGS.mkdir(exist_ok=True)
    began_at, began = datetime.now(UTC), time.monotonic()
    with log.open("wb") as output:
        code = subprocess.run(
            command.split(), cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode
    minutes = round((time.monotonic() - began) / 60, 1)
    passed = code == 0 and _product() == product and not _edited()  # what was edited meanwhile is of no commit
    at = f"{began_at:%Y-%m-%d %H:%M}"
    return Run(command=command, commit=commit, product=product, began_at=at, minutes=minutes, passed=passed)


def _kept() -> dict[str, Run]:
    stored = json.loads(_KEPT.read_text(encoding="utf-8")) if _KEPT.exists() else {}
    return {row: Run(**run) for row, run in stored.items() if row in _commands()}


def _keep(runs: Mapping[str, Run]) -> None:
    text = json.dumps({row: asdict(run) for row, run in sorted(runs.items())}, indent=1)
    written = _KEPT.with_suffix(".new")
    written.write_text(f"{text}\n", encoding="utf-8")
    written.replace(_KEPT)


def _holds(run: Run | None, product: str) -> bool:
    return run is not None and run.passed and run.product == product


def _product() -> str:
    """Of the product as it is committed."""
    return sha256(_git("ls-tree", "HEAD", "--", *_SHIPPED).encode()).hexdigest()[:12]


def _edited() -> bool:
    return bool(_git("status", "--porcelain", "--untracked-files=no", "--", *_SHIPPED))


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _table(runs: Mapping[str, Run], product: str) -> Table:
    table = Table("what", "on commit", "began (UTC)", "minutes", "result")
    for row in _commands():
        if run := runs.get(row):
            result = ("passed" if run.passed else "FAILED") + (
                ", the product has changed since" if run.product != product else ""
            )
            table.add_row(run.command, run.commit, run.began_at, f"{run.minutes:g}", result)
        else:
            table.add_row(_commands()[row], "-", "-", "-", "not run yet")
    return table


if __name__ == "__main__":
    sys.exit(main())
