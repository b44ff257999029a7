"""Very many tables, packed: the same answers as from objects."""

from __future__ import annotations

import pickle
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.table import TableId, TableKind, TableName, TableSchema, view_id
from schema_store.schema_base import PackedTexts, SchemaBase

_TEXTS = st.sets(st.text(st.characters(codec="utf-8"), max_size=6), max_size=20)


@given(_TEXTS, st.text(st.characters(codec="utf-8"), max_size=6))
def test_packed_texts_are_those_that_were_packed_in_order(texts: set[str], other: str) -> None:
    packed = PackedTexts.of(texts)
    assert list(packed) == sorted(texts)
    assert [packed[place] for place in range(len(packed))] == sorted(texts)
    assert [packed.find(text) for text in sorted(texts)] == list(range(len(texts)))
    assert (other in packed) == (other in texts)
    assert list(packed)[packed.first(other) :] == sorted(text for text in texts if text >= other)


def schema(number: int, name: str, **options: object) -> TableSchema:
    at = Position(ClusterTime(100, number % 2), "82" * (number % 3))
    view = number % 5 == 0
    return TableSchema(
        id=view_id(TableName.parse(name)) if view else TableId(f"{number:032x}"),
        name=TableName.parse(name),
        kind=TableKind.VIEW if view else TableKind.COLLECTION,
        options=Document.of(options),
        indexes=() if view else (Document.of({"name": "_id_"}),),
        shard_key=Document.of({"a": 1}) if number % 7 == 0 else None,
        valid_from=at,
    )


NAMES = ["shop.a", "shop.a.b", "shop.ü", "shop-2.a", "shopping.a", "crm.z", "crm.$x", "crm.y", "s.1", "s.2", "s.3"]
SCHEMAS = [schema(number, name, size=number % 4) for number, name in enumerate(NAMES)]


def test_a_packed_table_is_found_whole_by_its_id_and_by_its_name() -> None:
    base = pickle.loads(pickle.dumps(SchemaBase.of(SCHEMAS)))
    assert [base.get(each.id) for each in SCHEMAS] == SCHEMAS
    assert [base.named(each.name) for each in SCHEMAS] == SCHEMAS
    assert list(base.all()) == sorted(SCHEMAS, key=lambda each: each.id)
    assert base.get(TableId("f" * 32)) is None
    assert base.named(TableName("shop", "b")) is None


def test_the_names_of_a_database_are_not_those_of_one_with_a_longer_name() -> None:
    base = SchemaBase.of(SCHEMAS)
    assert sorted(map(str, base.names_in("shop"))) == ["shop.a", "shop.a.b", "shop.ü"]
    assert list(base.names_in("sho")) == []


def test_a_changed_base_is_equal_to_one_of_the_same_tables() -> None:
    changed = SchemaBase.of(SCHEMAS[:8]).with_changes({SCHEMAS[3].id, SCHEMAS[5].id}.__contains__, SCHEMAS[8:])
    kept = [each for place, each in enumerate(SCHEMAS) if place not in (3, 5)]
    assert list(changed.all()) == list(SchemaBase.of(kept).all())
    assert [changed.named(each.name) for each in kept] == kept


def test_a_thousand_tables_that_differ_in_id_and_name_alone_are_small_to_send() -> None:
    alike = [schema(1, f"s.t{number}") for number in range(1_000)]
    base = SchemaBase.of(
        TableSchema(id=TableId(f"{n:032x}"), name=each.name, valid_from=each.valid_from) for n, each in enumerate(alike)
    )
    assert len(pickle.dumps(base)) < 100 * len(base)


def test_tables_that_pass_a_test_are_found_by_asking_once_for_each_form() -> None:
    asked: list[TableSchema] = []

    def sized(form: TableSchema) -> bool:
        asked.append(form)
        return bool(form.options.decode()["size"] == 3)

    forms = [schema(1, "s.a", size=size) for size in (2, 3)]
    alike = [replace(forms[n % 2], id=TableId(f"{n:032x}"), name=TableName("s", f"t{n}")) for n in range(100)]
    assert list(SchemaBase.of(alike).like(sized)) == [each.id for each in alike[1::2]]
    assert len(asked) == 2
