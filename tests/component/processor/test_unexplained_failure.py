"""A row that breaks its task, with an error that names no table: the tables are separated until the one with the row is alone, and stopped.

The name of a field in the row is not UTF-8. Servers store it, and no update can state it.
"""

from __future__ import annotations

import bson
from bson.raw_bson import RawBSONDocument

from changefeed.errors import InvariantError
from changefeed.records.status import Straggler
from coordination.layout import child, decode
from tests.component.processor.conftest import ReplicatingCluster

_TABLES = ("a", "b", "c", "d")
_BAD = "c"


def test_the_table_whose_row_breaks_the_task_is_found_and_stops_alone(
    standing: ReplicatingCluster, database: str
) -> None:
    source, there = standing.source[database], standing.target[f"{database}_to"]
    for table in _TABLES:
        source[table].insert_one({"_id": 1, "x": list(range(50))})
    feed = standing.create("breaks-its-task", database, start="initial")
    standing.until(lambda: all(there[table].find_one() for table in _TABLES), "the copies")
    standing.until(lambda: not standing.differences(database), "the indexes")

    named = bson.encode({"q": {"_id": 1}, "u": {"$set": {"??": 1}}}).replace(b"??", b"\xff\xfe")
    with standing.source.start_session() as session, session.start_transaction():
        for table in _TABLES:
            source[table].insert_one({"_id": 2}, session=session)
        source.command({"update": _BAD, "updates": [RawBSONDocument(named)]}, session=session)

    [found] = standing.until(lambda: standing.etcd.range(standing.layout.stragglers(feed)).items, "the stop")
    [info] = source.list_collections(filter={"name": _BAD})
    assert child(found.key, standing.layout.stragglers(feed)) == info["info"]["uuid"].hex()
    straggler = decode(Straggler, found)
    assert straggler.error is not None
    assert straggler.error.code == InvariantError.code

    for table in _TABLES:
        source[table].insert_one({"_id": 3})
    others = [table for table in _TABLES if table != _BAD]
    standing.until(lambda: all(there[table].count_documents({}) == 3 for table in others), "the rows of the others")
    assert there[_BAD].find_one({"_id": 3}) is None
