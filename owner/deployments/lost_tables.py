"""`lost_tables`: the tables whose position the source's oplog no longer has.

position of         90   95   91   96
the oplog begins at 93                     the first and the third are lost, alone: the others go on
at 97                                      all are: the changefeed is lost, and no table of it
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from changefeed.errors import HistoryLost
from changefeed.position import Position
from changefeed.table import TableId
from owner.etcd_view import OwnerView
from owner.tables.progress import TableProgress
from source.oplog.window import OplogWindow


def lost_tables(known: OwnerView, progress: TableProgress, window: OplogWindow | None) -> dict[TableId, HistoryLost]:
    """With the reason for each."""
    if window is None:
        return {}
    lost = {table for table, it in known.stragglers.items() if not it.lost} | lost_alone(known, progress, window)
    places = {table: progress.of(table) for table in lost}
    return {
        table: _lost_at(at, window).about(table)
        for table, at in places.items()
        if at is not None and not window.holds(at)
    }


def lost_alone(known: OwnerView, progress: TableProgress, window: OplogWindow | None) -> AbstractSet[TableId]:
    """Those that cannot keep up, if others can. None of these is a straggler yet."""
    if window is None or window.holds(progress.least(known.stragglers.keys()) or window.newest):
        return frozenset()
    others = progress.tables.keys() - known.stragglers.keys()
    lost = {table for table in others if (at := progress.of(table)) is not None and not window.holds(at)}
    return lost if lost != others else frozenset()


def others_go_on(known: OwnerView, progress: TableProgress, window: OplogWindow | None) -> bool:
    """Whether what the oplog has lost concerns stragglers and those of `lost_alone` only. The checkpoint follows the other tables a moment after
    one that has held it became a straggler.
    """
    if window is None:
        return False
    apart = known.stragglers.keys() | lost_alone(known, progress, window)
    least = progress.least(apart)
    return bool(apart) and least is not None and window.holds(least)


def _lost_at(at: Position, window: OplogWindow) -> HistoryLost:
    return HistoryLost(
        f"it is at {at}, which is no longer in the source's oplog (the oldest is {window.oldest_ts}, {window.oldest_ts.to_iso()}); have it copied "
        "anew: `sluice table recopy`"
    )
