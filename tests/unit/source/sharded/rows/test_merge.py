"""The places of rows, and their order over several shards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import bson
from bson.binary import Binary
from bson.int64 import Int64
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from changefeed.event import RowType
from changefeed.position import Position
from sluice_client.pos import pos_of, position_of
from source.oplog.row_entry import placed
from source.sharded.effective_order import place_of
from source.sharded.rows.merge import ShardRow, Stretch, stretches
from source.sharded.rows.row_places import RowPlaces
from source.sharded.rows.row_scan import row_scan

INSERT, UPDATE, DELETE = RowType.INSERT, RowType.UPDATE, RowType.DELETE
SCAN = row_scan({}, whole_keys=False)


class ModelRow(NamedTuple):
    time: int
    shard: str
    key: int
    type: RowType


row = ModelRow


def in_one_order(*rows: ModelRow, chance: random.Random | None = None) -> list[ModelRow]:
    """As they come when each is an entry of its shard, or an operation of one of its transactions. No two have one position, which is its own pos."""
    told: dict[Position, ModelRow] = {}
    shards = sorted({each.shard for each in rows})
    streams = [_shown([each for each in rows if each.shard == shard], told, chance) for shard in shards]
    order = [header.position for stretch in stretches(streams) for *_, header in stretch]
    assert order == sorted(set(told))
    assert len(told) == len(rows)
    texts = [pos_of(each) for each in order]
    assert texts == sorted(texts)
    assert {len(each) for each in texts} == {47}
    assert list(map(position_of, texts)) == order
    assert all(place_of(each.ts, "sc", 2**32 - 1) < each for each in order), "a DDL of that time comes first"
    return [told[each] for each in order]


def _shown(rows: list[ModelRow], told: dict[Position, ModelRow], chance: random.Random | None) -> Iterator[Stretch]:
    """In stretches of any length, also empty ones, that end between two times."""
    made: list[list[ShardRow]] = []
    for _, together in groupby(rows, key=lambda each: each.time):
        made.append(_at_one_time(list(together), told))
    while made:
        size = chance.randrange(4) if chance is not None else 1
        shown, made = made[:size], made[size:]
        yield [each for of_time in shown for each in of_time]


def _at_one_time(rows: list[ModelRow], told: dict[Position, ModelRow]) -> list[ShardRow]:
    places = RowPlaces(rows[0].shard)
    raw = [_entry(each) for each in rows]
    scanned = [(each, SCAN(each)) for each in raw]
    found = places.together(scanned)
    if len(rows) == 1:
        assert row_scan({}, places.alone, whole_keys=False)(raw[0]) == found[0][-1]
    for time, place, entry, header in found:
        assert (time, place) == header[1:3]
        assert SCAN(placed(entry, header)) == header, "what is read from the bytes elsewhere"
        told[header.position] = rows[int(place[-8:], 16)]
    return found


def _entry(row: ModelRow) -> bytes:
    document = {"_id": row.key, "n": 1}
    key = {"_id": row.key}
    made: dict[RowType, tuple[str, dict[str, Any]]] = {
        INSERT: ("i", {"o": document, "o2": key}),
        UPDATE: ("u", {"o": {"$v": 2, "diff": {"u": {"n": 2}}}, "o2": key}),
        DELETE: ("d", {"o": key}),
    }
    op, rest = made[row.type]
    return bson.encode(
        {"op": op, "ns": "shop.a", "ui": Binary(bytes(16), 4), **rest, "ts": Timestamp(100, row.time), "t": Int64(1)}
    )


def test_a_document_leaves_one_shard_before_it_arrives_at_another() -> None:
    leaves, arrives, later = row(1, "sb", 7, DELETE), row(1, "sa", 7, INSERT), row(2, "sa", 7, UPDATE)
    assert in_one_order(leaves, arrives, later) == [leaves, arrives, later]


def test_a_document_that_moves_and_is_deleted_at_once_leaves_its_first_shard_first() -> None:
    """Its last operation on each shard is a delete. By the order of shards alone, sa would come first (seed 1000777)."""
    on_sb = [row(1, "sb", 7, UPDATE), row(1, "sb", 7, DELETE)]
    on_sa = [row(1, "sa", 7, INSERT), row(1, "sa", 7, DELETE)]
    assert in_one_order(*on_sa, *on_sb) == [*on_sb, *on_sa]


def test_a_document_that_moves_there_and_back_is_left_where_it_is() -> None:
    on_sb = [row(1, "sb", 7, DELETE), row(1, "sb", 7, INSERT), row(1, "sb", 7, UPDATE)]
    on_sa = [row(1, "sa", 7, INSERT), row(1, "sa", 7, DELETE)]
    other = row(1, "sa", 8, INSERT)
    order = in_one_order(*on_sa, other, *on_sb)
    assert [each for each in order if each.key == 7] == [on_sb[0], *on_sa, *on_sb[1:]]
    assert other in order


def test_documents_that_change_places_do_so_one_by_one() -> None:
    rows = [row(1, "sa", 7, DELETE), row(1, "sa", 8, INSERT), row(1, "sb", 8, DELETE), row(1, "sb", 7, INSERT)]
    order = in_one_order(*rows)
    assert order.index(rows[0]) < order.index(rows[3])
    assert order.index(rows[2]) < order.index(rows[1])


def moving_documents(chance: random.Random) -> tuple[list[ModelRow], dict[int, str]]:
    """Rows in the order of each shard, and where the documents are at the end. Each document has rows of one act per time."""
    rows: list[ModelRow] = []
    home: dict[int, str] = {}
    time, touched = 0, set[int]()
    for _ in range(60):
        if chance.random() < 0.6:
            time, touched = time + 1, set()
        key, act, to = chance.randrange(5), chance.random(), chance.choice(["sa", "sb", "sc"])
        if key in touched:
            continue
        touched.add(key)
        before = home.get(key)
        if before is not None and act < 0.3:
            rows.append(row(time, before, key, UPDATE))
            continue
        if before is not None and act < 0.8:
            rows.append(row(time, before, key, DELETE))
            del home[key]
        if before is None or act >= 0.5:
            home[key] = to
        if before is None or 0.5 <= act < 0.8:
            rows.append(row(time, to, key, INSERT))
    return rows, home


@given(st.integers(0, 100_000))
def test_a_history_of_moves_is_possible_in_the_merged_order(seed: int) -> None:
    """Documents are written, and moved by key changes of one time or, without rows, with their chunk."""
    chance = random.Random(seed)
    rows, home = moving_documents(chance)
    present: set[int] = set()
    order = in_one_order(*rows, chance=chance)
    for each in order:
        assert (each.type is INSERT) == (each.key not in present), order
        present ^= {each.key} if each.type is not UPDATE else set()
    assert present == set(home)
    assert [each.time for each in order] == sorted(each.time for each in order)
