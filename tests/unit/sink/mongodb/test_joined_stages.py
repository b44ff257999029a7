from __future__ import annotations

from typing import Any

import bson
from hypothesis import given
from hypothesis import strategies as st

from sink.mongodb.joined_stages import Stage, joined
from sink.mongodb.update_translation import translate
from tests.unit.sink.mongodb.update_model import apply


def stages(update: dict[str, Any]) -> list[Stage]:
    described = {"updatedFields": {}, "removedFields": [], "truncatedArrays": [], **update}
    translated = translate(bson.encode(described), viable=True)
    assert translated is not None
    assert isinstance(translated.operation, list)
    return translated.operation


_NAMES = st.sampled_from(["a", "b", "c"])
_UPDATES = st.one_of(
    st.dictionaries(_NAMES, st.integers(0, 9), min_size=1).map(lambda fields: {"updatedFields": fields}),
    st.dictionaries(_NAMES.map("{}.x".format), st.integers(0, 9), min_size=1).map(
        lambda fields: {"updatedFields": fields}
    ),
    st.lists(_NAMES, min_size=1, unique=True).map(lambda names: {"removedFields": names}),
)


@given(st.dictionaries(_NAMES, st.integers(0, 9)), st.lists(_UPDATES, max_size=8))
def test_joined_stages_make_the_same_document_with_its_fields_in_the_same_order(
    document: dict[str, Any], updates: list[dict[str, Any]]
) -> None:
    one_by_one = [stage for update in updates for stage in stages(update)]
    assert list(apply(document, joined(one_by_one)).items()) == list(apply(document, one_by_one).items())


def test_a_field_that_is_set_thousands_of_times_needs_one_stage() -> None:
    counted = [stage for n in range(3000) for stage in stages({"updatedFields": {"n": n, "last": n}})]
    assert joined(counted) == [{"$replaceWith": {"$mergeObjects": ["$$ROOT", {"$literal": {"n": 2999, "last": 2999}}]}}]
