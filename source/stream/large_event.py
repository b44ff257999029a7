"""`LargeEvents`: change events that are larger than a reply can be, read in parts.

An event repeats the `_id`: in the document, in the `documentKey`, and at twice its size in the resume token, which is hexadecimal. So a
document of 16 MB with an `_id` of 9 KB makes an event that no server can show (the limit is 16 MB and 16 KB) or split:
`$changeStreamSplitLargeEvent` keeps each field of an event whole, in one fragment. An event with two images is too large as well on a
server that lacks that stage (before 6.0.9).

Only the result of a `$project` has to fit into a reply. So the event is read in parts, each by its own stream that shows one event:

    operationType, ns, documentKey, ...     the header
    fullDocument without _id                the `_id` is added from the key, in first place, as in a stored document
    fullDocumentBeforeChange without _id
    updateDescription

The parts of one event have the same resume token, which is compared. From 5.0 on the token counts towards the size of the reply, so a
value of 16 MB does not fit beside an `_id` of more than 4 KB. It is then read from the oplog (`logged_content`).
If that fails too, the event has no content, and is an error if it is wanted.

`logged_content`: the content of one large event from its entry in the oplog, if the entry alone determines it exactly.

    entry                              event
    i, o: a document                   insert: fullDocument
    u, o: a document with an _id       replace: fullDocument
    u, o: a diff                       update: updateDescription, as `source.oplog.update` tells it

In a transaction it is one of the operations in its entries, and has to be the only one on its document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import bson
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError, ServerSelectionTimeoutError

from changefeed.bson_bytes import STRING, document_of, element, elements, fields_of, string
from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import key_text
from changefeed.errors import EventTooLarge, HistoryLost, InvariantError, SourceUnavailable
from source.connection import Client
from source.errors import EVENT_TOO_LARGE, error_text, is_refusal
from source.oplog.command_entry import CommandEntry, is_command
from source.oplog.find import entry_at, operations
from source.oplog.update import UnknownUpdate, description, is_replacement
from source.raw_row import Header
from source.stream.change_event import scan, table_name
from source.stream.raw_stream import RawStream

_AWAIT_MS = 500
_ATTEMPTS = 20
_LOSSES = 3
_LONGEST_ANSWER = 200
_NAMES = ("operationType", "clusterTime", "collectionUUID", "ns")
_HEADER = (*_NAMES, "wallTime", "documentKey")
_DOCUMENTS = ("fullDocument", "fullDocumentBeforeChange")
_DELTA = "updateDescription"
Stage: TypeAlias = Mapping[str, object]
_Place: TypeAlias = tuple[ClusterTime, str | None]
_Sizes: TypeAlias = Mapping[str, int]
_MOST_BYTES = (16 << 20) + (15 << 10)
"""The limit for a value and two tokens in one reply. A reply may have 16 MB and 16 KB; its other content has some hundred bytes."""


def too_large(error: Exception) -> bool:
    return isinstance(error, OperationFailure) and error.code in EVENT_TOO_LARGE


def connection_lost(error: Exception) -> bool:
    """Whether a server that was available closed the connection."""
    return isinstance(error, AutoReconnect) and not isinstance(error, ServerSelectionTimeoutError)


def after_token(token: str) -> Stage:
    """Tokens of one stream are sorted as text."""
    return {"$match": {"_id._data": {"$gt": token}}}


@dataclass(frozen=True, slots=True)
class LargeEvent:
    """`unreadable` says why the event lacks its content or its key. It is empty if the event is whole."""

    event: bytes
    unreadable: str = ""


class _TooLarge(Exception):
    """Even a part is too large. `certain`: the server said so. Otherwise it repeatedly closed the connection, but answered other commands."""

    def __init__(self, said: str, *, certain: bool) -> None:
        super().__init__(said)
        self.certain = certain


@dataclass(frozen=True, slots=True)
class LargeEvents:
    client: Client
    options: Mapping[str, object]
    """The options of `$changeStream`."""
    stages: Sequence[Stage]
    """They select the wanted events."""
    last_stages: Sequence[Stage]
    """The same as in the main stream: a stream that splits large events has other tokens than one that does not (6.0.27)."""
    measured: bool
    """Whether to read the sizes first: from 5.0 on, where a reply that becomes too large ends the connection."""

    def first(self, start_ts: ClusterTime, after: str | None) -> LargeEvent:
        """The first wanted event at `start_ts` or later, and after the event with the token `after`."""
        place = (start_ts, after)
        try:
            head, sizes = self._head(place)
        except _TooLarge as error:
            return self._without_key(place, error)
        try:
            return LargeEvent(self._with_content(place, head, sizes))
        except _TooLarge as error:
            return LargeEvent(head, _unreadable(head, error))

    def _head(self, place: _Place) -> tuple[bytes, _Sizes]:
        names = (*_DOCUMENTS, _DELTA) if self.measured else ()
        measuring = {f"{name}Bytes": {"$bsonSize": f"${name}"} for name in names}
        head = self._part(place, [{"$project": dict.fromkeys(_HEADER, 1) | measuring}])
        fields = fields_of(head)
        sizes = bson.decode(document_of([fields.pop(name.encode()) for name in measuring if name.encode() in fields]))
        return document_of(list(fields.values())), {name: sizes.get(f"{name}Bytes") or 0 for name in names}

    def _without_key(self, place: _Place, reason: _TooLarge) -> LargeEvent:
        try:
            head = self._part(place, [_keeping(*_NAMES)])
        except _TooLarge as error:
            named = large_key_entry(self.client, place[0])
            if named is None and not error.certain:
                raise SourceUnavailable(f"reading a change at {place[0]} or soon after in parts: {error}") from error
            change = named or f"a change at {place[0]} or soon after"
            raise EventTooLarge(f"{change}: {_PROBLEM} ({error}). {_REMEDY}") from error
        return LargeEvent(head, _unreadable(head, reason))

    def _with_content(self, place: _Place, head: bytes, sizes: _Sizes) -> bytes:
        header, found = scan(head), fields_of(head)
        id_ = fields_of(header.key)[b"_id"]
        for name in (*_DOCUMENTS, _DELTA):
            part = self._content(place, header, name, id_, sizes.get(name, 0))
            if part is not None:
                found[name.encode()] = b"\x03" + name.encode() + b"\0" + part
        return document_of(list(found.values()))

    def _content(self, place: _Place, header: Header, name: str, id_: bytes, size: int) -> bytes | None:
        without_id = [] if name == _DELTA else [{"$project": {f"{name}._id": 0}}]
        try:
            if size - len(without_id) * len(id_) + 2 * len(header.token) > _MOST_BYTES:
                said = f"{name} has {size} bytes, and a reply contains twice its resume token of {len(header.token)}"
                raise _TooLarge(said, certain=True)
            part = self._field(place, header, name, _keeping(name), *without_id)
        except _TooLarge as error:
            if not error.certain:
                raise SourceUnavailable(f"reading {_change(header)} in parts: {error}") from error
            wanted = _DELTA if header.type == b"update" else "fullDocument"
            logged = logged_content(self.client, header) if name == wanted else None
            if logged is None:
                raise
            return logged
        return document_of([id_, *fields_of(part).values()]) if part is not None and without_id else part

    def _field(self, place: _Place, header: Header, name: str, *projections: Stage) -> bytes | None:
        event = self._part(place, projections)
        if scan(event).token != header.token:
            raise SourceUnavailable(f"{_change(header)}: its parts were read from different events")
        for field, _, at, end in elements(event):
            if field == name.encode():
                return event[at:end]
        return None

    def _part(self, place: _Place, projections: Sequence[Stage]) -> bytes:
        for attempt in range(_LOSSES):
            try:
                return self._shown(place, projections)
            except OperationFailure as error:
                if not too_large(error):
                    raise
                raise _TooLarge(_briefly(error), certain=True) from error
            except AutoReconnect as error:
                if not connection_lost(error):
                    raise
                if attempt == _LOSSES - 1:
                    raise _TooLarge(_briefly(error), certain=False) from error
                self.client.admin.command("ping")
        raise InvariantError("every attempt ends by itself")

    def _shown(self, place: _Place, projections: Sequence[Stage]) -> bytes:
        start_ts, after = place
        later = [after_token(after)] if after is not None else []
        stages = [*self.stages, *later, *projections, *self.last_stages]
        with RawStream(self.client, start_ts=start_ts, options=self.options, stages=stages) as stream:
            attempts = 0
            while attempts < _ATTEMPTS:
                reply = stream.next(await_ms=_AWAIT_MS, most=1)
                if reply is not None and reply.events:
                    return reply.events[0]
                attempts += reply is not None
        raise SourceUnavailable(
            f"an event at {start_ts} or later is too large to be shown whole, and the source did not show its parts"
        )


def _keeping(*names: str) -> Stage:
    return {"$project": dict.fromkeys(names, 1)}


def _briefly(error: PyMongoError) -> str:
    """Shortened: the server's message repeats the beginning of the value that it could not send."""
    text = error_text(error)
    return text if len(text) <= _LONGEST_ANSWER else f"{text[:_LONGEST_ANSWER]}..."


