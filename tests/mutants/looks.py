"""`look`: runs one test, or seeds, in a scratch tree, and says what came of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.mutants.fault import Seeds, Test
from tests.mutants.tree import ScratchTree

_LONGEST_SECONDS = 1800.0
"""For a look that hangs. On a busy machine the dearest one takes a quarter of it."""
_PYTEST = (
    *("-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"),
    *("-p", "tests.mutants.unshrunk", "--hypothesis-profile", "unshrunk"),
)
_TOLD = re.compile(r"^(?:FAILED|ERROR) (.*?)(?: - (.*))?$", re.MULTILINE)
_UNFIT = re.compile(r"^(?:E +)?(?:\w+\.)*(NameError|ImportError|ModuleNotFoundError|SyntaxError|UnboundLocalError)\b")
"""A fault whose module does not run would be found at once, whatever it is."""


class Verdict(StrEnum):
    GREEN = "green"
    RED = "red"
    BROKEN = "broken"
    """The tests did not run, or the faulty module did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    verdict: Verdict
    cpu_seconds: float
    told: str
    """The test that was red, and its error."""


def look(tree: ScratchTree, tests: tuple[Test, ...]) -> Look:
    """`tests`: one that is seeds, or any number of paths."""
    process = subprocess.Popen(
        [sys.executable, *_arguments(tests)],
        cwd=tree.root,
        env={**os.environ, **tree.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    watch = threading.Timer(_LONGEST_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
    watch.start()
    assert process.stdout is not None
    with process.stdout as stdout:
        said = stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    watch.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return Look(
        verdict=_verdict(process.returncode, said),
        cpu_seconds=used.ru_utime + used.ru_stime,
        told=_told(said) if process.returncode else "",
    )


def _arguments(tests: tuple[Test, ...]) -> tuple[str, ...]:
    first = tests[0]
    if isinstance(first, Seeds):
        return ("-m", "tests.mutants.seeds", str(first.count), str(first.first), *first.options)
    return (*_PYTEST, *map(str, tests))


def _verdict(status: int, said: str) -> Verdict:
    if status == 0:
        return Verdict.GREEN
    unfit = any(map(_UNFIT.match, (error for _, error in _TOLD.findall(said))))
    return Verdict.RED if status == 1 and not unfit else Verdict.BROKEN


def _told(said: str) -> str:
    found = _TOLD.search(said)
    return found[0] if found else "\n".join(said.splitlines()[-30:])


def exists(root: Path, test: Test) -> bool:
    return isinstance(test, Seeds) or (root / test.partition("::")[0]).exists()
