from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import bson
import pytest
from bson.timestamp import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.documents.row_key import row_key
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.dependence import Dependence
from sink.mongodb.rows.bulk_plan import FIRST, Batch, CommandSizes, Limits, new_fields_apart, phase, plan
from sink.row import RowChange, TargetTable

_ALONE, _JOINED = Limits(joined=False), Limits(joined=True)
_I, _U, _R, _D = RowType.INSERT, RowType.UPDATE, RowType.REPLACE, RowType.DELETE


def _table(name: str, *, ordered: bool = False) -> TargetTable:
    full = TableName("shop", name)
    return TargetTable(id=TableId("ab" * 16), source=full, name=full, ordered=ordered)


_ORDERS, _BILLS, _UNIQUE = _table("orders"), _table("bills"), _table("unique", ordered=True)


def _change(kind: RowType, key: float, table: TargetTable = _ORDERS, *, time: int = 0, size: int = 0) -> RowChange:
    return RowChange(table, kind, bson.encode({"_id": key}), b"x" * size, None, time, b"82")


def _update(key: float, name: str, table: TargetTable = _ORDERS, *, time: int = 0) -> RowChange:
    described = bson.encode({"updatedFields": {name: 1}, "removedFields": [name]})
    return _change(_U, key, table, time=time)._replace(document=None, update=described)


def _shape(batches: Sequence[Batch]) -> list[tuple[list[str], bool, bool]]:
    def text(change: RowChange) -> str:
        return f"{change.type} {bson.decode(change.key)['_id']:g} {change.table.name.coll}"

    return [([text(change) for change in batch.changes], batch.ordered, batch.joined) for batch in batches]


def test_independent_changes_are_sorted_by_kind_and_a_key_keeps_its_order() -> None:
    changes = [_change(_I, 1), _change(_U, 1), _change(_D, 2), _change(_I, 2.0), _change(_I, 3)]
    assert _shape(plan(changes, _ALONE)) == [
        (["insert 1 orders", "insert 3 orders"], False, False),
        (["update 1 orders"], False, False),
        (["delete 2 orders"], False, False),
        (["insert 2 orders"], False, False),
    ]


def test_a_key_that_comes_twice_in_a_command_makes_it_an_ordered_one() -> None:
    assert _shape(plan([_change(_U, 1), _change(_U, 2), _change(_R, 1)], _ALONE)) == [
        (["update 1 orders", "update 2 orders", "replace 1 orders"], True, False)
    ]


def test_updates_that_add_fields_stand_apart_where_none_of_their_row_follows() -> None:
    early, late, plain, before, deleted = (_update(key, "n", time=time) for time, key in enumerate((1, 1, 2, 3, 4)))
    gone = _change(_D, 4)
    batch = Batch([early, late, plain, before, deleted, gone], ordered=True, joined=True)
    parts = list(new_fields_apart(batch, lambda change: change in (early, late, before, deleted)))
    assert [part.changes for part in parts] == [[early, plain, deleted, gone], [late, before]]
    assert [(part.ordered, part.joined, part.first) for part in parts] == [(True, True, False), (False, True, True)]


def test_updates_of_an_ordered_table_and_batches_without_new_fields_stay_as_they_are() -> None:
    unique, plain = (
        Batch([_change(_U, 1, _UNIQUE)], ordered=True, dependent=True),
        Batch([_change(_U, 1)], ordered=True),
    )
    assert list(new_fields_apart(unique, lambda _: True)) == [unique]
    assert list(new_fields_apart(plain, lambda _: False)) == [plain]


def test_an_update_that_others_depend_on_keeps_its_place_though_it_adds_a_field() -> None:
    table = replace(_UNIQUE, dependence=Dependence(paths=frozenset({"mail"})))
    touching, other = _update(1, "mail", table), _update(2, "n", table)
    parts = new_fields_apart(Batch([touching, other], ordered=True, dependent=True), lambda _: True)
    assert [part.changes for part in parts] == [[touching], [other]]


def test_an_ordered_table_is_applied_as_it_comes() -> None:
    changes = [_change(kind, key, _UNIQUE) for kind, key in [(_D, 1), (_I, 2), (_I, 3), (_U, 2)]]
    assert [len(batch.changes) for batch in plan(changes, _ALONE)] == [1, 2, 1]
    assert plan(changes, _JOINED) == [Batch(changes, ordered=True, joined=True, dependent=True)]


def test_small_commands_of_a_level_are_one_where_the_server_takes_it() -> None:
    changes = [_change(_D, 1), _change(_I, 1, _BILLS), _change(_U, 2, _BILLS)]
    assert _shape(plan(changes, _JOINED)) == [(["insert 1 bills", "update 2 bills", "delete 1 orders"], False, True)]


def test_a_table_that_may_be_slow_shares_no_command() -> None:
    slow = replace(_table("slow"), id=TableId("cd" * 16))
    changes = [_change(_D, 1), _change(_U, 1, slow), _change(_D, 1, slow), _change(_U, 2, _BILLS)]
    assert _shape(plan(changes, _JOINED, lambda table: table != slow.id)) == [
        (["update 1 slow"], False, False),
        (["delete 1 slow"], False, False),
        (["update 2 bills", "delete 1 orders"], False, True),
    ]


def test_a_command_worth_its_round_trip_goes_alone() -> None:
    changes = [_change(_I, key) for key in range(100)] + [_change(_I, 1, _BILLS), _change(_D, 2, _BILLS)]
    assert [(len(batch.changes), batch.joined) for batch in plan(changes, _JOINED)] == [(100, False), (2, True)]