def _change(header: Header) -> str:
    key = f" {key_text(header.key)}" if header.key else ", its _id has megabytes,"
    return f"{header.type.decode()} of {table_name(header.ns)}{key} at {header.position.ts}"


def _unreadable(head: bytes, error: _TooLarge) -> str:
    return f"{_change(scan(head))}: {_PROBLEM} ({error}). {_REMEDY}"


_PROBLEM = "its change event is larger than the 16 MB that a change stream can show, and so is a part of it"
_REMEDY = (
    "Take its table out of the filter, or remove the changefeed and create it again with --start initial: "
    "a copy can contain documents of any size"
)


_OPERATIONS = {b"insert": b"i", b"replace": b"u", b"update": b"u"}
_LARGE_KEY = 2 << 20


def logged_content(client: Client, header: Header) -> bytes | None:
    """A raw document or `updateDescription`. None if the oplog may not be read, or does not determine the content."""
    if client.is_mongos or header.type not in _OPERATIONS:
        return None
    try:
        logged = _logged(client, header)
        if logged is None or is_replacement(logged) == (header.type == b"update"):
            return None
        return description(logged) if header.type == b"update" else logged
    except (HistoryLost, UnknownUpdate):
        return None
    except OperationFailure as error:
        if is_refusal(error):
            return None
        raise


