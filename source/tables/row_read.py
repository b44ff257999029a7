"""`read_row`: one document of the source, by its key.

A table keeps its UUID but may have been renamed: a find under the old name would report the row as missing. Servers from 6.0 on compare
the UUID in the find itself. On older servers the catalog has to give the same name before and after the find. This misses only two
renames, there and back, within the millisecond between.

`one_term`: makes sure that what was read of the source's catalog is not taken back.

A find sees only documents that the majority has, but it finds the collection by the newest catalog. If a drop or a rename reached the
primary only, the find reads nothing, or another table, and an election takes the DDL back. Then nobody ever hears of it.

    with one_term(client, "reading a chunk of shop.orders"):
        read

Afterwards the majority has everything that the member had written when the block ended, and its primary was the same all along. A change of
primary raises, and so does a majority that does not follow. See docs/why/fencing.md. A router tells no term: there nothing is confirmed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import RAW, raw_document
from changefeed.errors import SourceUnavailable
from changefeed.table import TableId, TableName
from source.connection import Client, deployment_of, read_command
from source.ddl_description import bson_uuid
from source.errors import readable, translated
from source.majority_watch import majority_point
from source.oplog.window import newest_time
from source.raw_find import parse_found

_LONGEST_WAIT_MS = 5_000
"""For a member that is behind the one that showed the change, such as a primary that was just elected."""
_UUID_MISMATCH = 361
_LOOKS = 5


class Row(NamedTuple):
    document: bytes | None
    read_ts: ClusterTime
    """The document is not of a later time."""


def read_row(
    client: Client,
    table: TableName,
    id_: TableId,
    key: bytes,
    *,
    not_before: ClusterTime,
    wait_ms: int = _LONGEST_WAIT_MS,
) -> Row | None:
    """The row as the majority has it, at `not_before` or later: an older version would undo later changes. None if the table is gone."""
    find = {
        "filter": raw_document(key),
        "limit": 1,
        "singleBatch": True,
        "readConcern": {"level": "majority", "afterClusterTime": not_before.to_bson()},
        "maxTimeMS": wait_ms,
    }
    with translated(f"reading a row of {table} at {not_before} or later"):
        guard = {"collectionUUID": bson_uuid(id_)} if deployment_of(client).shows_all_ddl else {}
        for _ in range(_LOOKS):
            name = name_of(client, table.db, id_, not_before)
            if name is None:
                with one_term(client, f"looking for {table}"):
                    name = name_of(client, table.db, id_, not_before)
            if name is None:
                return None
            row = _found(client, table.db, {"find": name, **find, **guard})
            if row is not None and (guard or name_of(client, table.db, id_, not_before) == name):
                return row
    raise SourceUnavailable(f"reading a row of {table}: the collection was renamed at each of {_LOOKS} attempts")


def _found(client: Client, database: str, command: dict[str, Any]) -> Row | None:
    """None if another collection has the name."""
    try:
        reply = read_command(client, database, command, codec_options=RAW)
    except OperationFailure as error:
        if error.code == _UUID_MISMATCH:
            return None
        raise readable(error) from error
    documents = parse_found(bytes(reply.raw)).documents
    return Row(documents[0] if documents else None, ClusterTime.from_bson(reply["operationTime"]))


def name_of(client: Client, database: str, id_: TableId, not_before: ClusterTime) -> str | None:
    """The present name, within the database: a collection that is renamed into another database gets another UUID."""
    command = {"listCollections": 1, "filter": {"info.uuid": bson_uuid(id_)}}
    concern = {"level": "local", "afterClusterTime": not_before.to_bson()}
    named = read_command(client, database, {**command, "readConcern": concern})
    return next((str(found["name"]) for found in named["cursor"]["firstBatch"]), None)


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
