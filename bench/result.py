"""`Figure`: one figure with its baseline, as a row for people and as JSON for programs; `Goal`: what it is to reach."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

LOGS = Path(__file__).parent / "results"
LATEST = LOGS / "latest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    value: float
    unit: str
    baseline: float
    """The measurement of the baseline, in the same run and unit."""
    ratio: float
    """Above 1 is better than the baseline, for units of which more is better and for units of which less is better."""
    floor: float | None = None
    """The cost of the bytes themselves (`bench/baselines/floor.py`), in the same run and unit."""
    note: str = ""
    """The parts of the figure, for people."""

    @classmethod
    def more_is_better(
        cls, name: str, value: float, unit: str, *, baseline: float, floor: float | None = None, note: str = ""
    ) -> Figure:
        ratio = value / baseline
        return cls(name=name, value=value, unit=unit, baseline=baseline, ratio=ratio, floor=floor, note=note)

    @classmethod
    def less_is_better(
        cls, name: str, value: float, unit: str, *, baseline: float, floor: float | None = None, note: str = ""
    ) -> Figure:
        ratio = baseline / value if value else float("inf")
        return cls(name=name, value=value, unit=unit, baseline=baseline, ratio=ratio, floor=floor, note=note)


class Goal(NamedTuple):
    """`ratio`: at least so much better than the baseline of the same run. `most`: at most so many units."""

    ratio: float | None = None
    most: float | None = None

    def met(self, figure: Figure) -> bool:
        return (self.ratio is None or figure.ratio >= self.ratio) and (self.most is None or figure.value <= self.most)

    def __str__(self) -> str:
        return f">= {self.ratio:g} x" if self.most is None else f"<= {self.most:g}"


def table_of(results: Sequence[Figure], goals: Mapping[str, Goal], earlier: Mapping[str, float]) -> Table:
    """`earlier`: the ratios of the run before, by name."""
    table = Table("measurement", "unit")
    for column in ("value", "baseline", "ratio", "before", "goal", "floor"):
        table.add_column(column, justify="right")
    table.add_column("note")
    for result in results:
        numbers = (f"{result.value:,.1f}", f"{result.baseline:,.1f}", f"{result.ratio:.2f}")
        before = f"{earlier[result.name]:.2f}" if result.name in earlier else ""
        goal = goals.get(result.name)
        reached = "" if goal is None else str(goal) if goal.met(result) else f"short of {goal}"
        floor = "" if result.floor is None else f"{result.floor:,.1f}"
        table.add_row(result.name, result.unit, *numbers, before, reached, floor, result.note)
    return table


def ratios(path: Path = LATEST) -> dict[str, float]:
    """Of the figures that the file has."""
    return {figure["name"]: figure["ratio"] for figure in json.loads(path.read_text())} if path.exists() else {}


def write_results(results: Sequence[Figure], path: Path = LATEST) -> None:
    """Replaces the figures of this run's measurements in the file and keeps the others."""
    earlier = json.loads(path.read_text()) if path.exists() else []
    measured = {result.name for result in results}
    kept = [figure for figure in earlier if figure["name"] not in measured]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*kept, *map(_figure, results)], indent=2) + "\n")


def _figure(result: Figure) -> dict[str, object]:
    return {name: value for name, value in asdict(result).items() if name != "note"}
