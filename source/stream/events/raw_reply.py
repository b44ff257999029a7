"""`StreamReply`: the server's reply to `aggregate` or `getMore` on a change stream, parsed without decoding its events. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from changefeed.bson_bytes import MalformedBson, documents_of, elements
from changefeed.cluster_time import ClusterTime
from source.stream.events.raw_event import token_of

_INT64 = Struct("<q").unpack
_UINT64 = Struct("<Q").unpack


@dataclass(frozen=True, slots=True)
class StreamReply:
    events: list[bytes]
    resume_token: str | None
    """The post-batch resume token: all later events sort after it."""
    operation_ts: ClusterTime
    """The newest time that a majority had committed when the source answered."""
    cursor_id: int


def parse_reply(raw: bytes) -> StreamReply:
    """From the reply to `aggregate` or `getMore`."""
    cursor_id, token, operation_ts = 0, None, None
    events: list[bytes] = []
    for name, _, at, end in elements(raw):
        if name == b"operationTime":
            operation_ts = ClusterTime.from_int(_UINT64(raw[at:end])[0])
        elif name == b"cursor":
            for field, _, value_at, value_end in elements(raw, at):
                if field == b"id":
                    cursor_id = _INT64(raw[value_at:value_end])[0]
                elif field == b"postBatchResumeToken":
                    token = token_of(raw[value_at:value_end]).decode()
                elif field in (b"nextBatch", b"firstBatch"):
                    events = documents_of(raw, value_at, value_end)
    if operation_ts is None:
        raise MalformedBson("a reply to a change stream without operationTime: the source is no replica set")
    return StreamReply(events, token, operation_ts, cursor_id)
