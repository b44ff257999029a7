"""The target's answers to the commands of the product: the model's and a real server's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
import pytest
from bson.binary import Binary
from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.mongodb.letters.dead_letter import Kept, beginning_with, ids_of, letter_update
from sink.row import RowChange, TargetTable
from tests.component.simulation.conftest import ModelTarget, RealTarget
from tests.component.simulation.served import Asked, code_of
from tests.simulation.target.letters import LETTERS

Target = ModelTarget | RealTarget

_MAJORITY = {"writeConcern": {"w": "majority", "wtimeout": 30_000}}
_OTHER = Binary(b"\1" * 16, 4)
_U = {"v": 2, "key": {"u": 1}, "name": "u_1"}
_DB = "<database>"

REFUSALS: Mapping[str, tuple[int, dict[str, Any]]] = {
    "a table that is there is made": (48, {"create": "t"}),
    "a table that is there is made, with other options": (48, {"create": "t", "validationLevel": "moderate"}),
    "an index that is there is made": (0, {"createIndexes": "t", "indexes": [_U]}),
    "another index of a name": (86, {"createIndexes": "t", "indexes": [{**_U, "key": {"f": 1}}]}),
    "an index of a name, unique now": (86, {"createIndexes": "t", "indexes": [{**_U, "unique": True}]}),
    "an index that is there under another name": (85, {"createIndexes": "t", "indexes": [{**_U, "name": "x"}]}),
    "a unique index beside a plain one": (
        0,
        {"createIndexes": "t", "indexes": [{**_U, "name": "x", "unique": True}]},
    ),
    "a unique index on duplicates": (
        11000,
        {"createIndexes": "rows", "indexes": [{**_U, "name": "x", "unique": True}]},
    ),
    "an index that is not there is dropped": (27, {"dropIndexes": "t", "index": "none"}),
    "the index on _id is dropped": (72, {"dropIndexes": "t", "index": "_id_"}),
    "an index of no table is dropped": (26, {"dropIndexes": "none", "index": "u_1"}),
    "no table is dropped": (26, {"drop": "none"}),
    "no table is modified": (26, {"collMod": "none", "validationLevel": "off"}),
    "a table is set to what it is": (0, {"collMod": "t", "validationLevel": "strict"}),
    "no table is renamed": (26, {"renameCollection": f"{_DB}.none", "to": f"{_DB}.x"}),
    "a name that is taken": (48, {"renameCollection": f"{_DB}.t", "to": f"{_DB}.rows"}),
    "a name that is taken by another than thought": (
        361,
        {"renameCollection": f"{_DB}.t", "to": f"{_DB}.rows", "dropTarget": _OTHER},
    ),
    "a name that is free, and was thought to be taken": (
        361,
        {"renameCollection": f"{_DB}.t", "to": f"{_DB}.x", "dropTarget": _OTHER},
    ),
    "a name that is free and may be taken": (
        0,
        {"renameCollection": f"{_DB}.t", "to": f"{_DB}.x", "dropTarget": True},
    ),
    **{
        f"{verb} of another table, {coll}": (361, {verb: coll, **rest, "collectionUUID": _OTHER})
        for coll in ("t", "none")
        for verb, rest in (
            ("drop", {}),
            ("collMod", {"validationLevel": "off"}),
            ("dropIndexes", {"index": "u_1"}),
            ("createIndexes", {"indexes": [_U]}),
        )
    },
    "another table is renamed": (
        361,
        {"renameCollection": f"{_DB}.t", "to": f"{_DB}.x", "collectionUUID": _OTHER},
    ),
}


@pytest.fixture
def furnished(target: Asked) -> Asked:
    """`t` is empty and has an index; `rows` has three rows, two of which share a value."""
    target.command({"create": "t", **_MAJORITY})
    target.command({"createIndexes": "t", "indexes": [_U], **_MAJORITY})
    target.command({"create": "rows", **_MAJORITY})
    rows = [{"_id": 1, "u": 1}, {"_id": 2, "u": 1}, {"_id": 3, "u": 3}]
    target.command({"insert": "rows", "documents": rows, **_MAJORITY})
    return target


@pytest.mark.parametrize("case", REFUSALS)
def test_ddl_is_done_or_refused_with_the_same_code(furnished: Asked, case: str) -> None:
    code, command = REFUSALS[case]
    body = {k: v.replace(_DB, furnished.database) if isinstance(v, str) else v for k, v in command.items()}
    database = "admin" if "renameCollection" in body else ""
    assert furnished.code({**body, **_MAJORITY}, database=database) == code


def test_an_index_of_simple_collation_is_listed_as_one_of_none(furnished: Asked) -> None:
    spec = {"v": 2, "key": {"f": 1}, "name": "f_1"}
    simple = {**spec, "collation": {"locale": "simple"}}
    assert furnished.code({"createIndexes": "t", "indexes": [simple], **_MAJORITY}) == 0
    assert furnished.indexes("t") == [{"v": 2, "key": {"_id": 1}, "name": "_id_"}, _U, spec]
    assert furnished.code({"createIndexes": "t", "indexes": [spec], **_MAJORITY}) == 0


def _answer(reply: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a reply that the product reads."""
    errors = [
        {name: error[name] for name in ("index", "code", "keyPattern", "keyValue") if name in error}
        for error in reply.get("writeErrors", ())
    ]
    return {"n": reply["n"]} | ({"errors": errors} if errors else {})


