"""`row_keys`: the model's order of `_id`s is the product's, which is compared with that of real servers."""

from __future__ import annotations

from itertools import pairwise

import bson

from changefeed.documents.bson_order import compare
from tests.simulation.source.row_keys import as_key, keys_of, ordered


def test_ids_of_several_kinds_have_the_order_of_the_server() -> None:
    for seed in range(30):
        keys = ordered(keys_of(seed))
        assert all(compare(one, other) < 0 for one, other in pairwise(keys))


def test_an_id_is_the_same_key_after_its_way_through_a_document() -> None:
    for seed in range(30):
        for key in keys_of(seed):
            found = as_key(bson.decode(bson.encode({"_id": key}))["_id"])
            assert found == key
            assert hash(found) == hash(key)
