"""Which rows a unique index lets in, and what a refusal says: the models of target and source, and a real server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.component.simulation.conftest import Source
from tests.component.simulation.served import Asked
from tests.simulation.unique_rows import KINDS

_MAJORITY = {"writeConcern": {"w": "majority", "wtimeout": 30_000}}
_SPECS: Mapping[str, Mapping[str, Any]] = {
    **{kind.name: kind.spec for kind in KINDS},
    "tags": {"key": {"tags": 1}, "name": "tags"},
    "sparse array": {"key": {"m.z": 1}, "name": "sparse array", "sparse": True},
    "sparse compound": {"key": {"p": 1, "q": 1}, "name": "sparse compound", "sparse": True},
    "compound array": {"key": {"p": 1, "m.z": 1}, "name": "compound array"},
    "with a field": {"key": {"w": 1}, "name": "with a field", "partialFilterExpression": {"on": {"$exists": True}}},
}


@dataclass(frozen=True)
class Case:
    """One row beside another. `taken`: the values in the refusal; None: both may be there."""

    index: str
    one: dict[str, Any]
    other: dict[str, Any]
    taken: dict[str, Any] | None = None


_ON = {"w": 1, "on": 2}
_NESTED_ON = {"e": {"id": 1, "on": 1}}
_CASES = (
    Case("u_1", {"u": 1}, {"u": 1}, {"u": 1}),
    Case("u_1", {"u": 1}, {"u": 2}),
    Case("u_1", {"u": 1}, {"u": "1"}),
    Case("u_1", {"u": 1}, {}),
    Case("u_1", {}, {}, {"u": None}),
    Case("u_1", {}, {"u": None}, {"u": None}),
    Case("p_1_q_1", {"p": 1, "q": 1}, {"p": 1, "q": 1}, {"p": 1, "q": 1}),
    Case("p_1_q_1", {"p": 1, "q": 1}, {"p": 1, "q": 2}),
    Case("p_1_q_1", {"p": 1}, {"p": 1, "q": None}, {"p": 1, "q": None}),
    Case("p_1_q_1", {"p": 1}, {"q": 1}),
    Case("k.a_1", {"k": {"a": 1}}, {"k": {"a": 1, "b": 2}}, {"k.a": 1}),
    Case("k.a_1", {"k": {"b": 1}}, {}, {"k.a": None}),
    Case("k.a_1", {"k": 5}, {"k": {"a": 5}}),
    Case("m.z_1", {"m": [{"z": 1}, {"z": 2}]}, {"m": [{"z": 3}, {"z": 2}]}, {"m.z": 2}),
    Case("m.z_1", {"m": [{"z": 3}, {"z": 10}, {"z": 9}]}, {"m": [{"z": 10}, {"z": 9}]}, {"m.z": 9}),
    Case("m.z_1", {"m": [{"z": 1}, {"z": 1}]}, {"m": [{"z": 2}, {"z": 2}]}),
    Case("m.z_1", {"m": [{"z": 1}, {}]}, {"m": [{"z": 2}]}),
    Case("m.z_1", {"m": [{"z": 1}, {}]}, {"m": []}, {"m.z": None}),
    Case("m.z_1", {"m": []}, {}, {"m.z": None}),
    Case("m.z_1", {"m": [7]}, {"m": [{"z": 7}]}),
    Case("m.z_1", {"m": [7]}, {}, {"m.z": None}),
    Case("m.z_1", {"m": {"z": 1}}, {"m": [{"z": 1}]}, {"m.z": 1}),
    Case("tags", {"tags": [1, 2]}, {"tags": 2}, {"tags": 2}),
    Case("tags", {"tags": []}, {}),
    Case("tags", {"tags": []}, {"tags": []}, {"tags": None}),
    Case("tags", {"tags": [None]}, {}, {"tags": None}),
    Case("sparse array", {"m": [{"z": 1}, {}]}, {"m": [{}]}),
    Case("sparse array", {"m": []}, {"m": []}),
    Case("sparse array", {"m": [{"z": None}]}, {"m": [{"z": None}, {}]}, {"m.z": None}),
    Case("sparse compound", {}, {}),
    Case("sparse compound", {"p": 1}, {"p": 1}, {"p": 1, "q": None}),
    Case("compound array", {"p": 1, "m": [{"z": 1}, {"z": 2}]}, {"p": 1, "m": [{"z": 2}]}, {"p": 1, "m.z": 2}),
    Case("compound array", {"p": 1, "m": [{"z": 1}, {"z": 2}]}, {"p": 2, "m": [{"z": 2}]}),
    Case("s_1", {}, {}),
    Case("s_1", {"s": None}, {}),
    Case("s_1", {"s": None}, {"s": None}, {"s": None}),
    Case("s_1", {"s": 1}, {"s": 1}, {"s": 1}),
    Case("w_1", _ON, _ON, {"w": 1}),
    Case("w_1", _ON, {**_ON, "on": 0}),
    Case("w_1", _ON, {**_ON, "on": "2"}),
    Case("w_1", {"w": 1}, _ON),
    Case("w_1", {"on": 1}, {"on": 1}, {"w": None}),
    Case("e.id_1", _NESTED_ON, _NESTED_ON, {"e.id": 1}),
    Case("e.id_1", _NESTED_ON, {"e": {"id": 1, "on": 2}}),
    Case("e.id_1", _NESTED_ON, {"e": {"id": 1}}),
    Case("with a field", {"w": 1, "on": None}, {"w": 1, "on": 1}, {"w": 1}),
    Case("with a field", {"w": 1}, {"w": 1, "on": 1}),
)


def _of(index: str) -> tuple[dict[str, Any], list[Case]]:
    return {"v": 2, **_SPECS[index], "unique": True}, [case for case in _CASES if case.index == index]


def _errors(target: Asked, command: dict[str, Any]) -> list[dict[str, Any]]:
    reply = target.command({**command, **_MAJORITY})
    return [
        {name: error[name] for name in ("code", "keyPattern", "keyValue")} for error in reply.get("writeErrors", ())
    ]


@pytest.mark.parametrize("index", _SPECS)
def test_a_target_refuses_a_row_whose_value_another_has(target: Asked, index: str) -> None:
    spec, cases = _of(index)
    target.command({"create": "t", **_MAJORITY})
    target.command({"createIndexes": "t", "indexes": [spec], **_MAJORITY})
    for case in cases:
        one, other = {"_id": 1, **case.one}, {"_id": 2, **case.other}
        refused = [{"code": 11000, "keyPattern": spec["key"], "keyValue": case.taken}] if case.taken else []
        upsert = {"update": "t", "updates": [{"q": {"_id": 2}, "u": other, "upsert": True}]}
        assert _errors(target, {"insert": "t", "documents": [one]}) == []
        assert _errors(target, {"insert": "t", "documents": [other]}) == refused, case
        assert _errors(target, upsert) == refused, case
        assert _errors(target, {"update": "t", "updates": [{"q": {"_id": 1}, "u": one}]}) == [], "it has its own value"
        assert _errors(target, _delete(1)) == []
        assert _errors(target, upsert) == [], "nobody has it any more"
        assert _errors(target, _delete(2)) == []


def _delete(key: int) -> dict[str, Any]:
    return {"delete": "t", "deletes": [{"q": {"_id": key}, "limit": 1}]}


@pytest.mark.parametrize("index", _SPECS)
def test_a_target_builds_no_unique_index_where_two_rows_have_a_value(target: Asked, index: str) -> None:
    spec, cases = _of(index)
    for number, case in enumerate(cases):
        rows = [{"_id": 1, **case.one}, {"_id": 2, **case.other}]
        target.command({"create": f"t{number}", **_MAJORITY})
        target.command({"insert": f"t{number}", "documents": rows, **_MAJORITY})
        code = target.code({"createIndexes": f"t{number}", "indexes": [spec], **_MAJORITY})
        assert code == (11000 if case.taken else 0), case


@pytest.mark.parametrize("index", _SPECS)
def test_a_source_refuses_a_row_whose_value_another_has(source: Source, index: str) -> None:
    life, (spec, cases) = source.life, _of(index)
    life.create("t")
    assert life.create_index("t", spec) == 0
    for case in cases:
        assert life.insert("t", {"_id": 1, **case.one}) == 0
        assert life.insert("t", {"_id": 2, **case.other}) == (11000 if case.taken else 0), case
        for key in (1, 2):
            life.delete("t", key)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_row_that_gives_its_value_away_leaves_it_to_another(target: Asked, kind: Any) -> None:
    target.command({"create": "t", **_MAJORITY})
    target.command({"createIndexes": "t", "indexes": [dict(kind.spec)], **_MAJORITY})
    part = kind.made(5)
    released = kind.released(part, kind.made(2001))
    taker = {"insert": "t", "documents": [{"_id": 2, **released.value}]}
    assert _errors(target, {"insert": "t", "documents": [{"_id": 1, **part}]}) == []
    assert [error["code"] for error in _errors(target, taker)] == [11000]
    unset = {"$unset": dict.fromkeys(part.keys() - released.after.keys(), "")}
    change = {"$set": released.after} if released.after else unset
    assert _errors(target, {"update": "t", "updates": [{"q": {"_id": 1}, "u": change}]}) == []
    assert _errors(target, taker) == []
