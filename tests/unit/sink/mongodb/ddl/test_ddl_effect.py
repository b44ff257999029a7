from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from changefeed.config.configuration import Ttl
from changefeed.documents.document import EMPTY, Document
from changefeed.event import DdlType
from changefeed.records.ddl import Observation, ObservedTable
from changefeed.table import TableName
from sink.ddl import (
    CreateIndexes,
    CreateTable,
    DropIndexes,
    DropTables,
    ModifyTable,
    RenameTable,
    ReplaceView,
    ShardTable,
    SingleDdl,
    Skip,
)
from sink.mongodb.ddl.ddl_effect import DdlEffect, effect, refusal

A, B = TableName("shop", "a"), TableName("shop", "b")
ELSEWHERE = TableName("archive", "a")
_ID = {"v": 2, "key": {"_id": 1}, "name": "_id_"}
INDEX = {"v": 2, "key": {"x": 1}, "name": "x_1"}


def table(digit: str, *indexes: Mapping[str, Any], **options: Any) -> ObservedTable:
    return ObservedTable(
        uuid=digit * 32,
        options=Document.of(options) if options else EMPTY,
        indexes=tuple(map(Document.of, [_ID, *indexes])),
    )


def view(on: str) -> ObservedTable:
    return ObservedTable(uuid=None, options=Document.of({"viewOn": on, "pipeline": []}), indexes=())


def of(ddl: SingleDdl, before: Mapping[TableName, Any], now: Mapping[TableName, Any]) -> DdlEffect:
    return effect(ddl, Observation(tables=before), Observation(tables=now), Ttl.DEFERRED)


def create(**options: Any) -> CreateTable:
    return CreateTable(name=A, options=Document.of(options))


REPLACING = RenameTable(name=A, to=B, replaces=True)
RENAME = RenameTable(name=A, to=B, replaces=False)
ACROSS = RenameTable(name=A, to=ELSEWHERE, replaces=False)


def test_a_create_is_absent_while_the_name_is_free_and_present_once_such_a_table_is_there() -> None:
    assert of(create(capped=True, size=4096), {A: None}, {A: None}) is DdlEffect.ABSENT
    assert of(create(capped=True, size=4096), {A: None}, {A: table("1", capped=True, size=4096)}) is DdlEffect.PRESENT


def test_a_create_with_another_table_under_its_name_is_unclear() -> None:
    assert of(create(capped=True, size=4096), {A: None}, {A: table("1")}) is DdlEffect.UNCLEAR


def test_a_created_view_is_known_by_its_definition() -> None:
    assert of(create(viewOn="x", pipeline=[]), {A: None}, {A: view("x")}) is DdlEffect.PRESENT
    assert of(create(viewOn="x", pipeline=[]), {A: None}, {A: view("y")}) is DdlEffect.UNCLEAR


def test_a_view_is_replaced_unless_it_is_equal_and_never_a_collection() -> None:
    replaced = ReplaceView(name=A, options=Document.of({"viewOn": "x", "pipeline": []}))
    for before in ({A: None}, {A: view("y")}, {A: view("x")}):
        assert of(replaced, before, {A: None}) is DdlEffect.ABSENT
        assert of(replaced, before, {A: view("y")}) is DdlEffect.ABSENT
        assert of(replaced, before, {A: view("x")}) is DdlEffect.PRESENT
        assert of(replaced, before, {A: table("1")}) is DdlEffect.UNCLEAR
        assert refusal(replaced, Observation(tables=before), Ttl.DEFERRED) is None
    assert "is no view" in (refusal(replaced, Observation(tables={A: table("1")}), Ttl.DEFERRED) or "")


def test_a_drop_is_present_when_all_are_gone_and_absent_while_one_is_left() -> None:
    drop = DropTables(names=(A, B))
    before = {A: table("1"), B: table("2")}
    assert of(drop, before, before) is DdlEffect.ABSENT
    assert of(drop, before, {A: None, B: table("2")}) is DdlEffect.ABSENT
    assert of(drop, before, {A: None, B: None}) is DdlEffect.PRESENT


def test_a_drop_of_what_was_never_there_is_present() -> None:
    assert of(DropTables(names=(A,)), {A: None}, {A: None}) is DdlEffect.PRESENT


def test_a_table_made_anew_under_the_name_is_never_dropped() -> None:
    assert of(DropTables(names=(A,)), {A: table("1")}, {A: table("9")}) is DdlEffect.UNCLEAR
    assert of(DropTables(names=(A,)), {A: None}, {A: table("9")}) is DdlEffect.UNCLEAR


def test_a_view_that_took_a_tables_name_is_not_that_table() -> None:
    assert of(DropTables(names=(A,)), {A: table("1")}, {A: view("x")}) is DdlEffect.UNCLEAR
    assert of(DropTables(names=(A,)), {A: view("x")}, {A: view("x")}) is DdlEffect.ABSENT


def test_a_view_that_took_the_name_of_a_table_without_uuid_is_not_that_table() -> None:
    timeseries = ObservedTable(uuid=None, options=Document.of({"timeseries": {"timeField": "t"}}), indexes=())
    assert of(DropTables(names=(A,)), {A: timeseries}, {A: timeseries}) is DdlEffect.ABSENT
    assert of(DropTables(names=(A,)), {A: timeseries}, {A: view("x")}) is DdlEffect.UNCLEAR


