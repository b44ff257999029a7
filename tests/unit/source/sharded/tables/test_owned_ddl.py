"""Indexes and options that each shard changes by itself: only the shards that own chunks count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlEvent
from changefeed.table import TableId, TableName
from source.sharded.effective_order import place_of
from source.sharded.tables.cluster_state import GONE, ClusterState, NewUuid
from source.sharded.tables.live_tables import LiveTables
from source.sharded.tables.owned_ddl import IndexReading, OwnedDdl, rewound_indexes
from tests.unit.source.sharded.tables.test_live_tables import (
    ITEMS,
    RESHARDING,
    Step,
    command,
    create,
    primary,
    rename,
    sharded,
    uuid,
)

A_1 = {"v": 2, "key": {"a": 1}, "name": "a_1"}
B_1 = {"v": 2, "key": {"b": 1}, "name": "b_1"}
NAME = "b_1", Document.of({"b": 1})


def built(shard: str, number: int = 1, **more: Any) -> Step:
    return shard, command({"commitIndexBuild": "items", "indexes": [B_1]}, number, **more)


def built_a(shard: str, number: int = 1, **more: Any) -> Step:
    return shard, command({"commitIndexBuild": "items", "indexes": [A_1]}, number, **more)


def dropped(shard: str, number: int = 1) -> Step:
    return shard, command({"dropIndexes": "items", "index": "b_1"}, number, o2=B_1)


def modified(shard: str, index: dict[str, Any]) -> Step:
    return shard, command({"collMod": "items", "index": {"name": "b_1", **index}}, 1)


def coordinator(op: str) -> Step:
    o = {"_id": {"namespace": "shop.items", "operationType": "collMod"}}
    return "sa", {"op": op, "ns": "config.system.sharding_ddl_coordinators", "o": o}


def chunk(id: int, shard: str, number: int = 1, op: str = "u") -> Step:
    entry: dict[str, Any] = {"op": op, "ns": "config.chunks", "o2": {"_id": id}}
    o = {"_id": id, "uuid": create("sa", number)[1]["ui"], "shard": shard} if op != "d" else {"_id": id}
    return "config", {**entry, "o": o}


class ModelReader:
    def __init__(
        self,
        tables: LiveTables,
        chunks: dict[int, str],
        indexes: IndexReading,
        read: Iterable[Step] = (),
        gone: Iterable[str] = (),
    ) -> None:
        """`read`: what a start has read of the shards already."""
        self._tables = tables
        operations: dict[str, list[Any]] = {}
        for shard, operation in read:
            operations.setdefault(shard, []).append(operation)
        owners = {id: (uuid(1), shard) for id, shard in chunks.items()}
        self.owned = OwnedDdl(tables, owners, indexes, operations, gone)

    def shown(self, *steps: Step) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        for number, (shard, operation) in enumerate(steps):
            at = place_of(ClusterTime(100, number), shard, 0)
            changes = list(self.owned.take(shard, operation, at))
            for change in self._tables.take(shard, operation, at):
                changes.append(change)
                if isinstance(change, NewUuid):
                    changes += self.owned.superseded(change)
            found += [
                (number, f"{change.type} {change.id[1] if change.id else ''}{_presumed(change)}")
                for change in changes
                if isinstance(change, DdlEvent)
            ]
        return found


def _presumed(event: DdlEvent) -> str:
    names = event.description.decode().get("presumed", ())
    return f", presumed {' '.join(names)}" if names else ""


def reader(
    chunks: dict[int, str] | None = None,
    indexes: IndexReading | None = None,
    read: Iterable[Step] = (),
    filled: Iterable[str] = (),
    gone: Iterable[str] = (),
) -> ModelReader:
    """`items` is sharded with UUID 1; sa, sb and sc hold it, and by default sa and sb own chunks. `filled`: the shards that a resharding fills with UUID 2."""
    holders = {uuid(1): dict.fromkeys(("sa", "sb", "sc"), ITEMS)}
    if filled:
        holders[uuid(2)] = dict.fromkeys(filled, TableName("shop", RESHARDING))
    state = ClusterState(sharded={ITEMS: uuid(1)}, primaries={"shop": "sc"}, holders=holders)
    return ModelReader(
        LiveTables.of(state),
        {1: "sa", 2: "sb"} if chunks is None else chunks,
        {uuid(1): {}} if indexes is None else indexes,
        read,
        gone,
    )


def having(*shards: str) -> dict[TableId, dict[str, dict[Any, Any]]]:
    return {uuid(1): {shard: {NAME: B_1} for shard in shards}}


def test_an_index_is_there_when_the_last_owner_has_it() -> None:
    assert reader().shown(built("sb"), built("sc"), built("sa"), built("sc")) == [(2, "createIndexes 1")]


def test_an_index_of_some_owners_is_no_ddl_until_the_others_give_their_last_chunk_away() -> None:
    assert reader().shown(built("sb"), chunk(1, "sb")) == [(1, "createIndexes 1")]
    assert reader({1: "sa", 2: "sb", 3: "sa"}).shown(built("sb"), chunk(1, "sb")) == []


def test_a_shard_that_gets_its_first_chunk_gets_its_indexes_before() -> None:
    clone = ("sc", command({"createIndexes": "items", "key": {"b": 1}, "name": "b_1"}, 1, fromMigrate=True))
    steps = [built("sa"), built("sb"), clone, chunk(1, "sc"), chunk(1, "sa")]
    assert reader().shown(*steps) == [(1, "createIndexes 1")]


def test_an_index_is_dropped_once_at_the_first_owners_entry() -> None:
    there = reader(indexes=having("sa", "sb", "sc"))
    assert there.shown(dropped("sc"), dropped("sb"), dropped("sa")) == [(1, "dropIndexes 1")]
    assert reader(indexes=having("sb")).shown(dropped("sb")) == []


def test_options_change_at_the_last_owners_entry() -> None:
    steps = [modified("sc", {"hidden": True}), modified("sa", {"hidden": True}), modified("sb", {"hidden": True})]
    assert reader().shown(*steps, *steps) == [(2, "modify 1"), (5, "modify 1")]


@pytest.mark.parametrize("ends", [{"forceNonUnique": True}, {"prepareUnique": False}])
def test_what_ends_uniqueness_does_so_at_the_first_owners_entry(ends: dict[str, Any]) -> None:
    assert reader().shown(modified("sa", ends), modified("sb", ends)) == [(0, "modify 1")]


def test_a_change_of_options_that_began_before_the_start_is_shown_at_its_coordinators_end() -> None:
    assert reader().shown(modified("sb", {"hidden": True}), coordinator("d")) == [(1, "modify 1")]


def test_if_nobody_knows_the_owners_any_more_they_are_those_that_log_a_change_of_options() -> None:
    """It stands where a reader that knew them has shown it."""
    steps = [coordinator("i"), modified("sb", {"hidden": True}), modified("sa", {"hidden": True}), coordinator("d")]
    assert reader({}, read=steps).shown(*steps) == reader().shown(*steps) == [(2, "modify 1")]
    assert reader({}).shown(coordinator("i"), modified("sb", {"forceNonUnique": True}), coordinator("d")) == [
        (1, "modify 1")
    ]


def test_without_coordinators_a_collmod_is_shown_at_the_first_owner_and_again_only_if_it_is_another_one() -> None:
    """Before 6.0. A watch may begin between the entries of two shards, and nothing tells that of the other one."""
    on, off = {"hidden": True}, {"hidden": False}
    each_on_both = [modified(shard, index) for index in (on, off, on) for shard in ("sa", "sb")]
    alone = reader()
    alone.owned.options.coordinated = False
    assert alone.shown(*each_on_both, modified("sa", on)) == [(at, "modify 1") for at in (0, 2, 4, 6)]
    between = reader()
    between.owned.options.coordinated = False
    assert between.shown(*each_on_both[1:], modified("sc", on)) == [(at, "modify 1") for at in (0, 1, 3)]


def test_a_change_of_options_that_a_shard_refused_is_none() -> None:
    steps = [coordinator("i"), modified("sb", {"hidden": True}), coordinator("d"), modified("sa", {"hidden": True})]
    assert reader().shown(*steps) == []


def test_resharding_keeps_the_indexes_and_shows_the_one_that_it_built() -> None:
    """The index of the new key is built on what resharding fills."""
    there = reader(indexes={uuid(1): {}})
    steps = [
        create("sa", 2, RESHARDING, fromMigrate=True),
        built("sa", 2),
        chunk(7, "sa", 2, "i"),
        sharded("items", 2, op="u"),
        rename("sa", 2, "items", 1, RESHARDING),
        dropped("sa", 2),
    ]
    assert there.shown(*steps) == [(3, "createIndexes 1"), (5, "dropIndexes 1")]


def test_a_resharding_whose_old_collection_is_gone_at_the_start_shows_the_indexes_of_the_new_one() -> None:
    there = reader(indexes={})
    steps = [built("sa", 2), chunk(7, "sa", 2, "i"), sharded("items", 2, op="u"), dropped("sa", 2)]
    assert there.shown(*steps) == [(2, "createIndexes 1"), (3, "dropIndexes 1")]


def test_an_index_that_resharding_copies_is_presumed_to_be_old_if_the_old_collection_is_gone_at_the_start() -> None:
    """It may have been one that some owners lacked. The schema knows: it is asked by whoever records it."""
    there = reader(indexes={})
    steps = [built("sa", 2, fromMigrate=True), chunk(7, "sa", 2, "i"), sharded("items", 2, op="u"), dropped("sa", 2)]
    assert there.shown(*steps) == [(2, "createIndexes 1, presumed b_1"), (3, "dropIndexes 1")]


def test_of_the_indexes_that_resharding_leaves_those_it_built_itself_are_new() -> None:
    there = reader(indexes={})
    steps = [built_a("sa", 2), built("sa", 2, fromMigrate=True), chunk(7, "sa", 2, "i"), sharded("items", 2, op="u")]
    assert there.shown(*steps) == [(3, "createIndexes 1, presumed b_1")]


def test_an_index_that_was_built_before_a_resharding_copied_it_is_shown_though_the_old_collection_is_gone() -> None:
    there = reader(indexes={})
    steps = [
        built("sa"),
        built("sb"),
        built("sa", 2, fromMigrate=True),
        chunk(7, "sa", 2, "i"),
        sharded("items", 2, op="u"),
    ]
    assert there.shown(*steps) == [(4, "createIndexes 1")]


def test_an_index_that_an_owner_lacked_is_shown_when_a_resharding_has_built_it_on_all_that_it_fills() -> None:
    """A shard that was away when the index was built; resharding copies the indexes of others to it."""
    copied = [built("sa", 2, fromMigrate=True), built("sb", 2, fromMigrate=True)]
    places = [chunk(7, "sa", 2, "i"), chunk(8, "sb", 2, "i")]
    assert reader().shown(built("sa"), *copied, *places, sharded("items", 2, op="u")) == [(5, "createIndexes 1")]


def test_of_a_table_that_was_sharded_since_the_start_resharding_shows_what_an_owner_lacked_and_nothing_older() -> None:
    older, lacked = built_a("sa", 2, fromMigrate=True), built("sa", 2, fromMigrate=True)
    steps = [
        chunk(7, "sa", op="i"),
        chunk(8, "sb", op="i"),
        sharded("items", 1),
        built("sa"),
        older,
        lacked,
        chunk(9, "sa", 2, "i"),
        sharded("items", 2, op="u"),
        dropped("sa", 2),
    ]
    assert plain().shown(*steps) == [(7, "createIndexes 1"), (8, "dropIndexes 1")]
    assert plain().shown(*(step for step in steps if step != lacked)) == [(7, "dropIndexes 1")]


@pytest.mark.parametrize("settled", [[], [primary("sa")], [chunk(2, "sa")]])
def test_what_a_new_primary_shard_is_given_of_a_table_whose_old_collection_is_gone_is_not_new(
    settled: list[Step],
) -> None:
    """Its indexes are not flagged. Those that it builds once it is the primary shard, or owns chunks, are new: a_1 then, and never b_1."""
    moved = [create("sa", 1), built("sa"), *settled, built_a("sa")]
    copied = [built("sa", 2, fromMigrate=True), built_a("sa", 2, fromMigrate=True), chunk(7, "sa", 2, "i")]
    there = reader({1: "sb", 2: "sb"}, indexes={})
    shown = there.shown(*moved, *copied, sharded("items", 2, op="u"), dropped("sa", 2))
    at = len(moved) + len(copied)
    presumed = "b_1" if settled else "b_1 a_1"
    assert shown == [(at, f"createIndexes 1, presumed {presumed}"), (at + 1, "dropIndexes 1")]


def test_what_two_reshardings_since_a_forgotten_start_have_built_is_shown_though_nobody_remembers_the_owners() -> None:
    """The first one had written its chunks before the start, the second one has removed them. What is built in between is shown at the next UUID."""
    forgotten = reader(chunks={}, indexes={})
    steps = [
        create("sa", 2, RESHARDING, fromMigrate=True),
        create("sb", 2, RESHARDING, fromMigrate=True),
        built("sa", 2),
        built("sb", 2),
        sharded("items", 2, op="u"),
        built_a("sa", 2),
        built_a("sb", 2),
        create("sa", 3, "system.resharding.2", fromMigrate=True),
        built("sa", 3, fromMigrate=True),
        built_a("sa", 3, fromMigrate=True),
        chunk(9, "sa", 3, "i"),
        sharded("items", 3, op="u"),
        dropped("sa", 3),
    ]
    assert forgotten.shown(*steps) == [(4, "createIndexes 1"), (11, "createIndexes 1"), (12, "dropIndexes 1")]


def test_a_dropped_index_is_shown_though_a_resharding_had_copied_it_before_the_start_and_another_one_is_over() -> None:
    """Of what the first one fills, a start after the second one has read no indexes. It sees some being copied, and not the others."""
    steps = [built_a("sa", 2, fromMigrate=True), chunk(7, "sa", 2, "i"), sharded("items", 2, op="u"), dropped("sa", 2)]
    filled, presumed = reader(indexes={}, filled={"sa"}), (2, "createIndexes 1, presumed a_1")
    assert filled.shown(*steps) == [presumed, (3, "dropIndexes 1")]
    assert reader(indexes={}).shown(*steps) == [presumed]


def plain(*, shard: str = "sa") -> ModelReader:
    """`items` is not sharded at the start, and nothing is known of its indexes."""
    state = ClusterState(sharded={}, primaries={"shop": shard}, holders={uuid(1): {shard: ITEMS}})
    return ModelReader(LiveTables.of(state), {}, {})


def test_an_index_is_shown_once_though_its_table_is_sharded_afterwards() -> None:
    """Wherever a watch begins, it has to show the same: a new owner records what it is shown beside what another one was."""
    assert plain().shown(built("sa"), chunk(7, "sa", op="i"), sharded("items", 1)) == [(0, "createIndexes 1")]


def test_an_index_from_before_the_start_goes_with_the_chunks_of_a_table_that_is_sharded_later() -> None:
    steps = [
        chunk(7, "sa", op="i"),
        sharded("items", 1),
        create("sb", 1, fromMigrate=True),
        built("sb", fromMigrate=True),
        chunk(7, "sb"),
        dropped("sb"),
    ]
    assert plain().shown(*steps) == [(5, "dropIndexes 1")]


def test_an_index_from_before_the_start_is_dropped_once_from_a_table_that_is_sharded_later() -> None:
    steps = [chunk(7, "sa", op="i"), chunk(8, "sb", op="i"), sharded("items", 1), dropped("sa"), dropped("sb")]
    assert plain().shown(*steps) == [(3, "dropIndexes 1")]


def test_a_move_of_the_primary_shard_shows_no_index_again_when_the_table_is_sharded_then() -> None:
    steps = [create("sb", 2), built("sb", 2), primary("sb"), chunk(7, "sb", 2, "i"), sharded("items", 2)]
    assert plain().shown(*steps) == []


def test_the_indexes_of_a_table_that_is_not_sharded_are_those_of_its_primary_shard() -> None:
    state = ClusterState(sharded={}, primaries={"shop": "sa"}, holders={uuid(1): {"sa": ITEMS}})
    plain = ModelReader(LiveTables.of(state), {}, {})
    steps = [
        built("sa"),
        create("sb", 2),
        built("sb", 2),
        primary("sb"),
        dropped("sb", 2),
        built("sb", 2),
        modified("sa", {}),
    ]
    assert plain.shown(*steps) == [(0, "createIndexes 1"), (4, "dropIndexes 1"), (5, "createIndexes 1")]


def test_of_a_table_that_was_dropped_since_the_start_every_dropped_index_is_shown_once() -> None:
    unknown = reader(indexes={})
    assert unknown.shown(built("sa"), built("sb"), dropped("sa"), dropped("sb")) == [(2, "dropIndexes 1")]


def test_a_dropped_index_is_shown_once_though_nobody_remembers_the_owners() -> None:
    """A resharding has removed the chunks, and the config servers no longer know those of the start."""
    forgotten = reader(chunks={}, indexes={})
    assert forgotten.shown(dropped("sb"), dropped("sa")) == [(0, "dropIndexes 1")]
    assert reader(chunks={}).shown(dropped("sb")) == []


def test_the_indexes_at_a_start_are_those_before_the_first_entry_since() -> None:
    reading = having("sa")
    since = {"sa": [built("sa")[1]], "sb": [dropped("sb")[1], built("sb")[1]]}
    found = rewound_indexes(reading, since)
    assert {shard: set(names) for shard, names in found[uuid(1)].items()} == {"sa": set(), "sb": {NAME}}


def test_an_index_of_a_table_whose_owners_are_gone_is_presumed_to_be_old_where_another_shard_gets_a_chunk() -> None:
    all_on_sb = {1: "sb", 2: "sb"}
    clone = ("sa", command({"createIndexes": "items", "key": {"b": 1}, "name": "b_1"}, 1, fromMigrate=True))
    there = reader(all_on_sb, having("sa"), gone={"sb"})
    assert there.shown(chunk(1, "sa"), chunk(2, "sa"), dropped("sa")) == [
        (1, "createIndexes 1, presumed b_1"),
        (2, "dropIndexes 1"),
    ]
    copied = reader(all_on_sb, having(), gone={"sb"})
    assert copied.shown(clone, chunk(1, "sa"), chunk(2, "sa")) == [(2, "createIndexes 1, presumed b_1")]
    assert reader(all_on_sb, having(), gone={"sb"}).shown(chunk(1, "sa"), chunk(2, "sa"), built("sa")) == [
        (2, "createIndexes 1")
    ]
    assert reader(all_on_sb, having(), gone={"sb"}).shown(chunk(1, "sa"), built("sa"), chunk(2, "sa")) == [
        (2, "createIndexes 1")
    ]


@pytest.mark.parametrize("removed", [[], [chunk(1, "sb", op="d"), chunk(2, "sb", op="d")]])
def test_a_resharding_of_a_table_whose_owners_are_gone_copies_indexes_that_are_presumed_to_be_old(
    removed: list[Step],
) -> None:
    there = reader({1: "sb", 2: "sb"}, having("sa"), filled={"sa"}, gone={"sb"})
    steps = [built("sa", 2, fromMigrate=True), chunk(7, "sa", 2, "i"), *removed, sharded("items", 2, op="u")]
    assert there.shown(*steps, dropped("sa", 2)) == [
        (len(steps) - 1, "createIndexes 1, presumed b_1"),
        (len(steps), "dropIndexes 1"),
    ]


def test_options_that_wait_for_a_shard_that_is_gone_are_whole_and_an_index_waits_for_its_chunks() -> None:
    """Nobody knows whether it had the index. It has given all its chunks away before it was removed."""
    gone: Step = "", {"op": GONE, "ns": "config.shards", "o": {"_id": "sb"}}
    assert reader().shown(built("sa"), gone, chunk(2, "sa")) == [(2, "createIndexes 1")]
    assert reader().shown(gone, built("sa"), chunk(2, "sa")) == [(2, "createIndexes 1")]
    assert reader().shown(built("sa"), gone, chunk(2, "sc")) == []
    hidden = {"hidden": True}
    assert reader().shown(modified("sa", hidden), gone, chunk(2, "sa")) == [(1, "modify 1")]
