"""`Figure`: one figure with its baseline, as a row for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

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


def table_of(results: Sequence[Figure]) -> Table:
    table = Table("measurement", "unit")
    for column in ("value", "baseline", "ratio", "floor"):
        table.add_column(column, justify="right")
    table.add_column("note")
    for result in results:
        numbers = (f"{result.value:,.1f}", f"{result.baseline:,.1f}", f"{result.ratio:.2f}")
        floor = "" if result.floor is None else f"{result.floor:,.1f}"
        table.add_row(result.name, result.unit, *numbers, floor, result.note)
    return table


def write_results(results: Sequence[Figure], path: Path = LATEST) -> None:
    """Replaces the figures of this run's measurements in the file and keeps the others."""
    earlier = json.loads(path.read_text()) if path.exists() else []
    measured = {result.name for result in results}
    kept = [figure for figure in earlier if figure["name"] not in measured]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*kept, *map(_figure, results)], indent=2) + "\n")


def _figure(result: Figure) -> dict[str, object]:
    return {name: value for name, value in asdict(result).items() if name != "note"}
