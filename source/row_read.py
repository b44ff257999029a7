"""One document of the source, by its key."""

from __future__ import annotations

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableName
from source.connection import Client
from source.errors import translated
from source.raw_find import parse_found
from source.raw_stream import readable

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
_LONGEST_WAIT_MS = 5_000
"""For a primary that was elected a moment ago, and is behind what its predecessor's majority had."""


def read_row(
    client: Client, table: TableName, key: bytes, *, not_before: ClusterTime, wait_ms: int = _LONGEST_WAIT_MS
) -> bytes | None:
    """As the majority has it, at this time or later; None when there is none. Never an older version: that would undo what came since."""
    command = {
        "find": table.coll,
        "filter": RawBSONDocument(key, _RAW),
        "limit": 1,
        "singleBatch": True,
        "readConcern": {"level": "majority", "afterClusterTime": not_before.to_bson()},
        "maxTimeMS": wait_ms,
    }
    with translated(f"reading a row of {table} as it is since {not_before}"):
        try:
            reply = client[table.db].command(command, codec_options=_RAW)
        except OperationFailure as error:
            raise readable(error) from error
    documents = parse_found(bytes(reply.raw)).documents
    return documents[0] if documents else None
