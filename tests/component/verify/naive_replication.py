"""A replication with a lag, for a verification that runs at the same time."""

from __future__ import annotations

import random
import threading
from collections.abc import Collection
from datetime import timedelta
from itertools import count
from typing import Any, Self

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId
from source.resume_token import position_of
from tests.component.verify.verified import Sides
from verify.comparison import Passed

_LAG_SECONDS = 0.3
_PACE_SECONDS = 0.03


class _Worker:
    """A thread that runs between enter and exit."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._watched, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self._thread.join()
        if self._failed:
            raise self._failed[0]

    def _watched(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - raised at exit
            self._failed.append(error)

    def run(self) -> None:
        raise NotImplementedError


class Writer(_Worker):
    """Writes new values to random documents, slower than a naive replication copies them."""

    def __init__(self, sides: Sides, coll: str, keys: int) -> None:
        super().__init__()
        self._collection = sides.source[coll]
        self._keys = keys
        self.begun = threading.Event()

    def run(self) -> None:
        chance = random.Random(7)
        for number in count():
            key = {"_id": chance.randrange(self._keys)}
            if chance.random() < 0.3:
                self._collection.delete_one(key)
            else:
                self._collection.update_one(key, {"$set": {"value": number}}, upsert=True)
            self.begun.set()
            if self.stopping.wait(_PACE_SECONDS):
                return


class NaiveReplication(_Worker):
    """Copies documents to the target some time after their events, except the `lost` keys; reports its checkpoint."""

    def __init__(self, sides: Sides, *, lost: Collection[Any] = ()) -> None:
        super().__init__()
        self._sides = sides
        self._lost = lost
        self._checkpoint: Position | None = None
        self._moved = threading.Condition()
        self._stream = sides.source.watch(max_await_time_ms=50)

    def wait_past(self, passed_ts: ClusterTime, tables: Collection[TableId], patience: timedelta) -> Passed:
        with self._moved:
            passed = self._moved.wait_for(
                lambda: self._checkpoint is not None and self._checkpoint.ts > passed_ts, patience.total_seconds()
            )
        return Passed.PASSED if passed else Passed.OVERDUE

    def run(self) -> None:
        with self._stream:
            while not self.stopping.wait(_LAG_SECONDS):
                while (event := self._stream.try_next()) is not None:
                    self._apply(event)
                token = self._stream.resume_token
                assert token is not None
                with self._moved:
                    self._checkpoint = position_of(token["_data"])
                    self._moved.notify_all()

    def _apply(self, event: dict[str, Any]) -> None:
        if "documentKey" not in event or event["documentKey"]["_id"] in self._lost:
            return
        key, coll = event["documentKey"], event["ns"]["coll"]
        now = self._sides.source[coll].find_one(key)
        if now is None:
            self._sides.target[coll].delete_one(key)
        else:
            self._sides.target[coll].replace_one(key, now, upsert=True)
