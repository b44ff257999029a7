"""`RawStream`: one change stream over the whole source, read by plain commands whose replies stay bytes.

The driver's own cursor decodes each event and is half as fast. Its other duties are done here: one session for `aggregate` and
`getMore`, as the server requires, and the end of the cursor. The client must send both commands to one server: `connect` ensures it.

A server that has much to skip answers after minutes, and nothing limits that (`maxTimeMS` limits the wait at the end of the oplog). So:

- **Long scans are done by `aggregate`.** Servers from 4.2 on end that command when its client's connection closes: 0.3 s after kill -9 on
  4.4.2, 5.0.4 and 6.0.5. A `getMore` would run to its end there, with no reader. Each aggregate resumes after the last reply's token:

        aggregate from a time       16 MB of events         far from the end of the oplog
        aggregate after its token   9 MB of events          at the end
        getMore                     waits for more          it has at most some seconds' writes to look through

- If an aggregate does not answer for seconds, the stream is read in steps, from one event to the next: heartbeats are such events. An
  aggregate of 6.0 cannot do that, since it collects 4 MB of matches before it answers. So steps are taken by getMore. A step takes at most
  15 s; then the stream is read by an aggregate again, to the end (`read_size.py`).
- The command runs in its own thread, and `next` returns None each second, so that the caller can do other work or give up.
- A command does not fail while the server works on it. Every ten seconds the server is asked, on another connection, whether it still
  runs the operation. If it does not, twice, the reply was lost with the connection. The driver's monitor closes the connection to a server
  that is gone.
- A command that is given up is killed with its session, on another connection. This needs no privilege.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any, Self, TypeVar

import structlog
from bson.int64 import Int64
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import RAW
from changefeed.errors import SourceUnavailable
from source.errors import error_text, readable
from source.read_size import BatchSize
from source.resume_token import cluster_ts_of
from source.stream.change_event import StreamReply, parse_reply

_CLUSTER_WIDE = "$cmd.aggregate"
COMMENT = "sluice"
"""Marks Sluice's streams in `$currentOp`."""

_SILENCE_SECONDS = 1.0
_LOOK_EVERY_SECONDS = 10.0
_ENDING_SECONDS = 5.0
_NEAR_SECONDS = 1
_FRESH_SECONDS = 5.0
_LOOKS = 2

log = structlog.get_logger(__name__)


