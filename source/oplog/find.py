"""`entries`, `entry_at`, `refuse_a_gap`: reads of the oplog by `find`: ranges, single entries, and whether history was removed.

`commands`: a filter for such a read.

A read has read concern majority, and as `afterClusterTime` the time up to which it has to be complete: the member waits until its own
majority-committed snapshot has reached that time. So a range below `resolved` is complete, whichever member reported `resolved`.

`operations`: the operations of a transaction of any size. One entry of its chain is in memory at a time.

The chain is followed from its end to its beginning, reading only times, and is then read from its beginning. A missing part is
`HistoryLost`. Parts may be before the range that contains the end: a transaction belongs to the range of the entry that makes it visible.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TypeAlias

from pymongo.errors import OperationFailure

from changefeed.bson_bytes import elements
from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SourceUnavailable
from changefeed.table import TableName
from source.connection import Client, member_read, read_command
from source.errors import CAPPED_POSITION_LOST
from source.oplog.command_entry import CommandEntry
from source.raw_find import RawFind

OPLOG = TableName("local", "oplog.rs")
_FIRST_ENTRIES, MOST_ENTRIES = 500, 10_000
"""Of a reply: a window that ends early gives up what it has read beyond its end. That of a table for which the sink is too slow needs few."""
_LONGEST_MS = 10_000
"""The server's time limit for one cursor. A range that takes longer is continued by another cursor."""
_BY_TIME = {"oplogReplay": True}
"""A server of 4.2 goes to the first time of the filter, instead of reading all before it. Later ones do so anyway, and ignore this."""
_OLDEST = {"find": OPLOG.coll, "sort": {"$natural": 1}, "limit": 1, "singleBatch": True, "projection": {"ts": 1}}


def commands(*kinds: Mapping[str, object]) -> Mapping[str, object]:
    """Commands of one of these kinds. Servers try `$or` before an equality, and `$nor` after it: so a row costs them no more than a look at its `op`."""
    return {"op": "c", "$nor": [{"$nor": list(kinds)}]}


def entries(
    client: Client,
    start_ts: ClusterTime,
    end_ts: ClusterTime,
    wanted: Mapping[str, object],
    projection: Mapping[str, object] | None = None,
    *,
    most: int | None = None,
) -> Generator[list[bytes], None, None]:
    """The entries of `[start_ts, end_ts)`, at most `most` in a reply. A majority must have them: `end_ts` is not beyond `resolved`.

    Close the generator if it is not read to its end. Before it yields anything it verifies that nothing of the range was removed. Entries
    are removed in order, so the range is whole if the entry just before it exists. If no entry has that time, the oldest entry decides.
    A cursor whose place is removed later fails by itself (136).
    """
    before_ts, last_ts = start_ts.previous(), end_ts.previous()
    arguments = {
        "filter": {
            "ts": {"$gte": before_ts.to_bson(), "$lt": end_ts.to_bson()},
            **({"$or": [{"ts": before_ts.to_bson()}, wanted]} if wanted else {}),
        },
        "readConcern": {"level": "majority", "afterClusterTime": last_ts.to_bson()},
        "maxTimeMS": _LONGEST_MS,
        **_BY_TIME,
        **({"projection": projection} if projection is not None else {}),
    }
    member = member_read(client)
    try:
        with RawFind(client, OPLOG, arguments, most=most or MOST_ENTRIES, first=_FIRST_ENTRIES) as replies:
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
    """An entry that must exist, as part of a transaction that a majority has. A member that does not have it yet waits."""
    concern = {"level": "majority", "afterClusterTime": ts.to_bson()}
    arguments: dict[str, object] = {"filter": {"ts": ts.to_bson()}, "readConcern": concern, "maxTimeMS": _LONGEST_MS}
    arguments |= _BY_TIME
    if projection is not None:
        arguments["projection"] = projection
    with RawFind(client, OPLOG, arguments, most=2) as replies:
        found = [document for reply in replies for document in reply.documents]
    if not found:
        raise HistoryLost(f"a part of a transaction, written at {ts}, is no longer in the source's oplog")
    return found[0]


def refuse_a_gap(client: Client, start_ts: ClusterTime, member: object) -> None:
    """Call it after the range from `start_ts` was read: entries are removed in order, so entries that still exist existed during the read.

    The oplog of another member may go back further, or begin later. So the answer counts only if it comes from `member`, which answered
    before the range was read.
    """
    found = read_command(client, OPLOG.db, _OLDEST)["cursor"]["firstBatch"]
    if member_read(client) != member:
        raise SourceUnavailable(
            f"the member whose oplog was read from {start_ts} on no longer answers; another member is read from there"
        )
    oldest = found[0] if found else None
    if oldest is None or ClusterTime.from_bson(oldest["ts"]) > start_ts:
        begins = "is empty" if oldest is None else f"begins at {ClusterTime.from_bson(oldest['ts'])}"
        raise HistoryLost(f"the source's oplog {begins}, but history from {start_ts} on is needed")


EntryAt: TypeAlias = Callable[[ClusterTime, Mapping[str, object] | None], bytes]
"""The entry of that time, with the projection applied if there is one. Raises `HistoryLost` if it is gone."""

_LINKS = {"ts": 1, "prevOpTime": 1, "multiOpType": 1, "op": 1, "o.partialTxn": 1, "o.prepare": 1, "o.applyOps.op": 1}


def parts(entry_at: EntryAt, last: CommandEntry) -> Iterator[CommandEntry]:
    """The entries of the transaction in order. `last` makes them visible."""
    for ts in _earlier(entry_at, last):
        yield CommandEntry.of(entry_at(ts, None))
    yield last


def operations(entry_at: EntryAt, last: CommandEntry) -> Iterator[tuple[bytes, bool]]:
    """Numbered in this order, they are places within the time of `last`."""
    for part in parts(entry_at, last):
        yield from part.operations()


def _earlier(entry_at: EntryAt, last: CommandEntry) -> list[ClusterTime]:
    times: list[ClusterTime] = []
    previous_ts = last.previous_ts
    while previous_ts is not None:
        times.append(previous_ts)
        previous_ts = CommandEntry.of(entry_at(previous_ts, _LINKS)).previous_ts
    return times[::-1]
