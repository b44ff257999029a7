"""What entries of several shards mean together. The entries are those that real clusters of 6.0.5 wrote, in short."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from bson.binary import Binary

from changefeed.cluster_time import ClusterTime
from changefeed.event import NOT_FOLLOWED, DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName
from source.sharded.effective_order import Operation, place_of
from source.sharded.tables.cluster_state import GONE, ClusterChange, ClusterState, NewUuid
from source.sharded.tables.live_tables import LiveTables

ITEMS, OTHERS = TableName("shop", "items"), TableName("shop", "others")
RESHARDING = "system.resharding.1"
Step = tuple[str, Operation]


def uuid(number: int) -> TableId:
    return TableId(bytes([number] * 16).hex())


def _ui(number: int) -> Binary:
    return Binary(bytes([number] * 16), 4)


def command(o: dict[str, Any], number: int, **more: Any) -> Operation:
    return {"op": "c", "ns": "shop.$cmd", "ui": _ui(number), "o": o, **more}


def create(shard: str, number: int, coll: str = "items", **more: Any) -> Step:
    return shard, command({"create": coll}, number, **more)


def drop(shard: str, number: int, coll: str = "items") -> Step:
    return shard, command({"drop": coll}, number)


def rename(shard: str, number: int, to: str = "others", target: int | None = None, coll: str = "items") -> Step:
    replaced = {"dropTarget": _ui(target)} if target is not None else {}
    return shard, command({"renameCollection": f"shop.{coll}", "to": f"shop.{to}", **replaced}, number)


def sharded(coll: str, number: int | None, *, op: str = "i", whole: bool = False, **key: int) -> Step:
    """`whole`: an update that gives all fields, as refining writes one."""
    ns, entry = f"shop.{coll}", {"op": op, "ns": "config.collections"}
    if number is None:
        return "config", {**entry, "op": "d", "o": {"_id": ns}}
    fields = {"uuid": _ui(number), **({"key": key} if key else {})}
    if op == "u" and not whole:
        return "config", {**entry, "o": {"$v": 2, "diff": {"u": fields}}, "o2": {"_id": ns}}
    return "config", {**entry, "o": {"_id": ns, **fields, "unique": False}, "o2": {"_id": ns}}


def primary(shard: str) -> Step:
    diff = {"$v": 2, "diff": {"u": {"primary": shard}}}
    return "config", {"op": "u", "ns": "config.databases", "o": diff, "o2": {"_id": "shop"}}


def coordinator_done(operation: str, coll: str = "items") -> Step:
    o = {"_id": {"namespace": f"shop.{coll}", "operationType": operation}}
    return "sa", {"op": "d", "ns": "config.system.sharding_ddl_coordinators", "o": o}


def cluster(**fields: Any) -> LiveTables:
    state = {"sharded": {}, "primaries": {"shop": "sa"}, "holders": {}}
    return LiveTables.of(ClusterState(**{**state, **fields}))


def of_items(*shards: str) -> LiveTables:
    """`items` is sharded with UUID 1."""
    return cluster(sharded={ITEMS: uuid(1)}, holders={uuid(1): dict.fromkeys(shards, ITEMS)})


def played(tables: LiveTables, steps: Iterable[Step]) -> list[tuple[int, ClusterChange]]:
    """The changes, each with the number of the step that showed it."""
    return [
        (number, change)
        for number, (shard, operation) in enumerate(steps)
        for change in tables.take(shard, operation, place_of(ClusterTime(100, number), shard, 0))
    ]


def shown(tables: LiveTables, *steps: Step) -> list[tuple[int, str]]:
    """Number of the step, and the change in a word or two."""

    def word(change: ClusterChange) -> str:
        if isinstance(change, NewUuid):
            return f"{change.table[0]} is {change.uuid[1]}"
        replaces = f" over {change.drop_target[1]}" if change.drop_target else ""
        return f"{change.type} {change.id[1] if change.id else change.db}{replaces}"

    return [(number, word(change)) for number, change in played(tables, steps)]


def test_a_sharded_collection_is_created_once() -> None:
    tables = cluster()
    steps = [create("sa", 1), sharded("items", 1), create("sb", 1, fromMigrate=True), create("sc", 1)]
    assert shown(tables, *steps) == [(0, "create 1")]
    assert tables.holders(uuid(1)) == {"sa", "sb", "sc"}


def test_another_shard_key_is_shown_where_the_config_servers_say_it_and_a_rename_shows_none() -> None:
    tables = cluster(holders={uuid(1): {"sa": ITEMS}})
    steps = [
        sharded("items", 1, k=1),
        sharded("items", 1, op="u", whole=True, k=1, j=1),
        (
            "config",
            {
                "op": "u",
                "ns": "config.collections",
                "o": {"$v": 2, "diff": {"d": {"x": False}}},
                "o2": {"_id": "shop.items"},
            },
        ),
        rename("sa", 1),
        sharded("items", None),
        sharded("others", 1, k=1, j=1),
        sharded("others", 2, op="u", j=1),
    ]
    assert shown(tables, *steps) == [
        (0, "shardCollection 1"),
        (1, "refineCollectionShardKey 1"),
        (3, "rename 1"),
        (6, "reshardCollection 1"),
        (6, "0 is 2"),
    ]
    tables = cluster(holders={uuid(1): {"sa": ITEMS}})
    [(_, event)] = played(tables, [sharded("items", 1, k=1, j=-1)])
    assert isinstance(event, DdlEvent)
    assert (event.table, event.description.decode()) == (ITEMS, {"shardKey": {"k": 1, "j": -1}, "unique": False})


def test_a_drop_stands_at_the_last_holders_entry() -> None:
    tables = of_items("sa", "sb", "sc")
    steps = [sharded("items", None), drop("sb", 1), drop("sc", 1), drop("sa", 1)]
    assert shown(tables, *steps) == [(3, "drop 1")]
    assert shown(tables, create("sa", 2)) == [(0, "create 2")]


def test_a_rename_stands_at_the_last_holders_entry() -> None:
    steps = [rename("sb", 1), rename("sa", 1), sharded("items", None), sharded("others", 1)]
    tables = of_items("sa", "sb")
    [(number, change)] = played(tables, steps)
    assert number == 1
    assert isinstance(change, DdlEvent)
    assert (change.type, change.id, change.renamed_to) == (DdlType.RENAME, uuid(1), OTHERS)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_a_rename_over_a_target_ends_the_target_with_it(order: tuple[int, int, int]) -> None:
    """Shard sa has both, sb the renamed one, sc the target: the entries may come in any order."""
    held = {uuid(1): {"sa": ITEMS, "sb": ITEMS}, uuid(2): {"sa": OTHERS, "sc": OTHERS}}
    tables = cluster(sharded={ITEMS: uuid(1), OTHERS: uuid(2)}, holders=held)
    entries = [rename("sa", 1, target=2), rename("sb", 1), drop("sc", 2, "others")]
    steps = [entries[index] for index in order]
    after = [sharded("others", None), sharded("items", None), sharded("others", 1)]
    assert shown(tables, *steps, *after) == [(2, "rename 1 over 2")]
    assert {table.name for table in tables.live.values()} == {OTHERS}


def test_a_move_of_the_primary_shard_changes_uuids_and_drops_nothing() -> None:
    plain = TableName("shop", "plain")
    held = {uuid(1): {"sa": ITEMS, "sb": ITEMS}, uuid(3): {"sa": plain}}
    tables = cluster(sharded={ITEMS: uuid(1)}, holders=held)
    steps = [create("sc", 1), create("sc", 4, "plain"), primary("sc"), drop("sa", 3, "plain")]
    assert shown(tables, *steps) == [(2, "0 is 4")]
    assert tables.ids[uuid(4)] == uuid(3)
    assert shown(tables, drop("sc", 4, "plain")) == [(0, "drop 3")]


def test_a_move_of_the_primary_shard_that_fails_leaves_a_copy_that_is_nothing() -> None:
    plain = TableName("shop", "plain")
    tables = cluster(holders={uuid(3): {"sa": plain}})
    assert shown(tables, create("sc", 4, "plain"), drop("sc", 4, "plain")) == []
    assert tables.live.keys() == {uuid(3)}


def test_resharding_changes_the_uuid_and_no_superseded_drop_counts() -> None:
    """Shards sa and sb have the new collection, sc is a donor only, sd had an empty copy of the old one."""
    tables = of_items("sa", "sc", "sd")
    steps = [
        create("sa", 2, RESHARDING, fromMigrate=True),
        create("sb", 2, RESHARDING, fromMigrate=True),
        sharded("items", 2, op="u"),
        rename("sa", 2, "items", 1, RESHARDING),
        rename("sb", 2, "items", None, RESHARDING),
        drop("sc", 1),
        drop("sd", 1),
    ]
    assert shown(tables, *steps) == [(2, "0 is 2")]
    assert tables.holders(uuid(2)) == {"sa", "sb"}
    assert shown(tables, sharded("items", None), drop("sb", 2), drop("sa", 2)) == [(2, "drop 1")]


def test_a_take_over_within_a_resharding_goes_on_with_the_table() -> None:
    held = {uuid(2): {"sa": ITEMS, "sb": TableName("shop", RESHARDING)}, uuid(1): {"sb": ITEMS}}
    tables = LiveTables.of(
        ClusterState(sharded={ITEMS: uuid(2)}, primaries={"shop": "sa"}, holders=held), {uuid(2): uuid(1)}
    )
    assert tables.live[uuid(2)].id == uuid(1)
    assert shown(tables, rename("sb", 2, "items", 1, RESHARDING)) == []


@pytest.mark.parametrize("done", range(4))
def test_a_take_over_within_a_rename_over_a_target_shows_the_same_rename(done: int) -> None:
    held = {uuid(1): {"sa": ITEMS, "sb": ITEMS}, uuid(2): {"sa": OTHERS, "sc": OTHERS}}
    first = cluster(sharded={ITEMS: uuid(1), OTHERS: uuid(2)}, holders=held)
    steps = [rename("sa", 1, target=2), drop("sc", 2, "others"), rename("sb", 1)]
    before = shown(first, *steps[:done])
    holders = {number: dict(names) for number, names in first._holders.items()}
    second = cluster(sharded={ITEMS: uuid(1), OTHERS: uuid(2)}, holders=holders)
    assert second.live == first.live
    after = [(done + number, text) for number, text in shown(second, *steps[done:])]
    assert before + after == [(2, "rename 1 over 2")]


def test_a_dropped_database_is_dropped_with_its_last_table() -> None:
    tables = of_items("sa", "sb")
    steps = [
        drop("sb", 1),
        drop("sa", 1),
        ("sa", command({"dropDatabase": 1}, 0)),
        ("sb", command({"dropDatabase": 1}, 0)),
    ]
    assert shown(tables, *steps) == [(1, "drop 1"), (2, "dropDatabase shop")]


PLAIN = TableName("shop", "plain")
SHOP_DROPPED = "sa", command({"dropDatabase": 1}, 0)


@pytest.mark.parametrize(
    ("tables", "steps", "said", "then"),
    [
        (
            of_items("sa", "sb"),
            [drop("sb", 1), coordinator_done("dropCollection")],
            "unknown shop.items 1: dropCollection of it ended, but nothing was seen of it on shards ['sa']",
            {},
        ),
        (
            of_items("sa", "sb"),
            [rename("sb", 1), coordinator_done("renameCollection")],
            "unknown shop.items 1 to shop.others: renameCollection of it ended",
            {OTHERS: (1, 1)},
        ),
        (cluster(), [sharded("items", 1)], "unknown shop.items 1: no shard has created UUID 01", {ITEMS: (1, 1)}),
        (
            cluster(holders={uuid(1): {"sa": OTHERS}}),
            [sharded("items", 1)],
            "unknown shop.others 1 to shop.items: no shard has created UUID 01",
            {ITEMS: (1, 1)},
        ),
        (
            cluster(holders={uuid(1): {"sa": ITEMS}, uuid(3): {"sa": PLAIN}}),
            [create("sc", 4, "plain"), primary("sc")],
            "unknown shop.items 1: its database is on shard sc now, which has 0 collections of this name",
            {PLAIN: (4, 3)},
        ),
        (
            cluster(holders={uuid(1): {"sa": ITEMS}}),
            [create("sc", 2), create("sc", 3), primary("sc")],
            "which has 2 collections of this name",
            {ITEMS: (3, 3)},
        ),
        (of_items("sa"), [create("sa", 2)], "shard sa created UUID 02", {ITEMS: (2, 2)}),
        (of_items("sa"), [SHOP_DROPPED], "unknown shop.items 1: its database was dropped, but no shard's drop", {}),
        (
            of_items("sa"),
            [rename("sa", 2, "items", 1, RESHARDING)],
            "shard sa replaced it by UUID 02",
            {ITEMS: (2, 2)},
        ),
        (
            cluster(holders={uuid(1): {"sa": ITEMS}}),
            [create("sa", 2, "tmpAbc12.convertToCapped.items"), rename("sa", 2, "items", 1, "tmpAbc12.convertToCapped.items")],
            "unknown shop.items 1: convertToCapped: shard sa logs the rows that this writes as those of a migration",
            {ITEMS: (2, 2)},
        ),
    ],
)  # fmt: skip
def test_what_the_state_cannot_explain_stops_its_table_and_the_newest_entry_is_followed(
    tables: LiveTables, steps: list[Step], said: str, then: dict[TableName, tuple[int, int]]
) -> None:
    """`then`: by name the live UUID and the table."""
    unknown = [
        change for _, change in played(tables, steps) if isinstance(change, DdlEvent) and change.type is DdlType.UNKNOWN
    ]
    [told] = [
        f"unknown {event.table} {(event.id or '0')[1]}{f' to {event.renamed_to}' if event.renamed_to else ''}: "
        f"{event.description.decode()[NOT_FOLLOWED]}"
        for event in unknown
    ]
    assert said in told
    assert {live.name: (int(of[:2]), int(live.id[:2])) for of, live in tables.live.items()} == then


def test_a_table_that_could_not_be_followed_is_followed_from_its_newest_entry_on() -> None:
    tables = of_items("sa")
    assert shown(tables, create("sa", 2), drop("sa", 1), drop("sa", 2)) == [(0, "unknown 1"), (2, "drop 2")]


def test_a_shard_that_was_removed_is_waited_for_no_longer() -> None:
    tables = of_items("sa", "sb")
    removed = ("config", {"op": "d", "ns": "config.shards", "o": {"_id": "sb"}})
    assert shown(tables, removed, drop("sa", 1)) == [(1, "drop 1")]


def test_a_shard_that_is_gone_is_waited_for_no_longer_from_what_it_told_last() -> None:
    gone = "", {"op": GONE, "ns": "config.shards", "o": {"_id": "sb"}}
    assert shown(of_items("sa", "sb"), gone, drop("sa", 1), create("sa", 2)) == [(1, "drop 1"), (2, "create 2")]
    assert shown(of_items("sa", "sb"), drop("sa", 1), gone) == [(1, "drop 1")]
    assert shown(of_items("sa", "sb", "sc"), rename("sa", 1), rename("sc", 1), gone) == [(2, "rename 1")]


def test_a_table_that_comes_with_a_shard_enters_by_a_rename() -> None:
    tables = of_items("sa")
    tables.shard_added("sd", {uuid(7): TableName("brought", "rows")})
    entry = {"op": "i", "ns": "config.databases", "o": {"_id": "brought", "primary": "sd"}, "o2": {"_id": "brought"}}
    [arrived] = tables.take("config", entry, Position(ClusterTime(100, 9)))
    assert isinstance(arrived, DdlEvent)
    assert (arrived.type, arrived.id, str(arrived.renamed_to)) == (DdlType.RENAME, uuid(7), "brought.rows")
    assert arrived.table is not None
    assert arrived.table.system
    assert tables.live[uuid(7)].id == uuid(7)


def test_a_view_that_comes_with_a_shard_is_unknown_to_those_who_want_it() -> None:
    tables = of_items("sa")
    view = TableName("brought", "view")
    tables.shard_added("sd", {}, [view, TableName("other", "view")])
    entry = {"op": "i", "ns": "config.databases", "o": {"_id": "brought", "primary": "sd"}, "o2": {"_id": "brought"}}
    [event] = tables.take("config", entry, Position(ClusterTime(100, 9)))
    assert isinstance(event, DdlEvent)
    assert (event.type, event.table) == (DdlType.UNKNOWN, view)
