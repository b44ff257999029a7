from __future__ import annotations

from typing import Any

import bson
from hypothesis import given, settings
from hypothesis import strategies as st

from sink.mongodb.rows.statements.update_translation import net_stages
from tests.unit.sink.mongodb.rows.update_cases import Case, cases
from tests.unit.sink.mongodb.rows.update_model import Document, apply


def _described(update: dict[str, Any]) -> bytes:
    return bson.encode({"updatedFields": {}, "removedFields": [], "truncatedArrays": [], **update})


def _one_by_one(document: Document, updates: list[bytes]) -> Document:
    for update in updates:
        document = apply(document, net_stages([(None, update)]))
    return document


_ARRAY = ["b", "b.0", "b.1", "b.3", "b.1.x", "b.1.z"]
_PATHS = st.sampled_from(["a", "c", "a.x", "a.x.y", "a.1", "a.z", *_ARRAY])
"""As at a source, the parents of the paths exist: `a` is no array, `b` is no document, and has two elements if it is an array."""
_FIELDS = st.dictionaries(_PATHS, st.integers(0, 9), min_size=1)
_UPDATES = st.one_of(
    _FIELDS.map(lambda fields: {"updatedFields": fields}),
    st.sampled_from(["c", "a.x", "a.x.y", "a.z"]).map(lambda name: {"removedFields": [name]}),
    st.builds(
        lambda name, size: {"truncatedArrays": [{"field": name, "newSize": size}]}, st.just("b"), st.integers(2, 4)
    ),
).map(_described)


@settings(max_examples=100)
@given(cases(), st.lists(cases(), max_size=4))
def test_updates_together_are_never_refused_whatever_the_document(first: Case, others: list[Case]) -> None:
    """The result for that document does not matter: a replay may apply the updates to any document."""
    apply(first.before, net_stages([(None, case.description) for case in others]))


_VALUES = st.one_of(st.integers(0, 9), st.fixed_dictionaries({}, optional={"x": st.integers(0, 9)}))
_ARRAYS = st.one_of(st.integers(0, 9), st.lists(_VALUES, min_size=2, max_size=5))
_DOCUMENTS = st.fixed_dictionaries({"a": _VALUES, "b": _ARRAYS}, optional={"c": st.one_of(_VALUES, _ARRAYS)})


@settings(max_examples=300)
@given(_DOCUMENTS, st.lists(_UPDATES, max_size=8))
def test_updates_together_make_the_same_document_with_its_fields_in_the_same_order(
    document: Document, updates: list[bytes]
) -> None:
    together = apply(document, net_stages([(None, update) for update in updates]))
    assert bson.encode(together) == bson.encode(_one_by_one(document, updates))


def test_a_whole_document_makes_an_end_of_what_came_before_it() -> None:
    whole = bson.encode({"_id": 1, "b": 1})
    changes = [
        (None, _described({"updatedFields": {"a": 1}})),
        (whole, None),
        (None, _described({"removedFields": ["b"]})),
    ]
    assert apply({"_id": 1, "c": 1}, net_stages(changes)) == {"_id": 1}


def test_fields_that_are_set_thousands_of_times_need_one_stage() -> None:
    fields = [{"n": n, "deep.n": n, "list.3": n, "list.1.n": n} for n in range(3000)]
    stages = net_stages([(None, _described({"updatedFields": each})) for each in fields])
    assert len(stages) == 1
    document = {"deep": {"n": 0, "m": 0}, "list": [0, {"n": 0}]}
    assert apply(document, stages) == {"deep": {"n": 2999, "m": 0}, "list": [0, {"n": 2999}, None, 2999], "n": 2999}
