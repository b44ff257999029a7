"""`ChunkReader`: the documents of one chunk, and the cluster times between which they were read.

**Snapshot** (5.0): `find` with read concern snapshot. The reply gives the time of the snapshot, and all documents are of that time. After
a broken connection the rest is read at the same time, from the last `_id` on. There is no snapshot (`SnapshotLost`) on older servers,
of capped collections, of chunks that take longer than the source keeps snapshots (five minutes), and of tables that were renamed or
dropped meanwhile.

**Watermark**: the majority's time before, a find that waits for that time, the newest time after. The documents contain everything
committed up to the first time, nothing after the second, and possibly some of the changes in between:

    after                   read                    until
    ──┼─────────────────────────────────────────────────┼──▶ changes
      held by the copy        to be replayed on it        new

After the replay every value is exact. A replayed insert or replace contains the whole document, and a delete removes it, so only the
updates after the last of these matter. In their order they set each field that changed in between, so each field ends with the value of
the last of them. If an update does not fit a document that was read later, a later update replaces the part that it did not fit
(`sink/mongodb/rows/write_run.py`). `_id`s never change, so a scan along them misses no document that existed all the time. Only the order
of fields may differ from the source's, for a field that was removed and set again between the times. A watermark read that breaks off
starts over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

import structlog
from bson.errors import BSONError
from pymongo.errors import OperationFailure, PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import raw_document
from changefeed.documents.row_key import LAST_KEY, KeyRange, id_alone
from changefeed.errors import InvariantError, SluiceError, SourceUnavailable
from changefeed.position import Position
from changefeed.table import TableId, TableName
from source.connection import Client
from source.errors import CAPPED_POSITION_LOST, translate
from source.oplog.window import majority_time, newest_time
from source.raw_find import Found, RawFind
from source.tables.row_read import name_of, one_term

_MOST_DOCUMENTS = 5_000
"""In a reply, so that small documents too are read while others are loaded. Large documents fill a reply at 16 MB."""
SNAPSHOTS_SINCE = (5, 0)
_NO_SNAPSHOT = frozenset(
    {
        20,  # IllegalOperation
        72,  # InvalidOptions: this read concern is not possible here
        115,  # CommandNotSupported
        148,  # ReadConcernMajorityNotEnabled
        239,  # SnapshotTooOld
        246,  # SnapshotUnavailable: capped collections, and DDL in between
    }
)


log = structlog.get_logger(__name__)


class SnapshotLost(SourceUnavailable):
    """The chunk has to be read by watermark, from its beginning."""


class MemberBehind(SourceUnavailable):
    """The member that was asked does not have the time yet at which the chunk is to be read."""


class ReadWay(StrEnum):
    SNAPSHOT = "snapshot"
    WATERMARK = "watermark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What to read: the table under its present name, `whole` in natural order, not earlier than `not_before`.

    `only`: another table that has got the name meanwhile is not read. What was read of it would stay where the target's table also holds others.
    """

    table: TableName
    range: KeyRange = field(default_factory=KeyRange)
    whole: bool = False
    not_before: Position
    only: TableId | None = None

    def __str__(self) -> str:
        return f"chunk {self.range} of {self.table}"

    def find_arguments(self, after: bytes | None = None) -> dict[str, Any]:
        """From that key on, if one was read before."""
        if self.whole:
            return {"hint": {"$natural": 1}}
        arguments: dict[str, Any] = {"hint": {"_id": 1}}
        lower = after or (self.range.lower and self.range.lower.raw)
        if lower:
            arguments["min"] = raw_document(lower)
        if self.range.upper is not None:
            arguments["max"] = raw_document(self.range.upper.raw)
        return arguments


