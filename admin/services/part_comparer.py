"""`PartComparer`: compares a part of a changefeed's documents at a sync point for its owner, with this node's credentials."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial

from admin.cluster_reader import ClusterReader
from admin.services.verified_changefeed import EtcdCheckpoints, at_point, known_tables
from changefeed.errors import FencedError
from changefeed.records.requests import ChangefeedId
from changefeed.records.sync_point import PartResult, PassPlace, SyncPoint
from credentials.secrets import expanded
from sink.mongodb.connection import connect as connect_to_target
from source.opening import open_compared
from verify.pass_part import PassPart
from verify.replication import Replication
from verify.table_reader import IdRange, Stopped


class PartComparer:
    """Several changefeeds call it, each for one part at a time."""

    def __init__(self, reader: ClusterReader) -> None:
        self._reader = reader
        self._left: dict[ChangefeedId, tuple[PassPlace, Sequence[IdRange]]] = {}
        """The rest of the table that was not through: a large table is not divided at each point."""

    def __call__(
        self, id: ChangefeedId, point: SyncPoint, place: PassPlace | None, stop: threading.Event
    ) -> PartResult | None:
        info = self._reader.changefeed(id).info
        configuration, at = info.configuration, at_point(self._reader, id, point)
        replication = Replication(
            checkpoints=EtcdCheckpoints(self._reader, id, stop), known=partial(known_tables, self._reader, id), at=at
        )
        left_at, ranges = self._left.pop(id, (None, ()))
        every = configuration.sync_points.every.span.total_seconds() if configuration.sync_points is not None else 0.0
        with (
            closing(open_compared(expanded(configuration.source), info.capture)) as source,
            closing(connect_to_target(expanded(configuration.sink))) as target,
        ):
            part = PassPart(
                configuration=configuration,
                source=source,
                target=target,
                replication=replication,
                ranges=ranges if left_at == place else (),
            )
            try:
                compared = part.run(place, every, stop)
            except Stopped:
                raise FencedError(f"changefeed {id!r}: the comparison was ended") from None
        if compared is not None and compared.place is not None:
            self._left[id] = compared.place, part.left_ranges
        return compared
