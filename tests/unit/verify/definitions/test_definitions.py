"""Reports about tables, options and indexes, and the differences that the configuration explains."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.records.ddl import ObservedTable
from changefeed.table import TableId, TableKind, TableName, TableSchema
from verify.comparison import LOOKS, Passed
from verify.definitions import Definition, Pair, definition_results, excuses, settled_definitions
from verify.report import Aspect, DifferenceKind, Outcome

NAME = TableName("shop", "orders")
ON_ID = Document.of({"v": 2, "key": {"_id": 1}, "name": "_id_"})
ON_A = Document.of({"v": 2, "key": {"a": 1}, "name": "a_1", "expireAfterSeconds": 60})
ON_A_NEVER = Document.of({"v": 2, "key": {"a": 1}, "name": "a_1", "expireAfterSeconds": 2**31 - 1})


def configuration(**fields: Any) -> Configuration:
    return Configuration.parse({"id": "f", "source": "mongodb://a", "sink": "mongodb://b", **fields})


def ignoring(*types: str) -> Configuration:
    return configuration(filter={"events": [{"tables": ["shop.*"], "ignore": list(types)}]})


def schema(*indexes: Document, name: TableName = NAME, **options: Any) -> TableSchema:
    kind = TableKind.VIEW if "viewOn" in options else TableKind.COLLECTION
    position = Position(ClusterTime(1, 1))
    return TableSchema(
        id=TableId(str(name)),
        name=name,
        kind=kind,
        options=Document.of(options),
        indexes=(ON_ID, *indexes),
        valid_from=position,
    )


def observed(*indexes: Document, **options: Any) -> ObservedTable:
    return ObservedTable(uuid=None, options=Document.of(options), indexes=(ON_ID, *indexes))


def pair(*sources: TableSchema, target: ObservedTable | None) -> Pair:
    origins = tuple(source.name for source in sources) or (NAME,)
    return Pair(name=NAME, origins=origins, sources=sources, target=target)


def outcomes(found: Pair, feed: Configuration | None = None) -> dict[Aspect, Outcome]:
    results = definition_results(found, feed or configuration())
    return {aspect: result.outcome for aspect, result in results.items()}


def test_tables_with_the_same_options_and_indexes_are_equal() -> None:
    found = pair(schema(ON_A, capped=True, size=4096), target=observed(ON_A_NEVER, capped=True, size=4096.0))
    assert set(outcomes(found).values()) == {Outcome.EQUAL}


def test_options_and_indexes_that_differ_are_named() -> None:
    found = pair(schema(ON_A, validator={"a": 1}), target=observed(validator={"a": 2}))
    results = definition_results(found, configuration())
    assert results[Aspect.OPTIONS].details == ("validator is {'a': 1} at the source, {'a': 2} at the target",)
    assert results[Aspect.INDEXES].details == ("index a_1 is missing at the target",)


def test_a_true_expiry_at_the_target_counts_only_when_it_is_copied() -> None:
    found = pair(schema(ON_A), target=observed(ON_A_NEVER))
    copied = configuration(ddl={"ttl": "copied"})
    assert outcomes(found, copied)[Aspect.INDEXES] is Outcome.DIFFERENT


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pair(schema(), target=None), "missing at the target"),
        (pair(target=observed()), "at the target only"),
        (pair(schema(), target=observed(viewOn="a", pipeline=[])), "a collection at the source, a view at the target"),
    ],
)
def test_a_table_on_one_side_only_or_of_another_kind_is_all_that_is_said(found: Pair, said: str) -> None:
    results = definition_results(found, configuration())
    assert list(results) == [Aspect.TABLE]
    assert results[Aspect.TABLE].outcome is Outcome.DIFFERENT
    assert said in results[Aspect.TABLE].details[0]


@pytest.mark.parametrize(
    ("found", "ignored", "aspect"),
    [
        (pair(schema(), target=None), "create", Aspect.TABLE),
        (pair(target=observed()), "drop", Aspect.TABLE),
        (pair(schema(ON_A), target=observed()), "createIndexes", Aspect.INDEXES),
        (pair(schema(), target=observed(ON_A)), "dropIndexes", Aspect.INDEXES),
        (pair(schema(validator={"a": 1}), target=observed()), "modify", Aspect.OPTIONS),
    ],
)
def test_what_an_ignored_ddl_leaves_behind_is_not_comparable(found: Pair, ignored: str, aspect: Aspect) -> None:
    assert outcomes(found)[aspect] is Outcome.DIFFERENT
    result = definition_results(found, ignoring(ignored))[aspect]
    assert result.outcome is Outcome.NOT_COMPARABLE
    assert result.details[-1] == f"the changefeed ignores {ignored} events of shop.orders"


def test_a_view_reads_the_routed_name() -> None:
    feed = configuration(routes=[{"from": "shop.*", "to": "shop.copy_*"}])
    found = pair(schema(viewOn="items", pipeline=[]), target=observed(viewOn="copy_items", pipeline=[]))
    assert outcomes(found, feed)[Aspect.OPTIONS] is Outcome.EQUAL
    assert outcomes(found)[Aspect.OPTIONS] is Outcome.DIFFERENT


def test_unlike_tables_under_one_name_have_no_options_to_compare_with() -> None:
    other = schema(ON_A, name=TableName("shop", "other"), validator={"a": 1})
    found = outcomes(pair(schema(), other, target=observed()))
    assert found == {
        Aspect.TABLE: Outcome.EQUAL,
        Aspect.OPTIONS: Outcome.NOT_COMPARABLE,
        Aspect.INDEXES: Outcome.NOT_COMPARABLE,
    }


@pytest.mark.parametrize(
    ("rule", "kinds"),
    [
        ({"ignore": ["insert"]}, {DifferenceKind.MISSING}),
        ({"ignore": ["delete", "replace"]}, {DifferenceKind.EXTRA, DifferenceKind.CHANGED}),
        ({"ignore_where": {"insert": {"level": 1}}}, {DifferenceKind.MISSING}),
        ({"ignore_where": {"update_new": {"level": 1}}}, {DifferenceKind.CHANGED}),
        ({"ignore": ["drop"]}, set()),
    ],
)
def test_ignored_rows_excuse_what_they_leave_behind(rule: dict[str, Any], kinds: set[DifferenceKind]) -> None:
    feed = configuration(filter={"events": [{"tables": ["shop.orders"], **rule}]})
    assert set(excuses(pair(schema(), target=observed()), feed)) == kinds
    elsewhere = configuration(filter={"events": [{"tables": ["shop.items"], **rule}]})
    assert excuses(pair(schema(), target=observed()), elsewhere) == {}


def looks(*found: Pair) -> tuple[list[Definition], int]:
    """The result of these looks, one after the other, and the number of waits for replication."""
    waits = 0
    remaining = list(found)

    def wait() -> Passed:
        nonlocal waits
        waits += 1
        return Passed.PASSED

    def look() -> list[Definition]:
        now = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return [Definition(now, definition_results(now, configuration()))]

    return list(settled_definitions(look, wait)), waits


def test_equal_tables_are_looked_at_once() -> None:
    (definition,), waits = looks(pair(schema(), target=observed()))
    assert (definition.different, waits) == (False, 0)


def test_a_ddl_on_its_way_is_no_difference() -> None:
    (definition,), waits = looks(pair(schema(ON_A), target=observed()), pair(schema(ON_A), target=observed(ON_A)))
    assert (definition.different, waits) == (False, 1)


def test_what_stays_different_when_replication_has_passed_is_a_difference() -> None:
    lacking = pair(schema(ON_A), target=observed())
    (definition,), waits = looks(lacking, lacking)
    assert (definition.different, waits) == (True, 1)


def test_a_table_that_changes_meanwhile_is_looked_at_again() -> None:
    (definition,), waits = looks(
        pair(schema(ON_A), target=observed()), pair(schema(), target=observed(ON_A)), pair(schema(), target=observed())
    )
    assert (definition.different, waits) == (False, 2)


def test_a_definition_that_never_rests_is_unsettled() -> None:
    changing = [pair(schema(validator={"a": number}), target=observed()) for number in range(LOOKS)]
    (definition,), _ = looks(*changing)
    assert definition.results[Aspect.OPTIONS].outcome is Outcome.UNSETTLED
