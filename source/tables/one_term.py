"""`one_term`: makes sure that what was read of the source's catalog is not taken back.

A find sees only documents that the majority has, but it finds the collection by the newest catalog. If a drop or a rename reached the
primary only, the find reads nothing, or another table, and an election takes the DDL back. Then nobody ever hears of it.

    with one_term(client, "reading a chunk of shop.orders"):
        read

Afterwards the majority has everything that the member had written when the block ended, and its primary was the same all along. A change of
primary raises, and so does a majority that does not follow. See docs/decisions/0056. A router tells no term: there nothing is confirmed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from changefeed.errors import SourceUnavailable
from source.connection import Client
from source.majority_watch import majority_point
from source.oplog.window import newest_time

_PATIENCE = timedelta(seconds=30)
_LOOK_AGAIN = 0.02


@contextmanager
def one_term(client: Client, doing: str) -> Iterator[None]:
    before = majority_point(client)
    yield
    if before is None:
        return
    newest, give_up_at = newest_time(client), time.monotonic() + _PATIENCE.total_seconds()
    while (point := majority_point(client)) is not None and not point.has(newest, before.term):
        if point.term != before.term:
            raise SourceUnavailable(f"{doing}: the source has got another primary meanwhile, it is read again")
        if time.monotonic() > give_up_at:
            raise SourceUnavailable(f"{doing}: {point}")
        time.sleep(_LOOK_AGAIN)
