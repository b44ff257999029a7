"""Reading the oplog by `find`: ranges, single entries, and how far back it goes.

A read carries the time up to which it has to be complete as `afterClusterTime`, with read concern majority: the member that answers waits until its
own majority-committed snapshot has reached it. So a range below `resolved` is complete whichever member `resolved` came from.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SourceUnavailable
from changefeed.table import TableName
from source.connection import Client, member_read, read_command
from source.errors import CAPPED_POSITION_LOST
from source.raw.bson_bytes import elements
from source.raw.raw_find import RawFind

OPLOG = TableName("local", "oplog.rs")
_MOST_ENTRIES = 1 << 20
_LONGEST_MS = 10_000
"""Of the server's work on one cursor. A range that takes longer is gone on with by another one."""
_OLDEST = {
    "find": OPLOG.coll,
    "sort": {"$natural": 1},
    "limit": 1,
    "singleBatch": True,
    "projection": {"ts": 1},
}


def entries(
    client: Client, start_ts: ClusterTime, end_ts: ClusterTime, wanted: Mapping[str, object]
) -> Generator[list[bytes], None, None]:
    """Those of `[start_ts, end_ts)`, which a majority must have: `end_ts` is not beyond `resolved`. To be closed when it is not read to its end.

    That nothing of it had been removed is known before anything is handed out: entries are removed in order, so all is there if the entry just
    before the range is; where none was written at that time, the oldest one is asked for. A cursor whose place is removed later fails by itself (136).
    """
    before_ts, last_ts = ClusterTime.from_int(start_ts.to_int() - 1), ClusterTime.from_int(end_ts.to_int() - 1)
    arguments = {
        "filter": {
            "ts": {"$gte": before_ts.to_bson(), "$lt": end_ts.to_bson()},
            **({"$or": [{"ts": before_ts.to_bson()}, wanted]} if wanted else {}),
        },
        "readConcern": {"level": "majority", "afterClusterTime": last_ts.to_bson()},
        "maxTimeMS": _LONGEST_MS,
    }
    member = member_read(client)
    try:
        with RawFind(client, OPLOG, arguments, most=_MOST_ENTRIES) as replies:
            for number, reply in enumerate(replies):
                found = reply.documents
                if number == 0 and found and _time_of(found[0]) == before_ts:
                    found = found[1:]
                elif number == 0:
                    refuse_a_gap(client, start_ts, member or member_read(client))
                yield found
    except OperationFailure as error:
        if error.code != CAPPED_POSITION_LOST:
            raise
        raise SourceUnavailable("reading the source's oplog: entries were removed under the cursor") from error


def _time_of(entry: bytes) -> ClusterTime:
    found = [entry[at:end] for name, _, at, end in elements(entry) if name == b"ts"]
    return ClusterTime.from_int(int.from_bytes(found[-1], "little"))


def entry_at(client: Client, ts: ClusterTime, projection: Mapping[str, object] | None) -> bytes:
    """One that is known to be there, as part of a transaction that a majority has: a member that does not know so yet waits."""
    concern = {"level": "majority", "afterClusterTime": ts.to_bson()}
    arguments: dict[str, object] = {"filter": {"ts": ts.to_bson()}, "readConcern": concern, "maxTimeMS": _LONGEST_MS}
    if projection is not None:
        arguments["projection"] = projection
    with RawFind(client, OPLOG, arguments, most=2) as replies:
        found = [document for reply in replies for document in reply.documents]
    if not found:
        raise HistoryLost(f"a part of a transaction, written at {ts}, is no longer in the source's oplog")
    return found[0]


def refuse_a_gap(client: Client, start_ts: ClusterTime, member: object) -> None:
    """To be asked after what begins at `start_ts` was read: entries are removed in order, so what is there now was there before.

    Another member may remember more than the one that was read: it must be that one, which has answered since before the reading.
    """
    found = read_command(client, OPLOG.db, _OLDEST)["cursor"]["firstBatch"]
    oldest = found[0] if found else None
    if oldest is None or ClusterTime.from_bson(oldest["ts"]) > start_ts:
        begins = "is empty" if oldest is None else f"begins at {ClusterTime.from_bson(oldest['ts'])}"
        raise HistoryLost(f"the source's oplog {begins}, and history is wanted from {start_ts} on")
    if member_read(client) != member:
        raise SourceUnavailable(
            f"the member whose oplog was read from {start_ts} on is gone; another one is read from there"
        )