def _duplicate(index: int, field: str, value: Any) -> dict[str, Any]:
    return {"index": index, "code": 11000, "keyPattern": {field: 1}, "keyValue": {field: value}}


def test_rows_are_written_or_refused_one_by_one(target: Asked) -> None:
    target.command({"create": "t", **_MAJORITY})
    target.command({"createIndexes": "t", "indexes": [{**_U, "unique": True}], **_MAJORITY})

    def said(command: dict[str, Any]) -> dict[str, Any]:
        return _answer(target.command({**command, **_MAJORITY}))

    def update(key: Any, change: dict[str, Any], *, upsert: bool = False) -> dict[str, Any]:
        return said({"update": "t", "updates": [{"q": {"_id": key}, "u": change, "upsert": upsert}]})

    assert said({"insert": "t", "documents": [{"_id": 1, "u": 1}, {"_id": 2, "u": 2}]}) == {"n": 2}
    mixed = [{"_id": 1, "u": 9}, {"_id": 3, "u": 2}, {"_id": 4, "u": 4}]
    both = [_duplicate(0, "_id", 1), _duplicate(1, "u", 2)]
    assert said({"insert": "t", "documents": mixed, "ordered": False}) == {"n": 1, "errors": both}
    assert said({"insert": "t", "documents": mixed}) == {"n": 0, "errors": both[:1]}
    assert update(1, {"$set": {"u": 2}}) == {"n": 0, "errors": [_duplicate(0, "u", 2)]}
    assert update(1, {"_id": 1, "u": 5}) == {"n": 1}
    assert update(7, {"_id": 7, "u": 7}, upsert=True) == {"n": 1}
    assert update(8, {"$set": {"u": 8}}) == {"n": 0}
    assert said({"delete": "t", "deletes": [{"q": {"_id": 8}, "limit": 1}]}) == {"n": 0}
    assert said({"delete": "t", "deletes": [{"q": {"_id": 7}, "limit": 1}]}) == {"n": 1}
    assert said({"delete": "none", "deletes": [{"q": {"_id": 7}, "limit": 1}]}) == {"n": 0}


def _exchange(target: Asked, between: Any = None) -> int:
    """Exchanges values in one transaction as the product does: the value of 1 is freed before 2 takes it."""

    def act() -> None:
        database = target.client[target.database]
        with target.client.start_session() as session, session.start_transaction():
            for key, value in ((1, 99), (2, 1), (1, 2)):
                statement = {"q": {"_id": key}, "u": {"$set": {"u": value}}}
                reply = database.command({"update": "t", "updates": [statement]}, session=session)
                for error in reply.get("writeErrors", ()):
                    raise OperationFailure(error["errmsg"], error["code"])
                if between is not None and value == 99:
                    between(database)

    return code_of(lambda: target.call(act))


