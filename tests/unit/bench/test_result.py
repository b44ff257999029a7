from __future__ import annotations

import json
from pathlib import Path

from bench.result import Figure, write_results


def test_a_ratio_above_one_is_better_whatever_is_measured() -> None:
    assert Figure.more_is_better("rate", 300, "events/s", baseline=200).ratio == 1.5
    assert Figure.less_is_better("cost", 2, "us", baseline=3).ratio == 1.5


def test_figures_of_earlier_runs_are_kept_until_they_are_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "results" / "latest.json"
    write_results([Figure.more_is_better(name, 1, "x", baseline=1) for name in ("a", "b")], path)
    write_results([Figure.more_is_better("b", 4, "x", baseline=2)], path)
    assert json.loads(path.read_text()) == [
        {"name": "a", "value": 1, "unit": "x", "baseline": 1, "ratio": 1.0, "floor": None},
        {"name": "b", "value": 4, "unit": "x", "baseline": 2, "ratio": 2.0, "floor": None},
    ]
