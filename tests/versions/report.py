"""The output of `make versions`: the result of each version and each pair of versions, then the failures."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from tests.versions.findings import Findings

PASSED, FAILED = "passed", "FAILED"
_SHOWN = 600
"""The maximum length of a printed fault; a differing document may be of any length."""


def print_report(console: Console, findings: Mapping[str, Findings]) -> None:
    """`findings` by subject: a version, or a pair of versions."""
    columns = list(dict.fromkeys(what for found in findings.values() for what in found.faults))
    table = Table("", *columns)
    for name, found in findings.items():
        table.add_row(name, *(_cell(found, what) for what in columns))
    console.print(table)
    for name, found in findings.items():
        for what, faults in found.faults.items():
            for fault in faults:
                console.print(f"{name}, {what}: {fault[:_SHOWN]}", markup=False, highlight=False, soft_wrap=True)


def _cell(found: Findings, what: str) -> str:
    if what not in found.faults:
        return "-"
    return FAILED if found.faults[what] else PASSED
