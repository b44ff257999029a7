"""The state at any earlier time, from the catalogs of now and the entries in between, is the one that was followed to that time.

Which tables a shard may have had, by what the config servers wrote since.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from bson.binary import Binary
from bson.timestamp import Timestamp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost
from changefeed.table import TableId, TableName
from source.ddl_description import uuid_of
from source.sharded.effective_order import Operation, place_of
from source.sharded.tables.cluster_state import BegunRename, ClusterState, changed_field, document_id
from source.sharded.tables.live_tables import LiveTables
from source.sharded.tables.rewind import ConfigReading, LeftTables, left_tables, rewound
from tests.unit.source.sharded.tables.test_live_tables import Step, create, drop, primary, rename, sharded, uuid

SHARDS = ["sa", "sb", "sc"]
NAMES = ["items", "others", "plain"]
DATABASE: Step = (
    "config",
    {"op": "i", "ns": "config.databases", "o": {"_id": "shop", "primary": "sa"}, "o2": {"_id": "shop"}},
)


class ModelDdl:
    """Random DDL as its entries, those of the shards in any order where the servers promise none."""

    def __init__(self, seed: int, number: int) -> None:
        self._chance = random.Random(seed)
        self.steps: list[Step] = [DATABASE]
        self._primary, self._last = "sa", 0
        self._tables: dict[str, tuple[int, bool, set[str]]] = {}
        """By name: UUID, whether it is sharded, holders."""
        while number > 0:
            number -= 1
            name = self._chance.choice(NAMES)
            acts = (
                [self._move_primary]
                if name not in self._tables
                else [self._drop, self._rename, self._spread, self._reshard]
            )
            self._chance.choice([*acts, self._move_primary, self._create])(name)

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _create(self, name: str) -> None:
        if name in self._tables:
            return
        number, distributed = self._next(), self._chance.random() < 0.7
        self.steps.append(create(self._primary, number, name))
        if distributed:
            self.steps.append(sharded(name, number))
        self._tables[name] = number, distributed, {self._primary}

    def _spread(self, name: str) -> None:
        number, distributed, holders = self._tables[name]
        missing = [shard for shard in SHARDS if shard not in holders]
        if distributed and missing:
            self.steps.append(create(missing[0], number, name, fromMigrate=True))
            holders.add(missing[0])

    def _drop(self, name: str) -> None:
        number, distributed, holders = self._tables.pop(name)
        if distributed:
            self.steps.append(sharded(name, None))
        others = self._mixed(holders - {self._primary})
        self.steps += [drop(shard, number, name) for shard in [*others, self._primary]]

    def _rename(self, name: str) -> None:
        to = self._chance.choice([other for other in NAMES if other != name])
        number, distributed, holders = self._tables.pop(name)
        target = self._tables.pop(to, None)
        replaced = target[2] if target else set()
        for shard in self._mixed(holders | replaced):
            if shard not in holders and target:
                self.steps.append(drop(shard, target[0], to))
            else:
                over = target[0] if target and shard in replaced else None
                self.steps.append(rename(shard, number, to, over, name))
        if target and target[1]:
            self.steps.append(sharded(to, None))
        if distributed:
            self.steps += [sharded(name, None), sharded(to, number)]
        self._tables[to] = number, distributed, holders

    def _reshard(self, name: str) -> None:
        number, distributed, holders = self._tables[name]
        if not distributed:
            return
        new, temporary = self._next(), f"system.resharding.{number}"
        recipients = {self._primary, *self._chance.sample(SHARDS, 2)}
        self.steps.append(sharded(temporary, new))
        self.steps += [create(shard, new, temporary, fromMigrate=True) for shard in self._mixed(recipients)]
        self.steps += [sharded(temporary, None), sharded(name, new, op="u")]
        for shard in self._mixed(recipients | holders):
            if shard in recipients:
                self.steps.append(rename(shard, new, name, number if shard in holders else None, temporary))
            else:
                self.steps.append(drop(shard, number, name))
        self._tables[name] = new, True, recipients

    def _move_primary(self, _: str) -> None:
        to = self._chance.choice([shard for shard in SHARDS if shard != self._primary])
        dropped: list[Step] = []
        for name, (number, distributed, holders) in list(self._tables.items()):
            if not distributed:
                copy = self._next()
                self.steps.append(create(to, copy, name))
                dropped.append(drop(self._primary, number, name))
                self._tables[name] = copy, False, {to}
            elif to not in holders:
                self.steps.append(create(to, number, name))
                holders.add(to)
        self.steps += [primary(to), *dropped]
        self._primary = to

    def _mixed(self, shards: set[str]) -> list[str]:
        return self._chance.sample(sorted(shards), len(shards))


class Earlier:
    def __init__(self, steps: list[Step], *, reaches_back: int = 1_000) -> None:
        self._steps = steps
        self._operations = [operation for _, operation in steps]
        self._of_tables = self._operations[-reaches_back:]

    def primary(self, db: str) -> str:
        found = [changed_field(each, "primary") for each in self._of("config.databases", db, self._operations)]
        return str(next(value for value in reversed(found) if value is not None))

    def uuid(self, name: TableName) -> TableId | None:
        found = [
            uuid_of(changed_field(each, "uuid")) for each in self._of("config.collections", str(name), self._of_tables)
        ]
        return next((value for value in reversed(found) if value is not None), None)

    def rename(self, shard: str, uuid: TableId) -> BegunRename | None:
        found = [
            operation
            for stream, operation in self._steps
            if stream == shard and "renameCollection" in operation["o"] and uuid_of(operation["ui"]) == uuid
        ]
        return BegunRename.of(found[-1]) if found else None

    def _of(self, ns: str, id: str, operations: list[Operation]) -> list[Operation]:
        return [each for each in operations if each["ns"] == ns and document_id(each) == id]


def followed(steps: list[Step]) -> LiveTables:
    tables = LiveTables.of(ClusterState(sharded={}, primaries={}, holders={}))
    for number, (shard, operation) in enumerate(steps):
        list(tables.take(shard, operation, place_of(ClusterTime(100, number), shard, 0)))
    return tables


def taken_over(steps: list[Step], at: int, read_at: int, *, reaches_back: int = 1_000) -> LiveTables:
    """From the catalogs as they are after `read_at` steps, at the time before step `at`."""
    now, since = followed(steps[:read_at]), steps[at:]
    reading = {
        shard: {uuid: names[shard] for uuid, names in now._holders.items() if shard in names} for shard in SHARDS
    }
    state = rewound(
        ConfigReading(sharded=now._sharded, primaries=now._primaries),
        [operation for stream, operation in since if stream == "config"],
        reading,
        {shard: [operation for stream, operation in since if stream == shard] for shard in SHARDS},
        Earlier(steps[:at], reaches_back=reaches_back),
    )
    return LiveTables.of(state, followed(steps[:at]).ids)


@settings(max_examples=400)
@given(st.integers(0, 100_000), st.integers(1, 12), st.floats(0, 1), st.floats(0, 1))
@example(198, 9, 0.75, 0.75)  # two tables go on under other UUIDs when the primary shard changes
def test_a_take_over_at_any_time_knows_what_the_first_reader_knew(
    seed: int, ddls: int, at: float, read_at: float
) -> None:
    """The catalogs may be read at any later time; what comes after is in the entries."""
    steps = ModelDdl(seed, ddls).steps
    start = round(at * len(steps))
    again, first = taken_over(steps, start, start + round(read_at * (len(steps) - start))), followed(steps[:start])
    assert again.live == first.live
    assert (again._primaries, again._sharded) == (first._primaries, first._sharded)
    assert {uuid: again.holders(uuid) for uuid in first._holders} == {
        uuid: first.holders(uuid) for uuid in first._holders
    }
    for number, (shard, operation) in enumerate(steps[start:], start):
        position = place_of(ClusterTime(100, number), shard, 0)
        assert list(again.take(shard, operation, position)) == list(first.take(shard, operation, position))


@settings(max_examples=400)
@given(st.integers(0, 100_000), st.integers(1, 12), st.floats(0, 1))
def test_where_the_config_servers_oplog_has_only_the_last_ddl_it_knows_the_same_or_refuses(
    seed: int, ddls: int, at: float
) -> None:
    steps = ModelDdl(seed, ddls).steps
    start = round(at * len(steps))
    try:
        again = taken_over(steps, start, len(steps), reaches_back=6)
    except HistoryLost:
        return
    assert again.live == followed(steps[:start]).live


def test_a_primary_shard_that_no_entry_tells_is_refused() -> None:
    class Nothing(Earlier):
        def primary(self, db: str) -> str:
            raise HistoryLost(db)

    with pytest.raises(HistoryLost):
        rewound(ConfigReading(sharded={}, primaries={"shop": "sb"}), [primary("sb")[1]], {}, {}, Nothing([]))


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
