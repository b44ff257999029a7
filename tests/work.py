"""`lines_run`: how much work a call is, counted in executed lines: the same on every machine, however busy it is.

assert lines_run(lambda: fold(4_000)) < 6 * lines_run(lambda: fold(1_000))    a pairwise comparison has 16 times as many
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(call: Callable[[], object]) -> int:
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # what it runs in between is work of others
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count