class ChunkReader:
    """For one chunk. `after` is known from the first batch on, `until` after the last one."""

    def __init__(
        self, client: Client, chunk: Chunk, way: ReadWay, *, patience: timedelta = timedelta(seconds=30)
    ) -> None:
        self._client = client
        self._chunk = chunk
        self._way = way
        self._patience = patience.total_seconds()
        self._after: ClusterTime | None = None
        self._until: ClusterTime | None = None
        self._last_key: bytes | None = None
        self.ended = False

    def end(self) -> None:
        """Nothing more is needed. `batches` ends, and the times are those of what was read."""
        self.ended = True

    @property
    def after(self) -> ClusterTime:
        return self._known(self._after)

    @property
    def until(self) -> ClusterTime:
        return self._known(self._until)

    def batches(self) -> Iterator[list[bytes]]:
        """Each is one reply of the source: up to 5,000 documents and 16 MB."""
        if self._way is ReadWay.SNAPSHOT:
            yield from self._by_snapshot()
        else:
            yield from self._by_watermark()

    def _known(self, ts: ClusterTime | None) -> ClusterTime:
        if ts is None:
            raise InvariantError(f"{self._chunk}: its time was requested before the chunk was read")
        return ts

    def _by_watermark(self) -> Iterator[list[bytes]]:
        self._after = self._late_enough(majority_time(self._client))
        concern = {"level": "majority", "afterClusterTime": self._after.to_bson()}
        with one_term(self._client, f"reading {self._chunk}"):
            try:
                yield from self._find(concern)
            except (PyMongoError, BSONError) as error:
                raise self._broken_off(error) from error
        self._until = newest_time(self._client)

    def _broken_off(self, error: PyMongoError | BSONError) -> SluiceError:
        if isinstance(error, OperationFailure) and error.code == CAPPED_POSITION_LOST:
            return SourceUnavailable(
                f"reading {self._chunk}: this capped table removed documents before they were read; it is read again from its beginning, which "
                "ends well once the read is faster than the writes; otherwise write less to it meanwhile, or leave it out (filter.tables)"
            )
        return translate(error, f"reading {self._chunk}")

    def _by_snapshot(self) -> Iterator[list[bytes]]:
        concern: dict[str, Any] = {"level": "snapshot"}
        failing_since, failing_at = time.monotonic(), self._last_key
        while True:
            try:
                yield from self._find(concern)
            except (PyMongoError, BSONError, MemberBehind) as error:
                if failing_at != self._last_key:
                    failing_since, failing_at = time.monotonic(), self._last_key
                retry_after = self._resumable(error, time.monotonic() - failing_since)
                time.sleep(retry_after.total_seconds())
                if self._after is not None:
                    concern = {"level": "snapshot", "atClusterTime": self._after.to_bson()}
            else:
                return

    def _resumable(self, error: PyMongoError | BSONError | MemberBehind, failing_seconds: float) -> timedelta:
        if isinstance(error, MemberBehind):
            failure: SluiceError = error
        else:
            failure = translate(error, f"reading {self._chunk} at {self._after}")
        if isinstance(error, OperationFailure) and error.code in _NO_SNAPSHOT:
            raise SnapshotLost(str(failure)) from error
        if not isinstance(failure, SourceUnavailable) or self._chunk.whole or failing_seconds > self._patience:
            raise failure from error
        log.info("chunk_read_on", chunk=str(self._chunk), at=str(self._after), reason=str(failure))
        return failure.retry_after

    def _find(self, concern: dict[str, Any]) -> Iterator[list[bytes]]:
        if self._last_key == LAST_KEY.raw:
            return
        arguments = self._chunk.find_arguments(self._last_key)
        yield from self._replies({**arguments, "readConcern": concern})
        if not self.ended and "min" in arguments and "max" not in arguments:
            if self._way is ReadWay.SNAPSHOT:
                concern = {"level": "snapshot", "atClusterTime": self.after.to_bson()}
            yield from self._replies({"filter": raw_document(LAST_KEY.raw), "readConcern": concern})

    def _replies(self, arguments: dict[str, Any]) -> Iterator[list[bytes]]:
        with RawFind(self._client, self._chunk.table, arguments, most=_MOST_DOCUMENTS) as replies:
            for found in replies:
                if self.ended:
                    return
                if self._way is ReadWay.SNAPSHOT:
                    self._after = self._until = self._time_of(found)
                if not self._has_its_name():
                    self.end()
                    return
                yield self._unseen(found.documents)

    def _has_its_name(self) -> bool:
        """Asked after a reply, so what it has is of the table. A table without its name has no documents, as for a server."""
        only, table = self._chunk.only, self._chunk.table
        return only is None or name_of(self._client, table.db, only, self._chunk.not_before.ts) == table.coll

    def _time_of(self, found: Found) -> ClusterTime:
        """For a name that does not exist, a server finds nothing and gives no time."""
        if found.at_ts is None:
            raise SnapshotLost(f"{self._chunk}: the source did not give the time of the snapshot")
        return self._late_enough(found.at_ts)

    def _unseen(self, documents: list[bytes]) -> list[bytes]:
        """A read that was resumed starts with the last document of the read before. The read of `LAST_KEY` may do so too."""
        if self._chunk.whole or not documents:
            return documents
        if self._last_key is not None and id_alone(documents[0]) == self._last_key:
            documents = documents[1:]
        if documents:
            self._last_key = id_alone(documents[-1])
        return documents

    def _late_enough(self, ts: ClusterTime) -> ClusterTime:
        """After an election a server may be behind the times that its predecessor reported."""
        if Position(ts.next()) < self._chunk.not_before:
            raise MemberBehind(
                f"{self._chunk}: expected the source to be at {self._chunk.not_before}, where the copy starts, found it at {ts}; "
                "the source's member is behind"
            )
        return ts
