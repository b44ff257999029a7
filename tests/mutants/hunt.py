"""`Hunt`: puts faults into scratch trees, some at a time, and says which of their tests see them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from tests.mutants.fault import Fault, Seeds, Test
from tests.mutants.looks import Look, Verdict, look
from tests.mutants.tree import ScratchTree, place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Of one fault. Red: seen. `by`: the kind of the last test that ran; `told`: what that said."""

    fault: Fault
    verdict: Verdict
    by: str
    cpu_seconds: float
    told: str

    @property
    def good(self) -> bool:
        return self.verdict is (Verdict.GREEN if self.fault.equivalent else Verdict.RED)

    def __str__(self) -> str:
        if self.verdict is Verdict.GREEN:
            return "equivalent" if self.fault.equivalent else "NOT SEEN"
        return self.by if self.verdict is Verdict.RED else f"BROKEN ({self.by})"


class Hunt:
    """A context manager: without it, no thread works."""

    def __init__(self, directory: Path, processes: int) -> None:
        self._trees: SimpleQueue[ScratchTree] = SimpleQueue()
        for number in range(processes):
            self._trees.put(ScratchTree(directory / str(number)))
        self._threads = ThreadPoolExecutor(processes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(cancel_futures=True)

    def without_fault(self, faults: Sequence[Fault]) -> list[Look]:
        """All their tests, each once. What is red here says nothing about a fault."""
        with self._tree() as tree:
            tests = dict.fromkeys(test for fault in faults for step in _steps_of(fault, tree) for test in step)
        paths = tuple(test for test in tests if isinstance(test, str))
        seeds = [(test,) for test in tests if isinstance(test, Seeds)]
        return list(self._threads.map(self._looked, [*([paths] if paths else []), *seeds]))

    def sightings(self, faults: Sequence[Fault]) -> Iterator[Sighting]:
        return self._threads.map(self._sighted, faults)

    def _looked(self, tests: tuple[Test, ...]) -> Look:
        with self._tree() as tree:
            return look(tree, tests)

    def _sighted(self, fault: Fault) -> Sighting:
        used, kind = 0.0, ""
        with self._tree() as tree, tree.with_fault(fault):
            for step in _steps_of(fault, tree):
                kind, seen = _kind(step[0]), look(tree, step)
                used += seen.cpu_seconds
                if seen.verdict is not Verdict.GREEN:
                    break
        return Sighting(fault=fault, verdict=seen.verdict, by=kind, cpu_seconds=used, told=seen.told)

    @contextmanager
    def _tree(self) -> Iterator[ScratchTree]:
        tree = self._trees.get()
        try:
            yield tree
        finally:
            self._trees.put(tree)


def _steps_of(fault: Fault, tree: ScratchTree) -> Sequence[tuple[Test, ...]]:
    """What runs one after the other, each in one process."""
    return [(test,) for test in fault.tests] or [tree.unit_tests_of(place_of(fault))]


def _kind(test: Test) -> str:
    return "simulation" if isinstance(test, Seeds) else test.split("/")[1]
