"""`Delay`: how long the source must have had a change before it is applied, as a user writes it: `30s`, `15m`, `1h`, `2d`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from changefeed.config.options import Mistake, shown

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_TEXT = re.compile(r"(\d{1,8})([smhd])")
_LONGEST = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Delay:
    span: timedelta

    @classmethod
    def parse(cls, value: object) -> Delay:
        if isinstance(value, Delay):
            return value
        match = _TEXT.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise Mistake(f"found {shown(value)}; write null or a time such as 30s, 15m, 1h, 2d")
        span = timedelta(seconds=int(match[1]) * _UNITS[match[2]])
        if not timedelta(0) < span <= _LONGEST:
            raise Mistake(f"found {shown(value)}; allowed are 1s to {_LONGEST.days}d")
        return cls(span)

    def __str__(self) -> str:
        seconds = int(self.span.total_seconds())
        unit = next(unit for unit in ("d", "h", "m", "s") if seconds % _UNITS[unit] == 0)
        return f"{seconds // _UNITS[unit]}{unit}"