class RawStream:
    """A context manager. The first `next` starts at `start_ts`, inclusive. Errors are the driver's, and `SourceUnavailable`."""

    def __init__(
        self,
        client: MongoClient[Any],
        *,
        start_ts: ClusterTime,
        options: Mapping[str, object],
        stages: Sequence[Mapping[str, object]],
        batch_size: BatchSize | None = None,
    ) -> None:
        """`options` are those of `$changeStream`; `stages` follow it."""
        self._client = client
        self._place: dict[str, object] = {"startAtOperationTime": start_ts.to_bson()}
        self._options = options
        self._stages = stages
        self._batch_size = batch_size or BatchSize()
        self._batch_size.opened()
        self._session = client.start_session(causal_consistency=False)
        self._cursor_id = 0
        self._near = False
        self._command: Future[StreamReply] | None = None
        self._asked_at = self._answered_at = 0.0
        self._look_at = 0.0
        self._looks_left = _LOOKS

    def __enter__(self) -> Self:
        return self

    def next(self, *, await_ms: int, most: int | None = None) -> StreamReply | None:
        """Up to 16 MB of events; no events if the oplog ended and none came in time. None: the server is still working, call again."""
        if self._command is None:
            self._begin(self._more(await_ms, most) if self._goes_on() else self._opening(most))
        command, now = self._command, time.monotonic
        assert command is not None
        if not _ended(command, _SILENCE_SECONDS):
            if most is None and self._batch_size.too_slow(now() - self._asked_at):
                self._give_up(command)
            else:
                self._look(now())
            return None
        self._command = None
        self._cursor_id = 0  # a cursor that failed is gone
        reply = command.result()
        self._answered_at = now()
        if reply.events and most is None:
            self._batch_size.answered(self._answered_at - self._asked_at)
        self._take(reply)
        return reply

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves nothing at the source, except a session that is still in use: the server ends it."""
        if self._command is not None:
            self._give_up(self._command)
        self._kill_cursor()
        if self._command is None:
            self._session.end_session()

    def _begin(self, command: dict[str, object]) -> None:
        self._asked_at = time.monotonic()
        self._look_at, self._looks_left = self._asked_at + _LOOK_EVERY_SECONDS, _LOOKS
        self._command = in_a_thread(partial(self._run, command))

    def _goes_on(self) -> bool:
        """Whether the cursor may scan the rest: because it is little, or because it is read in steps."""
        fresh = self._near and time.monotonic() - self._answered_at < _FRESH_SECONDS
        return self._cursor_id != 0 and (fresh or self._batch_size.in_steps)

    def _opening(self, most: int | None) -> dict[str, object]:
        self._kill_cursor()
        stream = {"allChangesForCluster": True, **self._place, **self._options}
        if most is None:
            most = 0 if self._batch_size.in_steps else self._batch_size.events
        return {
            "aggregate": 1,
            "pipeline": [{"$changeStream": stream}, *self._stages],
            "cursor": {"batchSize": most},
            "readConcern": {"level": "majority"},
            "comment": COMMENT,
        }

    def _more(self, await_ms: int, most: int | None) -> dict[str, object]:
        more = {"getMore": Int64(self._cursor_id), "collection": _CLUSTER_WIDE, "maxTimeMS": await_ms}
        if most is None and self._batch_size.in_steps:
            most = self._batch_size.events
        return more if most is None else {**more, "batchSize": most}

    def _take(self, reply: StreamReply) -> None:
        self._cursor_id = reply.cursor_id
        self._near = not reply.events
        if reply.resume_token is not None:
            self._place = {"resumeAfter": {"_data": reply.resume_token}}
            left = reply.operation_ts.seconds - cluster_ts_of(reply.resume_token).seconds
            self._near = self._near or left <= _NEAR_SECONDS

    def _look(self, now: float) -> None:
        """A server that answers but does not run the operation has ended it: its reply is on the way, or lost."""
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY_SECONDS
        if self._runs():
            self._looks_left = _LOOKS
            return
        self._looks_left -= 1
        if not self._looks_left:
            raise SourceUnavailable(
                f"the source has ended a read of its change stream, but no reply came in {now - self._asked_at:.0f} s: the connection is lost"
            )

    def _runs(self) -> bool:
        stages = [
            {"$currentOp": {"localOps": True} if self._client.is_mongos else {}},
            {"$match": {"lsid.id": self._session.session_id["id"]}},
            {"$limit": 1},
        ]
        try:
            found = self._client.admin.command({"aggregate": 1, "pipeline": stages, "cursor": {}})
        except OperationFailure as error:
            log.info("source_operation_not_seen", reason=error_text(error))
            return True
        return bool(found["cursor"]["firstBatch"])

    def _give_up(self, command: Future[StreamReply]) -> None:
        """The end of the session removes the command's cursor too, if there is one."""
        session = self._session.session_id["id"]
        try:
            self._client.admin.command({"killSessions": [{"id": session}]})
        except PyMongoError as failed:
            log.warning("source_operation_not_killed", session=str(session), reason=error_text(failed))
        self._cursor_id = 0
        if _ended(command, _ENDING_SECONDS):
            self._command = None
        else:
            log.warning("source_operation_does_not_end", session=str(session))

    def _kill_cursor(self) -> None:
        cursor, self._cursor_id = self._cursor_id, 0
        if cursor == 0:
            return
        try:
            self._client.admin.command(
                {"killCursors": _CLUSTER_WIDE, "cursors": [Int64(cursor)]}, session=self._session
            )
        except PyMongoError as failed:
            log.info("cursor_left_to_its_timeout", cursor=cursor, reason=error_text(failed))

    def _run(self, command: dict[str, object]) -> StreamReply:
        try:
            reply = self._client.admin.command(command, codec_options=RAW, session=self._session)
        except OperationFailure as error:
            raise readable(error) from error
        return parse_reply(bytes(reply.raw))


T = TypeVar("T")


def in_a_thread(send: Callable[[], T]) -> Future[T]:
    """Starts at once. Its thread ends with the command, even if the caller no longer waits for it."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(send())
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: raised to who asks for the answer
            answer.set_exception(error)

    threading.Thread(target=run, name="source-command", daemon=True).start()
    return answer


def _ended(command: Future[T], within: float) -> bool:
    wait([command], within, FIRST_COMPLETED)
    return command.done()
