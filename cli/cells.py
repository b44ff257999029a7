"""Formats values for the cells of a table."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.printable import sized
from cli.output import time_of
from cli.tables import Styled

_STYLES = {"normal": "green", "warning": "yellow", "pending": "yellow", "failed": "red", "finished": "cyan"}

_BAR = 20
"""The width of a progress bar, in characters."""


def state_of(feed: pb.Changefeed) -> str:
    return pb.ChangefeedState.Name(feed.state).removeprefix("CHANGEFEED_STATE_").lower()


def unreadable(feed: pb.Changefeed) -> bool:
    """Whether the cluster cannot read its records, so that it has no state."""
    return feed.state == pb.CHANGEFEED_STATE_UNREADABLE


def state(feed: pb.Changefeed) -> Styled:
    """The state; or the requested change, until the owner has obeyed it."""
    if unreadable(feed):
        return Styled("removing" if feed.desired == pb.DESIRED_STATE_REMOVED else "unreadable", "red")
    found = state_of(feed)
    if feed.obeyed:
        waits = bool(feed.attention) and found in ("normal", "warning", "finished")
        return Styled(f"{found}, {feed.attention}", "yellow") if waits else Styled(found, _STYLES.get(found, ""))
    asked = {pb.DESIRED_STATE_PAUSED: "pausing", pb.DESIRED_STATE_REMOVED: "removing"}.get(feed.desired, "starting")
    return Styled(asked, "yellow")


def seconds(feed: pb.Changefeed) -> str:
    """The lag in seconds; a finished changefeed has none."""
    if unreadable(feed) or state_of(feed) == "finished":
        return "-"
    return lag(feed)


def lag(message: Any) -> str:
    return f"{message.lag.ToTimedelta().total_seconds():,.1f}s" if message.HasField("lag") else "-"


def span(seconds: float) -> str:
    """About how long, for people."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{max(1, round(seconds))}s"
    return f"{minutes}min" if minutes < 2 * 60 else f"{minutes // 60}h {minutes % 60:02}min"


def position(text: str) -> str:
    """The time of a position, without its token."""
    return time_of(text) or "-"


def dash(text: str) -> str:
    return text or "-"


def moment(message: Any, field: str) -> str:
    if not message.HasField(field):
        return "-"
    stamp: Timestamp = getattr(message, field)
    return stamp.ToDatetime(UTC).strftime("%Y-%m-%d %H:%M:%S")


def as_of(messages: Iterable[Any]) -> str:
    """What is not known now. Empty: all is."""
    stale = next((message for message in messages if message.HasField("as_of")), None)
    if stale is None:
        return ""
    age = (datetime.now(UTC) - stale.as_of.ToDatetime(UTC)).total_seconds()
    return f"as of {moment(stale, 'as_of')} UTC, {span(age)} ago: this node cannot write to etcd, and does not know what happened since"


def moment_now() -> str:
    return datetime.now().astimezone().strftime("%H:%M:%S")


def took(begin: Timestamp, end: Timestamp) -> str:
    length = (end.ToDatetime(UTC) - begin.ToDatetime(UTC)).total_seconds()
    return f"{length:.1f}s"


def rows(kind: str) -> str:
    """What the rows of a table of this kind are called. A time series is copied as it is stored: bucket by bucket, each of many measurements."""
    return "buckets" if kind == "timeseries" else "docs"


def copy(message: Any) -> str:
    """A progress bar, the number of tables if there are several, what is copied of what there is, the rate, and the time left."""
    if not message.HasField("copy"):
        return "-"
    kinds = {rows(table.kind) for table in message.copies}
    return copy_bar(message.copy, kinds.pop() if len(kinds) == 1 else "docs")


def copy_bar(progress: pb.CopyProgress, unit: str = "docs") -> str:
    full = int(progress.share * _BAR)
    of_tables = f"  {progress.tables_done:,} of {progress.tables:,} tables" if progress.tables > 1 else ""
    documents = f"  {_of(progress, unit)}" if progress.documents or progress.documents_left else ""
    rate = f"  {sized(int(progress.bytes_rate))}/s" if progress.bytes_rate else ""
    left = f"  about {span(progress.left.ToTimedelta().total_seconds())} left" if progress.HasField("left") else ""
    return f"{'█' * full}{'░' * (_BAR - full)} {int(100 * progress.share)}%{of_tables}{documents}{rate}{left}"


def _of(progress: pb.CopyProgress, unit: str) -> str:
    documents, bytes_ = f"{progress.documents:,}", sized(progress.bytes)
    if progress.documents_left:
        documents += f" of about {progress.documents + progress.documents_left:,}"
        bytes_ += f" of {sized(progress.bytes + progress.bytes_left)}"
    return f"{documents} {unit}, {bytes_}"
