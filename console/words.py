"""How figures are written on pages, and what states are called. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.position import Position
from console.markup import Content, Markup, tag

NOTHING = "–"
_GAP = "\N{NO-BREAK SPACE}"
"""A figure and its unit stay on one line."""
_MOMENT = f"%Y-%m-%d{_GAP}%H:%M:%S"
_CLUSTER_TIME = re.compile(r"(?<= at )[1-9]\d{9}\.\d{1,10}\b(?:/[0-9A-F]{8,})?")
"""As our texts name one. A table's name may look like a cluster time, too."""

STATES = {
    "normal": ("ok", "●", "running"),
    "warning": ("warn", "▲", "warning"),
    "pending": ("warn", "◷", "waiting to try again"),
    "stopped": ("off", "❚❚", "paused"),
    "failed": ("bad", "✖", "failed"),
    "finished": ("done", "✔", "finished"),
    "removed": ("off", "⌫", "removed"),
    "unreadable": ("bad", "✖", "unreadable"),
    "pausing": ("warn", "◷", "pausing"),
    "removing": ("warn", "◷", "removing"),
    "starting": ("warn", "◷", "starting"),
}
"""Of a changefeed: its kind, by which it is coloured, its symbol and its name."""
_OF_TABLES = {
    "following": ("ok", "●"),
    "waiting": ("ok", "●"),
    "view": ("off", "○"),
    "copy": ("info", "⇊"),
    "recopy": ("info", "⇊"),
    "moving": ("info", "⇄"),
    "held": ("warn", "◆"),
    "behind": ("warn", "▲"),
    "no node": ("warn", "▲"),
    "failing": ("bad", "✖"),
    "stopped": ("bad", "■"),
    "lost": ("bad", "✖"),
    "refused": ("bad", "✖"),
}
URGENCY = ("bad", "warn", "info", "ok", "off", "done")
_OF_DDLS = {"pending": ("warn", "◷"), "executing": ("info", "▶"), "done": ("ok", "✔"), "skipped": ("off", "↷")}


def state_of(feed: pb.Changefeed) -> str:
    """The state; or the change that a user wants, until the owner has obeyed it."""
    state = pb.ChangefeedState.Name(feed.state).removeprefix("CHANGEFEED_STATE_").lower()
    if state == "unreadable":
        return "removing" if feed.desired == pb.DESIRED_STATE_REMOVED else state
    if feed.obeyed:
        return state
    return {pb.DESIRED_STATE_PAUSED: "pausing", pb.DESIRED_STATE_REMOVED: "removing"}.get(feed.desired, "starting")


def state_chip(feed: pb.Changefeed) -> Markup:
    return chip(*STATES[state_of(feed)])


def table_chip(state: str) -> Markup:
    return chip(*_OF_TABLES.get(state, ("off", "○")), state)


def urgency(state: str) -> int:
    """Of a table; what needs a user comes first."""
    return URGENCY.index(_OF_TABLES.get(state, ("off", ""))[0])


def ddl_chip(ddl: pb.Ddl) -> Markup:
    if ddl.HasField("refused"):
        return chip("bad", "✖", "refused")
    return chip(*_OF_DDLS.get(ddl.state, ("off", "○")), ddl.state)


def chip(kind: str, symbol: str, word: str) -> Markup:
    """A state in words, with a symbol, so that it does not depend on its colour."""
    return tag("span", tag("span", symbol, aria_hidden="true"), f" {word}", class_=f"chip {kind}")


def oplog_left(left: timedelta | None, *, scarce: bool) -> Content:
    """Only the owner looks at the sources' oplogs."""
    if left is None:
        return NOTHING
    return tag("span", span(left), class_="bad" if scarce else None)


def span(length: timedelta | float) -> str:
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds < 10:
        return f"{seconds:.1f}{_GAP}s"
    if seconds < 120:
        return f"{seconds:.0f}{_GAP}s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes}{_GAP}min"
    hours, rest = divmod(minutes, 60)
    return f"{hours}{_GAP}h{_GAP}{rest:02}{_GAP}min" if hours < 48 else f"{hours // 24}{_GAP}d{_GAP}{hours % 24}{_GAP}h"


def lag_of(message: Any) -> str:
    return span(message.lag.ToTimedelta()) if message.HasField("lag") else NOTHING


def left_of(copy: pb.CopyProgress) -> str:
    return f"about {span(copy.left.ToTimedelta())}" if copy.HasField("left") else NOTHING


def age(position: str, now: datetime) -> str:
    """How long ago a position was the newest of its source."""
    if not position:
        return NOTHING
    return span(max(now - Position.parse(position).ts.to_datetime(), timedelta(0)))


def place(position: str) -> str:
    """The time of a position, without its token."""
    return f"{Position.parse(position).ts.to_datetime():{_MOMENT}}" if position else NOTHING


def with_times(text: str) -> str:
    """A text that names cluster times, with what clocks say."""
    return _CLUSTER_TIME.sub(_as_clock, text)


def _as_clock(found: re.Match[str]) -> str:
    try:
        return place(found[0])
    except ValueError:  # part of a name, and larger than any cluster time
        return found[0]


def moment(message: Any, field: str) -> str:
    if not message.HasField(field):
        return NOTHING
    return f"{getattr(message, field).ToDatetime(UTC):{_MOMENT}}"


def clock(at: datetime) -> str:
    return f"{at:%H:%M:%S} UTC"


def number(count: int) -> str:
    return f"{count:,}"


def rate(rows: float | None) -> str:
    if rows is None:
        return NOTHING
    return f"{rows:,.0f}" if rows >= 10 or rows == 0 else f"{rows:.1f}"
