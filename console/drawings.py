"""Figures as SVG: the line of an hour, a bar, and how far lanes are behind. Pure.

Positions are drawn by how long they are behind the newest known one, on a scale that has room for seconds and for days:

    1 d      1 h     1 min    1 s  now
    ├────────┼────────┼────────┼────┤
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log1p

from console.markup import Markup, join, tag

HOUR = 3600
_WIDTH, _HEIGHT = 120, 24
_TICKS = ((1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (86_400, "1 d"), (604_800, "7 d"))


def sparkline(points: Sequence[tuple[float, float]], now: float, meaning: str) -> Markup:
    """`points`: Unix seconds and values. The right end is now, the left one an hour ago; of each minute the largest value is drawn."""
    minutes: dict[int, float] = {}
    for at, value in points:
        if 0 <= now - at <= HOUR:
            minute = round(60 - (now - at) / 60)
            minutes[minute] = max(value, minutes.get(minute, 0))
    if len(minutes) < 2:
        return tag(
            "svg", class_="spark", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=f"{meaning}: no line yet"
        )
    top = max(*minutes.values(), 1.0)
    drawn = " ".join(
        f"{2 * minute},{_HEIGHT - 2 - (_HEIGHT - 4) * value / top:.0f}" for minute, value in minutes.items()
    )
    label = f"{meaning}: at most {top:.0f} s in the last hour, {points[-1][1]:.0f} s now"
    return tag(
        "svg",
        tag("polyline", points=drawn, vector_effect="non-scaling-stroke"),
        class_="spark",
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def share_bar(share: float, meaning: str) -> Markup:
    return tag(
        "svg",
        tag("rect", class_="track", width="100%", height="100%", rx="3"),
        tag("rect", class_="fill", width=f"{100 * min(max(share, 0), 1):.1f}%", height="100%", rx="3"),
        class_="bar",
        role="img",
        aria_label=f"{meaning}: {100 * share:.0f} %",
    )


class LagScale:
    """From `most` seconds behind, at the left, to nothing, at the right."""

    def __init__(self, most: float) -> None:
        self._most = max(most, 10.0)

    def percent(self, behind: float) -> str:
        part = log1p(max(behind, 0)) / log1p(self._most)
        return f"{2 + 96 * (1 - min(part, 1)):.1f}%"

    def axis(self) -> Markup:
        ticks = [(seconds, text) for seconds, text in _TICKS if seconds < self._most * 0.8]
        ticks = ticks[-4:] if len(ticks) > 4 else ticks
        return tag(
            "svg",
            (_tick(self.percent(seconds), text, "middle") for seconds, text in ticks),
            _tick(self.percent(0), "now", "end"),
            class_="axis",
            aria_hidden="true",
        )

    def lane(self, behind: float, barrier: float, kind: str, meaning: str) -> Markup:
        """A bar up to a lane's checkpoint, and the line of its barrier, which it may not pass."""
        at, wall = self.percent(behind), self.percent(barrier)
        return tag(
            "svg",
            tag("rect", class_="track", y="8", width="100%", height="8", rx="4"),
            tag("rect", class_=f"fill {kind}", y="8", width=at, height="8", rx="4"),
            tag("circle", class_=kind, cx=at, cy="12", r="6"),
            tag("line", class_=f"wall {kind}", x1=wall, x2=wall, y1="0", y2="24"),
            class_="lane",
            role="img",
            aria_label=meaning,
        )


def _tick(at: str, text: str, anchor: str) -> Markup:
    line = tag("line", x1=at, x2=at, y1="14", y2="20")
    return join(tag("text", text, x=at, y="11", text_anchor=anchor), line)
