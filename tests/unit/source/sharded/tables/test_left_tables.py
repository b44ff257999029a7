"""Which tables a shard may have had, by what the config servers wrote since."""

from __future__ import annotations

from typing import Any

from bson.binary import Binary
from bson.timestamp import Timestamp

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableId, TableName
from source.sharded.tables.left_tables import LeftTables, left_tables
from source.sharded.unit import Operation
from tests.unit.source.sharded.tables.test_live_tables import primary, sharded, uuid

SINCE = ClusterTime(100, 0)


def chunk(number: int, *history: tuple[int, str], op: str = "u") -> Operation:
    """Of the table with this UUID, with its owners, the newest first, each since a second."""
    owners = [{"validAfter": Timestamp(second, 1), "shard": shard} for second, shard in history]
    o: dict[str, Any] = {"_id": 7, "uuid": Binary(bytes([number] * 16), 4), "shard": history[0][1], "history": owners}
    return {"op": op, "ns": "config.chunks", "o": o, "o2": {"_id": 7}}


def left(*operations: Operation) -> LeftTables:
    return left_tables("sc", SINCE, operations)


def test_a_chunk_that_was_there_names_its_table() -> None:
    assert left(chunk(1, (120, "sa"), (90, "sc"))).uuids == {uuid(1)}
    assert left(chunk(1, (120, "sc"), (90, "sa")), chunk(2, (120, "sb"), (90, "sa"))).uuids == {uuid(1)}


def test_a_chunk_whose_history_does_not_reach_back_may_have_been_there() -> None:
    assert left(chunk(1, (120, "sa"))).uuids == {uuid(1)}
    assert left(chunk(1, (120, "sa"), (110, "sb"))).uuids == {uuid(1)}


def test_a_table_that_was_dropped_since_may_have_been_there_and_a_renamed_one_is_known_by_its_chunks() -> None:
    collections = {"ns": "config.collections"}
    renamed = left({**collections, "op": "d", "o": {"_id": "shop.items"}}, sharded("others", 3)[1])
    dropped = left({**collections, "op": "d", "o": {"_id": "shop.items"}})
    name = TableName("shop", "items")
    assert (dropped.may_have(name, [uuid(3)]), renamed.may_have(name, [uuid(3)])) == (True, False)
    assert not dropped.may_have(TableName("shop", "others"), [uuid(3)])


def test_a_table_that_was_renamed_and_then_dropped_or_resharded_may_have_been_there() -> None:
    """The drop names what it was called last, the resharding its next UUID (seeds 7703274, 7800046)."""
    moves = [sharded("items", None)[1], sharded("others", 3)[1], sharded("others", None)[1]]
    assert left(*moves).may_have(TableName("shop", "items"), [uuid(3)])
    assert not left(*moves[:2]).may_have(TableName("shop", "items"), [uuid(3)])
    assert left(*moves[:2], sharded("others", 4, op="u")[1]).may_have(TableName("shop", "items"), [uuid(3)])
    assert not left(*moves, sharded("last", 3)[1]).may_have(TableName("shop", "items"), [uuid(3)])


def test_a_database_that_was_dropped_since_may_have_been_there() -> None:
    assert left({"op": "d", "ns": "config.databases", "o": {"_id": "shop"}}).databases == {"shop"}


def test_a_chunk_that_only_others_had_since_then_names_nothing() -> None:
    assert left(chunk(1, (120, "sa"), (99, "sb")), {"op": "d", "ns": "config.chunks", "o": {"_id": 7}}) == LeftTables()


def test_a_resharded_table_and_a_database_with_another_primary_shard_may_have_been_there() -> None:
    found = left(sharded("items", 2, op="u")[1], primary("sa")[1], sharded("others", 3)[1])
    assert found.uuids == {uuid(2)}
    assert found.databases == {"shop"}
    name = TableName("elsewhere", "items")
    assert found.may_have(name, [TableId("f" * 32), uuid(2)])
    assert not found.may_have(name, [uuid(3)])
    assert found.may_have(TableName("shop", "any"), [uuid(9)])