@pytest.mark.parametrize(
    ("limits", "sizes", "expected"),
    [
        (Limits(joined=False, changes=2), [10] * 5, [2, 2, 1]),
        (Limits(joined=False, bytes=1000), [300, 300, 5000, 10], [2, 1, 1]),
    ],
)
def test_commands_stay_within_the_limits_of_a_message(limits: Limits, sizes: list[int], expected: list[int]) -> None:
    changes = [_change(_I, key, size=size) for key, size in enumerate(sizes)]
    assert [len(batch.changes) for batch in plan(changes, limits)] == expected


def test_a_document_too_large_for_a_joined_command_goes_by_itself() -> None:
    changes = [_change(_I, 1, size=9 << 20), _change(_I, 2, _BILLS), _change(_U, 3, _BILLS, size=9 << 20)]
    assert [(len(batch.changes), batch.joined) for batch in plan(changes, _JOINED)] == [
        (1, False),
        (1, True),
        (1, False),
    ]


_TABLES = st.sampled_from([_ORDERS, _BILLS, _UNIQUE])
_CHANGES = st.lists(st.tuples(st.sampled_from(list(RowType)), st.sampled_from([1, 1.0, 2, 3, 4]), _TABLES), max_size=30)


@settings(max_examples=200)
@given(_CHANGES, st.sampled_from([_ALONE, _JOINED, Limits(joined=True, changes=3, joined_changes=2)]))
def test_the_order_that_counts_is_kept_and_no_change_is_lost(
    drawn: list[tuple[RowType, float, TargetTable]], limits: Limits
) -> None:
    changes = [_change(kind, key, table, time=time) for time, (kind, key, table) in enumerate(drawn)]
    batches = plan(changes, limits)
    planned = [change for batch in batches for change in batch.changes]
    assert sorted(change.time for change in planned) == list(range(len(changes)))
    for chain in _chains(planned):
        assert chain == sorted(chain)
    for batch in batches:
        rows = [change for change in batch.changes if change.type is not _I]
        assert batch.ordered or all(len(chain) == 1 for chain in _chains(rows))
        assert batch.joined or len({(change.table.name, phase(change)) for change in batch.changes}) == 1


def _chains(changes: Sequence[RowChange]) -> list[list[int]]:
    chains: dict[object, list[int]] = {}
    for change in changes:
        identity = change.table.name if change.table.ordered else (change.table.name, row_key(change.key))
        chains.setdefault(identity, []).append(change.time)
    return list(chains.values())


def test_no_command_is_larger_than_the_driver_sends() -> None:
    """The driver refuses more than the largest document plus a command's overhead, though servers accept messages of 48 MB."""
    changes = [_change(_I, number, size=15 << 20) for number in range(2)]
    assert [len(batch.changes) for batch in plan(changes, _ALONE)] == [1, 1]


def test_an_insert_of_a_zero_timestamp_is_an_update_and_keeps_its_place() -> None:
    zero = _change(RowType.INSERT, 2)._replace(document=bson.encode({"_id": 2, "t": Timestamp(0, 0)}))
    changes = [_change(RowType.INSERT, 1), zero, _change(RowType.UPDATE, 2), _change(RowType.INSERT, 3)]
    batches = plan(changes, Limits(joined=False))
    assert [[int(bson.decode(change.key)["_id"]) for change in batch.changes] for batch in batches] == [[1, 3], [2, 2]]
    assert [phase(batch.changes[0]) for batch in batches] == [0, 1]
    assert batches[1].ordered


HOT, CALM = TableId("hot"), TableId("calm")


def test_the_worked_example() -> None:
    sizes = CommandSizes()
    assert sizes.most(HOT, 0) == FIRST
    sizes.took(HOT, 0, 100, 0.142)
    assert sizes.most(HOT, 0) == 2
    sizes.took(HOT, 0, 2, 0.0048)
    assert sizes.most(HOT, 0) == 2
    sizes.took(CALM, 0, 100, 0.002)
    assert sizes.most(CALM, 0) == 400
    sizes.took(CALM, 0, 400, 0.008)
    assert sizes.most(CALM, 0) is None


def test_a_slow_moment_is_made_up_for_within_a_few_commands() -> None:
    sizes = CommandSizes()
    sizes.took(CALM, 0, 100, 0.002)
    sizes.took(CALM, 0, 1, 5.0)
    assert sizes.most(CALM, 0) == 1
    commands = 0
    while (most := sizes.most(CALM, 0)) is not None:
        sizes.took(CALM, 0, most, 0.002)
        commands += 1
    assert commands == 5


def test_a_small_command_says_little_about_large_ones() -> None:
    sizes = CommandSizes()
    sizes.took(HOT, 0, 100, 0.142)
    sizes.took(HOT, 0, 1, 0.002)
    assert sizes.most(HOT, 0) == 4
    sizes.took(HOT, 0, 4, 0.0076)
    assert sizes.most(HOT, 0) == 2


def test_updates_say_nothing_about_inserts() -> None:
    sizes = CommandSizes()
    sizes.took(HOT, 1, 100, 0.6)
    assert (sizes.most(HOT, 0), sizes.most(HOT, 1)) == (FIRST, 1)


def test_a_long_command_of_several_tables_says_nothing_of_each_so_they_get_commands_of_their_own() -> None:
    sizes = CommandSizes()
    assert sizes.may_share(HOT)
    sizes.took_together([HOT, CALM], 0.05)
    assert sizes.may_share(HOT)
    sizes.took_together([HOT, CALM], 0.5)
    assert (sizes.may_share(HOT), sizes.may_share(CALM)) == (False, False)
    sizes.took(HOT, 0, 1, 0.5)
    sizes.took(CALM, 0, 1, 0.002)
    assert (sizes.may_share(HOT), sizes.may_share(CALM)) == (False, True)
    sizes.took(HOT, 0, 1, 0.002)
    assert sizes.may_share(HOT)