@pytest.fixture
def two_rows(target: Asked) -> Asked:
    target.command({"create": "t", **_MAJORITY})
    target.command({"insert": "t", "documents": [{"_id": 1, "u": 1}, {"_id": 2, "u": 2}], **_MAJORITY})
    target.command({"createIndexes": "t", "indexes": [{**_U, "unique": True}], **_MAJORITY})
    return target


def test_two_rows_exchange_their_values_in_a_transaction(two_rows: Asked) -> None:
    assert _exchange(two_rows) == 0
    assert _refused(two_rows, {"_id": 3, "u": 1}) == 11000
    two_rows.command({"delete": "t", "deletes": [{"q": {"_id": 2}, "limit": 1}], **_MAJORITY})
    assert _refused(two_rows, {"_id": 3, "u": 1}) == 0, "2 had the value of 1"


def test_a_transaction_whose_row_another_has_changed_is_refused_whole(two_rows: Asked) -> None:
    def change(database: Any) -> None:
        database.command({"update": "t", "updates": [{"q": {"_id": 2}, "u": {"$set": {"f": 1}}}], **_MAJORITY})

    assert _exchange(two_rows, change) in (112, 251)
    assert _refused(two_rows, {"_id": 3, "u": 1}) == 11000


def _refused(target: Asked, row: dict[str, Any]) -> int:
    reply = target.command({"insert": "t", "documents": [row], **_MAJORITY})
    return int(next((error["code"] for error in reply.get("writeErrors", ())), 0))


def test_an_index_that_is_dropped_while_it_is_built_is_none_and_its_builder_hears_of_it(slow_target: Target) -> None:
    target = slow_target
    target.command({"insert": "t", "documents": [{"_id": 1, "u": 1}], **_MAJORITY})
    building = target.served.begin(lambda: _build(target))
    target.served.until(lambda: len(target.indexes("t")) == 2)
    assert not building.done, "an index is listed as soon as its build starts"
    refused = target.code({"collMod": "t", "validationLevel": "off", **_MAJORITY})
    assert target.code({"dropIndexes": "t", "index": "u_1", **_MAJORITY}) == 0
    assert (refused, building.result()) == (12587, 276)
    assert [index["name"] for index in target.indexes("t")] == ["_id_"]


def _build(target: Asked) -> int:
    command = {"createIndexes": "t", "indexes": [_U], **_MAJORITY}
    return code_of(lambda: target.client[target.database].command(command))


def test_rows_are_written_while_an_index_is_built(slow_target: Target) -> None:
    target = slow_target
    target.command({"create": "t", **_MAJORITY})
    target.command({"insert": "t", "documents": [{"_id": 1, "u": 1}], **_MAJORITY})
    building = target.served.begin(lambda: _build(target))
    target.served.until(lambda: len(target.indexes("t")) == 2)
    assert _refused(target, {"_id": 2, "u": 2}) == 0
    assert not building.done
    target.let_go()
    assert building.result() == 0


def test_what_no_majority_has_is_there_and_said_not_to_last(slow_target: Target) -> None:
    target = slow_target
    target.command({"create": "t", **_MAJORITY})
    brief = {"writeConcern": {"w": "majority", "wtimeout": 100}}
    with target.majority_held():
        replies = [
            target.command({"insert": "t", "documents": [{"_id": 1}], **brief}),
            target.command({"create": "made", **brief}),
            target.command({"delete": "none", "deletes": [{"q": {"_id": 3}, "limit": 1}], **brief}),
            target.command({"drop": "made", **brief}),
        ]
        with pytest.raises(OperationFailure) as refused:
            target.command({"drop": "made", **brief})
    assert [reply["writeConcernError"]["code"] for reply in replies] == [64] * 4
    assert replies[0]["n"] == 1
    assert refused.value.code == 26
    assert (refused.value.details or {})["writeConcernError"]["code"] == 64, "what it tells of need not last either"
    assert "writeConcernError" not in target.command({"insert": "t", "documents": [{"_id": 2}], **_MAJORITY})


