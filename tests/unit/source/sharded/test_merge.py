"""The order of rows of several shards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.event import RowType
from source.sharded.merge import Nature, Stretch, stretches

INSERT, UPDATE, DELETE = RowType.INSERT, RowType.UPDATE, RowType.DELETE


@dataclass(frozen=True)
class ModelRow:
    ts: ClusterTime
    shard: str
    key: int
    type: RowType


def row(time: int, shard: str, key: int, type: RowType) -> ModelRow:
    return ModelRow(ClusterTime(100, time), shard, key, type)


NATURE: Nature[ModelRow] = Nature(lambda row: row.key, lambda row: row.type is INSERT, lambda row: row.type is DELETE)


def in_one_order(*rows: ModelRow, chance: random.Random | None = None) -> list[ModelRow]:
    shards = sorted({each.shard for each in rows})
    streams = [_shown([each for each in rows if each.shard == shard], chance) for shard in shards]
    return [row for stretch in stretches(streams, NATURE) for row in stretch.rows]


def _shown(rows: list[ModelRow], chance: random.Random | None) -> Iterator[Stretch[ModelRow]]:
    """In stretches of any length, also empty ones."""
    while rows:
        size = chance.randrange(6) if chance is not None else 1
        shown, rows = rows[:size], rows[size:]
        deletes = frozenset(row.ts.to_int() for row in shown if row.type is DELETE)
        yield Stretch([row.ts.to_int() for row in shown], shown, deletes)


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
    assert [each.ts for each in order] == sorted(each.ts for each in order)
