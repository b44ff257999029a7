"""`quick_commands`: the CPU time of a command, beside that of a program that only loads the library for command lines."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.product import Product
from bench.result import Figure
from bench.workload import Workload
from devstack.stack import DevStack
from source.connection import connect

_RUNS = 7
_SLUICE = str(Path(sys.executable).with_name("sluice"))


def quick_commands(stack: DevStack) -> list[Figure]:
    workload = Workload(events=1, tables=1, database=f"bench_{uuid.uuid4().hex[:8]}")
    with connect(stack.source_uri) as source, Product(stack) as product:
        workload.prepare(source)
        changefeed = product.create(workload.database)
        product.until_begun(changefeed)
        bare = _millis([sys.executable, "-c", "import typer"])
        asked = [_SLUICE, "changefeed", "query", changefeed, "--server", product.admin_address()]
        return [
            Figure.less_is_better("sluice_help", _millis([_SLUICE, "--help"]), "ms CPU", baseline=bare),
            Figure.less_is_better("changefeed_query", _millis(asked), "ms CPU", baseline=bare),
        ]


def _millis(command: Sequence[str]) -> float:
    """After a first run, which leaves bytecode."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    spent: list[float] = []
    for _ in range(_RUNS + 1):
        before = _children()
        subprocess.run(command, check=True, capture_output=True, env=environment)
        spent.append((_children() - before) * 1000)
    return median(spent[1:])


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