def test_a_rename_is_decided_by_where_the_old_uuid_is() -> None:
    assert of(RENAME, {A: table("1"), B: None}, {A: table("1"), B: None}) is DdlEffect.ABSENT
    assert of(RENAME, {A: table("1"), B: None}, {A: None, B: table("1")}) is DdlEffect.PRESENT


def test_a_rename_onto_another_table_is_decided_by_which_uuid_has_the_name() -> None:
    before = {A: table("1"), B: table("2")}
    assert of(REPLACING, before, before) is DdlEffect.ABSENT
    assert of(REPLACING, before, {A: None, B: table("1")}) is DdlEffect.PRESENT
    assert of(REPLACING, before, {A: None, B: table("2")}) is DdlEffect.UNCLEAR


def test_a_rename_that_has_only_dropped_what_it_replaces_goes_on() -> None:
    assert of(REPLACING, {A: table("1"), B: table("2")}, {A: table("1"), B: None}) is DdlEffect.ABSENT
    assert of(RENAME, {A: table("1"), B: table("2")}, {A: table("1"), B: None}) is DdlEffect.UNCLEAR


def test_a_rename_whose_names_swapped_hands_is_unclear() -> None:
    assert of(REPLACING, {A: table("1"), B: table("2")}, {A: table("2"), B: table("1")}) is DdlEffect.UNCLEAR


def test_a_rename_across_databases_is_a_copy_that_looks_like_the_original() -> None:
    before = {A: table("1", INDEX, capped=True, size=4096), ELSEWHERE: None}
    copied = table("9", INDEX, capped=True, size=4096)
    assert of(ACROSS, before, {A: None, ELSEWHERE: copied}) is DdlEffect.PRESENT
    assert of(ACROSS, before, {A: None, ELSEWHERE: table("9")}) is DdlEffect.UNCLEAR


def test_a_rename_across_databases_cut_off_before_the_original_was_dropped_is_unclear() -> None:
    before = {A: table("1"), ELSEWHERE: None}
    assert of(ACROSS, before, {A: table("1"), ELSEWHERE: table("9")}) is DdlEffect.UNCLEAR


@pytest.mark.parametrize(
    "ddl",
    [
        CreateIndexes(name=A, indexes=(Document.of(INDEX),)),
        DropIndexes(name=A, indexes=("x_1",)),
        ModifyTable(name=A, changes=Document.of({"validator": {}})),
        ShardTable(name=A, how=DdlType.SHARD_COLLECTION, description=EMPTY),
    ],
)
def test_what_can_be_repeated_is_repeated_on_the_same_table_only(ddl: SingleDdl) -> None:
    assert of(ddl, {A: table("1")}, {A: table("1", INDEX)}) is DdlEffect.ABSENT
    assert of(ddl, {A: table("1")}, {A: table("2")}) is DdlEffect.UNCLEAR
    assert of(ddl, {A: table("1")}, {A: None}) is DdlEffect.UNCLEAR


def test_a_listed_index_does_not_prove_that_its_build_is_done() -> None:
    ddl = CreateIndexes(name=A, indexes=(Document.of(INDEX),))
    assert of(ddl, {A: table("1")}, {A: table("1", INDEX)}) is DdlEffect.ABSENT


def test_resharding_shows_by_the_new_uuid() -> None:
    ddl = ShardTable(name=A, how=DdlType.RESHARD_COLLECTION, description=EMPTY)
    assert of(ddl, {A: table("1")}, {A: table("1")}) is DdlEffect.ABSENT
    assert of(ddl, {A: table("1")}, {A: table("2")}) is DdlEffect.PRESENT
    assert of(ddl, {A: table("1")}, {A: None}) is DdlEffect.UNCLEAR


def test_a_skip_is_always_done() -> None:
    assert of(Skip(note=""), {}, {}) is DdlEffect.PRESENT


def why_not(ddl: SingleDdl, before: Mapping[TableName, ObservedTable | None]) -> str | None:
    return refusal(ddl, Observation(tables=before), Ttl.DEFERRED)


def test_a_create_over_a_table_with_other_options_is_refused_with_the_difference() -> None:
    reason = why_not(create(capped=True, size=8192), {A: table("1")})
    assert reason is not None
    assert "capped is True at the source, absent at the target" in reason
    assert "Drop it there" in reason


def test_a_create_over_an_alike_table_is_not_refused() -> None:
    assert why_not(create(validationLevel="strict"), {A: table("1")}) is None


@pytest.mark.parametrize(
    "ddl",
    [
        CreateIndexes(name=A, indexes=()),
        DropIndexes(name=A, indexes=()),
        ModifyTable(name=A, changes=EMPTY),
        RENAME,
    ],
)
def test_a_ddl_on_a_table_that_is_not_there_is_refused_and_never_creates_it(ddl: SingleDdl) -> None:
    reason = why_not(ddl, {A: None, B: None})
    assert reason is not None
    assert "shop.a does not exist at the target" in reason


def test_a_rename_never_replaces_a_table_that_only_the_target_has() -> None:
    reason = why_not(RENAME, {A: table("1"), B: table("2")})
    assert reason is not None
    assert "shop.b exists at the target, but not at the source" in reason
    assert why_not(REPLACING, {A: table("1"), B: table("2")}) is None
