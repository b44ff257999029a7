"""`Commander`: sends one command at a time, retries transient errors, and sends nothing after its permit has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

import pymongo
from bson import ObjectId
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError
from pymongo.write_concern import WriteConcern

from changefeed.cluster_time import ClusterTime, MajorityPoint
from changefeed.documents.document import RAW, STRICT
from changefeed.errors import (
    Divergence,
    FencedError,
    InvariantError,
    RetryableError,
    RowRejected,
    SinkMajorityStalled,
    SinkUnavailable,
    SluiceError,
)
from sink.mongodb.connection import LATE, Client, majority_point, stalled, stalled_at, write_time
from sink.mongodb.target_errors import translate
from sink.sink import Permit

_REPLY = STRICT.with_options(unicode_decode_error_handler="replace")
"""A server quotes keys."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_SAY_WHEN = frozenset({"insert", "update", "delete"})
"""Commands whose answers tell the time and the term of the write."""
_MAJORITY_WAIT, _MAJORITY_PAUSE = 2.0, 0.1
"""The wait inside a write, then the pause between two reads of the majority commit point."""

_T = TypeVar("_T")

Send: TypeAlias = Callable[[str, dict[str, Any]], RawBSONDocument]
"""Sends a command to a database; raises the target's errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReply:
    """`again`: the command was sent more than once, and an earlier attempt may have been applied."""

    document: Mapping[str, Any]
    results: list[Mapping[str, Any]]
    again: bool


class TakesTooLong(Exception):
    """The target is reachable, but did not finish a command in the available time; any part of it may have been applied."""


class Commander:
    def __init__(
        self,
        client: Client,
        *,
        permit: Permit,
        retry_for: timedelta,
        patience: timedelta,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """`retry_for` limits the time after `begin` in which commands are tried again, `patience` the time without any success."""
        self._client = client
        self._permit = permit
        self._retry_seconds = retry_for.total_seconds()
        self._patience_seconds = patience.total_seconds()
        self._failing_since: float | None = None
        self._pause = pause
        self._deadline = 0.0
        self._defers = False
        self._deferred: tuple[ClusterTime, int] | None = None
        """Time and term of the newest write that the majority has yet to confirm."""
        self.retries = 0
        self.waits: list[float] = []
        """Seconds that small writes took, and that waits for the majority did."""

    def begin(self) -> None:
        """Starts the time for retries."""
        self._deadline = time.monotonic() + self._retry_seconds
        self._failing_since = None
        self.retries, self.waits = 0, []

    def go_on(self) -> None:
        """Restarts the time for retries, after a part of a slow batch, or one of many rows, has been applied or looked at."""
        self._deadline = time.monotonic() + self._retry_seconds

    @contextmanager
    def confirming_together(self, database: str) -> Iterator[None]:
        """Writes within the block do not wait for the majority each: the block ends when the majority has all of them. Only for a replica set.

        A majority that has a write has all earlier writes of the same primary. If another primary was elected meanwhile, some may be lost:
        that is an error, and all have to be written again.
        """
        self._defers, self._deferred = True, None
        try:
            yield
        except (Divergence, RowRejected):
            self._confirm(database)  # an answer of a primary that lost its writes may be wrong
            raise
        else:
            self._confirm(database)
        finally:
            self._defers, self._deferred = False, None

    def _confirm(self, database: str) -> None:
        """By a delete without a match, which waits for everything that the primary has, and creates nothing."""
        self._defers = False
        if self._deferred is None:
            return
        nothing = [{"q": {"_id": ObjectId()}, "limit": 1}]
        command = {"delete": "sluice.majority", "deletes": nothing, "writeConcern": {"w": "majority"}}
        doing = "waiting until the majority has the rows"
        begun_at = time.monotonic()
        self._same_primary(self.send(database, command, doing).document, doing)
        self.waits.append(time.monotonic() - begun_at)

    def _is_deferred(self, command: Mapping[str, Any]) -> bool:
        return self._defers and next(iter(command)) in _SAY_WHEN and "writeConcern" in command

    def _same_primary(self, reply: Mapping[str, Any], doing: str) -> None:
        written = write_time(reply)
        if written is None:
            raise InvariantError(
                f"{doing}: expected the time of the write in the answer of a replica set, observed none"
            )
        if self._deferred is not None and self._deferred[1] != written[1]:
            raise SinkUnavailable(
                f"{doing}: the target elected another primary before its majority had the write at {self._deferred[0]}"
            )
        self._deferred = written

    def send(self, database: str, command: dict[str, Any], doing: str, *, divisible: bool = False) -> TargetReply:
        """A `divisible` command that takes too long is not sent again: it raises `TakesTooLong`."""
        (document, results), again = self._patiently(lambda: self._once(database, command, doing), divisible=divisible)
        if self._is_deferred(command):
            self._same_primary(document, doing)
        return TargetReply(document=document, results=results, again=again)

    def attempt(self, database: str, command: dict[str, Any], doing: str) -> TargetReply:
        """Sends once, in any thread."""
        document, results = self._once(database, command, doing)
        return TargetReply(document=document, results=results, again=False)

    def take(self, reply: TargetReply, doing: str) -> None:
        """The answer of an `attempt` counts from here on."""
        self._failing_since = None
        if self._defers:
            self._same_primary(reply.document, doing)

    def found(self, find: tuple[str, dict[str, Any]], doing: str) -> list[RawBSONDocument]:
        """The first batch of a `find`, as raw bytes."""
        found, _ = self._patiently(lambda: self._found(*find, doing))
        return found

    def glance(self, find: tuple[str, dict[str, Any]], doing: str) -> list[RawBSONDocument] | None:
        """Like `found`, but in one attempt. None while the target does not answer, for what can wait."""
        try:
            return self._found(*find, doing)
        except RetryableError:
            return None

    def together(self, work: Callable[[Send], None], doing: str) -> None:
        """Sends the commands of `work` in one transaction. A second attempt may find that the first was applied."""
        self._patiently(lambda: self._in_transaction(work, doing))

    def _patiently(self, act: Callable[[], _T], *, divisible: bool = False) -> tuple[_T, bool]:
        """Also returns whether there was more than one attempt."""
        attempt = 0
        while True:
            try:
                done = act()
            except SinkMajorityStalled:
                raise  # the wait for the majority is over, and the primary has the write: sending it again would not help
            except SinkUnavailable as error:
                if divisible and _slow(error) and time.monotonic() < self._deadline:
                    raise TakesTooLong from error
                self.wait(attempt, error)
                attempt += 1
            else:
                self._failing_since = None
                return done, attempt > 0

    def wait(self, attempt: int, error: RetryableError) -> None:
        """Pauses before the next attempt; raises the error when there is no time for one."""
        pause = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
        now = time.monotonic()
        if self._failing_since is None or _slow(error):
            self._failing_since = now
        if now + pause >= min(self._deadline, self._failing_since + self._patience_seconds):
            raise error
        self.retries += 1
        self._pause(pause)

    def _once(
        self, database: str, command: dict[str, Any], doing: str
    ) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
        seconds = self._seconds(doing)
        try:
            with pymongo.timeout(seconds), self._client.start_session() as session:
                bounded = (
                    {**command, "writeConcern": {"w": 1}} if self._is_deferred(command) else _bounded(command, seconds)
                )
                document = self._client[database].command(bounded, session=session, codec_options=_REPLY)
                results = self._results(document, session)
        except (PyMongoError, BSONError) as error:
            raise self._translated(error, doing) from error
        if concern := document.get("writeConcernError"):
            if concern.get("code") not in LATE:
                raise SinkUnavailable(f"{doing}: not durable yet: {concern.get('errmsg')} (code {concern.get('code')})")
            self._await_majority(document, doing)
        return document, results

    def _await_majority(self, reply: Mapping[str, Any], doing: str) -> None:
        """Waits until the majority has the primary's write, without sending it again. It waits as long as the majority makes progress."""
        written = write_time(reply)
        if written is None:
            raise stalled(self._client, doing)
        seen_ts, moved_at = None, time.monotonic()
        while not (point := self._majority(doing)).has(*written):
            now = time.monotonic()
            if point.term > written[1]:
                raise SinkUnavailable(f"{doing}: the target elected another primary before its majority had this write")
            if point.majority_ts != seen_ts:
                seen_ts, moved_at = point.majority_ts, now
            if now >= min(self._deadline, moved_at + self._patience_seconds):
                raise stalled_at(point, doing)
            self._pause(_MAJORITY_PAUSE)

    def _majority(self, doing: str) -> MajorityPoint:
        try:
            point = majority_point(self._client)
        except (PyMongoError, BSONError) as error:
            raise self._translated(error, doing) from error
        if point is None:
            raise stalled_at(None, doing)
        return point

    def _seconds(self, doing: str) -> float:
        """The time limit of a command, on the server too, so that nothing is applied after the permit has ended."""
        allowed = self._permit()
        if allowed <= 0:
            raise FencedError(f"{doing}: the permit to write has ended; another node may have the table")
        return min(allowed, max(self._deadline - time.monotonic(), _FIRST_PAUSE))

    def _found(self, database: str, command: dict[str, Any], doing: str) -> list[RawBSONDocument]:
        try:
            with pymongo.timeout(self._seconds(doing)):
                reply = self._client[database].command(command, codec_options=RAW)
                return list(reply["cursor"]["firstBatch"])
        except (PyMongoError, BSONError) as error:
            raise self._translated(error, doing) from error

    def _in_transaction(self, work: Callable[[Send], None], doing: str) -> None:
        try:
            with pymongo.timeout(self._seconds(doing)), self._client.start_session() as session:

                def send(database: str, command: dict[str, Any]) -> RawBSONDocument:
                    reply = self._client[database].command(command, session=session, codec_options=RAW)
                    for error in reply.get("writeErrors", ()):
                        raise OperationFailure(str(error["errmsg"]), error["code"])
                    return reply

                with session.start_transaction(write_concern=WriteConcern("majority")):
                    work(send)
        except (PyMongoError, BSONError) as error:
            if isinstance(error, PyMongoError) and error.timeout:
                self._raise_if_majority_late(session, doing)
            raise self._translated(error, doing) from error

    def _raise_if_majority_late(self, session: ClientSession, doing: str) -> None:
        """The driver sends no `wtimeout` with a commit, so only its own time limit ends the wait. The majority is checked afterwards."""
        point = self._majority(doing)
        begun = session.operation_time
        if begun is not None and point.majority_ts < ClusterTime.from_bson(begun):
            raise stalled_at(point, doing)

    def _results(self, document: Mapping[str, Any], session: Any) -> list[Mapping[str, Any]]:
        """All documents of a `bulkWrite`'s cursor."""
        cursor = document.get("cursor")
        if cursor is None:
            return []
        results = list(cursor["firstBatch"])
        while cursor["id"]:
            database, _, collection = cursor["ns"].partition(".")
            more = {"getMore": cursor["id"], "collection": collection}
            cursor = self._client[database].command(more, session=session, codec_options=_REPLY)["cursor"]
            results += cursor["nextBatch"]
        return results

    @staticmethod
    def _translated(error: Exception, doing: str) -> SluiceError:
        return translate(error, doing=doing, refused=RowRejected)


def _bounded(command: dict[str, Any], seconds: float) -> dict[str, Any]:
    """With a `wtimeout` that ends before the driver's time limit, so that the target reports a late majority."""
    concern = command.get("writeConcern")
    return command if concern is None else {**command, "writeConcern": {**concern, "wtimeout": _wait_ms(seconds)}}


def _wait_ms(seconds: float) -> int:
    return max(1, int(1000 * min(_MAJORITY_WAIT, seconds / 2)))


def _slow(error: RetryableError) -> bool:
    """Whether the target was reachable and a command exceeded its time limit."""
    cause = error.__cause__
    return isinstance(cause, PyMongoError) and cause.timeout and not isinstance(cause, ServerSelectionTimeoutError)