def test_who_waits_for_the_majority_hears_of_a_stepdown_beside_its_effect(slow_target: Target) -> None:
    target = slow_target
    target.command({"create": "t", **_MAJORITY})
    with target.majority_held():
        insert = {"insert": "t", "documents": [{"_id": 1}], **_MAJORITY}
        waiting = target.served.begin(lambda: target.client[target.database].command(insert))
        target.served.until(lambda: target.rows("t") == [1])
        target.step_down()
        reply = waiting.result()
    assert (reply["n"], reply["writeConcernError"]["code"]) == (1, 11602)


def test_an_answer_says_in_which_term_it_was_given(target: Target) -> None:
    def terms() -> list[object]:
        nothing = {"delete": "none", "deletes": [{"q": {"_id": 1}, "limit": 1}], **_MAJORITY}
        return [target.admin({"hello": 1})["electionId"], target.command(nothing)["electionId"]]

    one, same = terms()
    target.step_down()
    target.served.until(target.writable)
    other, same_again = terms()
    assert one == same
    assert other == same_again
    assert one != other


def test_who_builds_an_index_hears_of_a_stepdown_and_the_build_goes_on(slow_target: Target) -> None:
    target = slow_target
    target.command({"create": "t", **_MAJORITY})
    target.command({"insert": "t", "documents": [{"_id": 1, "u": 1}], **_MAJORITY})
    building = target.served.begin(lambda: _build(target))
    target.served.until(lambda: len(target.indexes("t")) == 2)
    target.step_down()
    assert building.result() == 11602
    target.let_go()
    target.served.until(target.writable)
    assert target.call(lambda: _build(target)) == 0, "it joins the build, or finds it done"


def test_a_dead_letter_is_written_renewed_asked_for_and_deleted(target: Asked) -> None:
    feed, table = target.database, TableId("a" * 32)
    mounted = TargetTable(id=table, name=TableName("shop", "a"), source=TableName("shop", "a"))
    key = bson.encode({"_id": 7})
    first = RowChange(mounted, RowType.INSERT, key, key, None, ClusterTime(100, 1).to_int(), b"")
    rejected = letter_update(feed, first, "no")
    again = letter_update(feed, first._replace(time=ClusterTime(100, 2).to_int()), "not now either")
    other = letter_update(feed, first._replace(key=bson.encode({"_id": 8})), "no")
    id = rejected["q"]["_id"]

    def said(command: dict[str, Any]) -> int:
        return int(target.command({**command, **_MAJORITY}, database=LETTERS.db)["n"])

    def found(condition: Mapping[str, Any]) -> list[dict[str, Any]]:
        command = {"find": LETTERS.coll, "filter": condition, "singleBatch": True, "batchSize": 10}
        reply = target.command(command, database=LETTERS.db)
        return [bson.decode(bson.encode(letter)) for letter in reply["cursor"]["firstBatch"]]

    for statement in (rejected, again, other):
        assert said({"update": LETTERS.coll, "updates": [statement]}) == 1
    [letter] = found({"_id": {"$in": [id]}})
    facts = {name: letter[name] for name in ("first_position", "position", "tries", "error", "changefeed", "table_id")}
    assert facts == {
        "first_position": "100.1",
        "position": "100.2",
        "tries": 2,
        "error": "not now either",
        "changefeed": feed,
        "table_id": table,
    }
    assert letter["event"]["key"] == key
    assert letter["first_rejected_at"] <= letter["rejected_at"]
    ranges = [{"_id": beginning_with(ids_of(feed, Kept.LETTER, each))} for each in (table, TableId("b" * 32))]
    assert len(found({"$or": ranges})) == 2
    assert found({"_id": beginning_with(ids_of(feed, Kept.REQUEST))}) == []
    assert said({"delete": LETTERS.coll, "deletes": [{"q": {"_id": {"$in": [id]}}, "limit": 0}]}) == 1
    assert said({"delete": LETTERS.coll, "deletes": [{"q": letter, "limit": 0}]}) == 0
    earlier = {"_id": beginning_with(ids_of(feed)), "changefeed": {"$exists": False}}
    assert said({"delete": LETTERS.coll, "deletes": [{"q": earlier, "limit": 0}]}) == 0
    assert said({"delete": LETTERS.coll, "deletes": [{"q": ranges[0], "limit": 0}]}) == 1
