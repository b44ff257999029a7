"""`RawStream`: one change stream over the whole source, read by plain commands whose replies stay bytes.

The driver's own cursor decodes each event on its own and is half as fast. What it does beyond that is done here: one session
for `aggregate` and `getMore`, as the server demands, and the end of the cursor. The client must send both commands to one server:
`connect` sees to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import bson
import structlog
from bson.codec_options import CodecOptions
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from changefeed.cluster_time import ClusterTime
from source.errors import told
from source.raw_reply import Reply, parse_reply

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
_CLUSTER_WIDE = "$cmd.aggregate"

log = structlog.get_logger(__name__)


def readable(error: OperationFailure) -> OperationFailure:
    """The driver put the raw reply into the message."""
    if not isinstance(error.details, RawBSONDocument):
        return error
    details = {name: value for name, value in bson.decode(error.details.raw).items() if not name.startswith("$")}
    return type(error)(details.get("errmsg", ""), error.code, details)


class RawStream:
    """A context manager; opened at `start_ts`, inclusive. Errors are the driver's."""

    def __init__(
        self,
        client: MongoClient[Any],
        *,
        start_ts: ClusterTime,
        options: Mapping[str, object],
        stages: Sequence[Mapping[str, object]],
    ) -> None:
        """`options` are those of `$changeStream`; `stages` follow it."""
        self._client = client
        stream = {"allChangesForCluster": True, "startAtOperationTime": start_ts.to_bson(), **options}
        self._pipeline = [{"$changeStream": stream}, *stages]
        self._session = client.start_session(causal_consistency=False)
        self._cursor_id = 0

    def __enter__(self) -> Self:
        try:
            self._cursor_id = self._run(
                {
                    "aggregate": 1,
                    "pipeline": self._pipeline,
                    "cursor": {"batchSize": 0},
                    "readConcern": {"level": "majority"},
                }
            ).cursor_id
        except BaseException:
            self._session.end_session()
            raise
        return self

    @property
    def open(self) -> bool:
        return self._cursor_id != 0

    def next(self, *, await_ms: int, most: int | None = None) -> Reply:
        """Up to 16 MB of events; none when none came in time, or when the server stopped scanning to say how far it is."""
        more = {"getMore": Int64(self._cursor_id), "collection": _CLUSTER_WIDE, "maxTimeMS": await_ms}
        reply = self._run(more if most is None else {**more, "batchSize": most})
        self._cursor_id = reply.cursor_id
        return reply

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._cursor_id and not isinstance(error, PyMongoError):
                cursors = [Int64(self._cursor_id)]
                self._client.admin.command({"killCursors": _CLUSTER_WIDE, "cursors": cursors}, session=self._session)
        except PyMongoError as failed:
            log.info("cursor_left_to_its_timeout", cursor=self._cursor_id, reason=told(failed))
        finally:
            self._cursor_id = 0
            self._session.end_session()

    def _run(self, command: dict[str, object]) -> Reply:
        try:
            reply = self._client.admin.command(command, codec_options=_RAW, session=self._session)
        except OperationFailure as error:
            raise readable(error) from error
        return parse_reply(bytes(reply.raw))
