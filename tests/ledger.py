"""What each test file costs in CPU seconds, with the servers, nodes and tasks that its tests start.

A table of the dearest files stands at the end of a run; all of them are written to `.ledger.json`. CPU seconds say more than
seconds: tests wait for each other's servers, and a busy machine makes them wait longer. The CPU of a server that many tests share is
counted where it was spent: its start with the first test that asks for it. A process that outlives its parent is no longer counted.
A test above 20 CPU seconds says why: `@pytest.mark.costly("because ...")`.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")
_PROPERTY = "cpu_seconds"
_COLLECTION = "(collection)"
_CONTROLLER = "(pytest itself)"
_SHOWN = 25
COSTLY_SECONDS = 20.0
_WORTH_A_LOOK_SECONDS = 0.5


def cpu_seconds(process: int) -> float:
    """What a process has used until now, with all processes below it, those that have ended included."""
    return sum(sum(_times(each)) for each in _tree(process)) / _TICKS


def _times(process: int) -> list[int]:
    """In ticks: user and system, its own and that of its children that have ended."""
    try:
        line = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return [0, 0, 0, 0]  # it ended just now; what it used is with its parent
    return list(map(int, line.rpartition(")")[2].split()[11:15]))


def _tree(process: int) -> Iterator[int]:
    yield process
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            below = children.read_text(encoding="ascii").split()
        except OSError:
            continue
        for child in below:
            yield from _tree(int(child))


class Ledger:
    """The pytest plugin. Each worker measures its own tests; the controller, or the only process, adds them up."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._worker = hasattr(config, "workerinput")
        self._before = 0.0
        self._unmeasured = 0.0
        self._ends_file = True
        self._files: dict[str, float] = defaultdict(float)
        self._tests: dict[str, float] = defaultdict(float)
        self._seconds: dict[str, float] = defaultdict(float)
        self._costly: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._before = cpu_seconds(os.getpid())
        if self._worker:
            self._config.workeroutput[_COLLECTION] = self._before  # type: ignore[attr-defined]
        else:
            self._files[_COLLECTION] += self._before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        self._ends_file = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Quick tests are measured together: to look at a JVM's threads costs more than most of them."""
        report = yield
        self._unmeasured += report.duration
        if report.when == "teardown" and (self._ends_file or self._unmeasured > _WORTH_A_LOOK_SECONDS):
            now = cpu_seconds(os.getpid())
            report.user_properties.append((_PROPERTY, max(0.0, now - self._before)))
            self._before, self._unmeasured = now, 0.0
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._worker:
            return
        used = sum(float(str(value)) for name, value in report.user_properties if name == _PROPERTY)
        file = report.nodeid.partition("::")[0]
        self._tests[report.nodeid] += used
        self._files[file] += used
        self._seconds[file] += report.duration
        if "costly" in report.keywords:
            self._costly.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        self._files[_COLLECTION] += getattr(node, "workeroutput", {}).get(_COLLECTION, 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._worker or not self._tests:
            return
        if self._config.pluginmanager.hasplugin("dsession"):
            self._files[_CONTROLLER] += sum(_times(os.getpid())[:2]) / _TICKS
        tests = Counter(test.partition("::")[0] for test in self._tests)
        files = _dearest(self._files)
        terminalreporter.section(f"CPU seconds: {sum(files.values()):.0f} in all")
        terminalreporter.write_line("  CPU s  seconds  tests")
        for file, used in list(files.items())[:_SHOWN]:
            terminalreporter.write_line(f"{used:7.1f}  {self._seconds[file]:7.1f}  {tests[file]:5d}  {file}")
        for test, used in _dearest(self._tests).items():
            if used > COSTLY_SECONDS and test not in self._costly:
                terminalreporter.write_line(f"{used:7.1f}  must say why: @pytest.mark.costly(...)  {test}")
        ledger = {
            "files": {
                file: {"cpu_seconds": round(used, 2), "seconds": round(self._seconds[file], 2), "tests": tests[file]}
                for file, used in files.items()
            },
            "tests": {test: round(used, 2) for test, used in _dearest(self._tests).items() if used >= 1},
        }
        (self._config.rootpath / ".ledger.json").write_text(json.dumps(ledger, indent=1) + "\n", encoding="utf-8")


def _dearest(costs: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(costs.items(), key=lambda item: -item[1]))
