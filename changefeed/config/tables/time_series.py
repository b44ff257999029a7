"""`obstacle`: why a time series is not replicated by a changefeed. Pure.

Its buckets are replicated as they are: documents of the server's own form, which hold many measurements each. So what a user says about
rows cannot be done to it, and only a server of the same release surely reads them.
"""

from __future__ import annotations

from changefeed.capture import Capture
from changefeed.config.tables.filter import TableFilter
from changefeed.event import RowType

_WITHOUT_BUCKETS = (8, 3)
_NEEDED = frozenset({RowType.INSERT, RowType.UPDATE, RowType.REPLACE})
_LEAVE_OUT = "or leave the time series out (filter.tables)"


def obstacle(of_table: TableFilter, capture: Capture, *, messages: bool, columns: bool, shared: bool) -> str:
    """Empty: it is replicated. `messages`: the sink keeps these. `columns`: some fields are not to be seen. `shared`: its name at the target
    may be that of other tables, too.
    """
    if messages:
        return "its buckets are no messages; leave the time series out (filter.tables)"
    if capture is Capture.CHANGE_STREAM:
        return f"change streams do not show its measurements; have the oplog read (capture: oplog), {_LEAVE_OUT}"
    if columns:
        return f"its buckets are written as they are, so fields cannot be left out or masked; take it out of `columns`, {_LEAVE_OUT}"
    if of_table.conditions or _NEEDED & of_table.ignored:
        return f"a bucket is inserted once and then updated with each measurement, so its row events cannot be ignored (deletes can); change filter.events, {_LEAVE_OUT}"
    if shared:
        return f"several tables may come under its name at the target; give it a name of its own (routes), {_LEAVE_OUT}"
    return ""


def release_obstacle(source: tuple[int, int], target: tuple[int, int]) -> str:
    """Empty: the target reads what the source has written."""
    if source >= _WITHOUT_BUCKETS:
        return f"MongoDB {_text(source)} keeps time series in another form, which this release does not replicate; leave the time series out (filter.tables)"
    if source != target:
        return (
            f"the source is MongoDB {_text(source)} and the target {_text(target)}, and a server reads the buckets of its own release only; bring both "
            f"to one release, {_LEAVE_OUT}"
        )
    return ""


def _text(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