def _logged(client: Client, header: Header) -> bytes | None:
    """`o` of the only operation on the document at that time."""
    last = entry_at(client, header.position.ts, None)
    made: Iterable[bytes] = (last,)
    if is_command(last):
        made = (each for each, _ in operations(partial(entry_at, client), CommandEntry.of(last)))
    name, key = str(table_name(header.ns)).encode(), fields_of(header.key)[b"_id"]
    found = []
    for fields in map(fields_of, made):
        identity = fields.get(b"o2", fields[b"o"]).partition(b"\0")[2]
        if fields[b"ns"] == element(STRING, b"ns", string(name)) and fields_of(identity).get(b"_id") == key:
            found.append(fields)
    if len(found) != 1 or found[0][b"op"] != element(STRING, b"op", string(_OPERATIONS[header.type])):
        return None
    return found[0][b"o"].partition(b"\0")[2]


def large_key_entry(client: Client, start_ts: ClusterTime) -> str | None:
    """A text about the first change from there on whose `_id` has megabytes. None if there is none, or if the oplog may not be read."""
    if client.is_mongos:
        return None
    key = {"$bsonSize": {"$ifNull": ["$o2", "$o"]}}
    long = {"$cond": [{"$in": ["$op", ["i", "u", "d"]]}, {"$gt": [key, _LARGE_KEY]}, False]}
    try:
        found = client["local"]["oplog.rs"].find_one(
            {"ts": {"$gte": start_ts.to_bson()}, "$expr": long},
            {"ts": 1, "ns": 1, "op": 1, "bytes": key},
            sort=[("$natural", 1)],
        )
    except OperationFailure as error:
        if is_refusal(error):
            return None
        raise
    if found is None:
        return None
    kind = {"i": "insert", "u": "update", "d": "delete"}[found["op"]]
    return f"{kind} of {found['ns']}, its key has {found['bytes']} bytes, at {ClusterTime.from_bson(found['ts'])}"
