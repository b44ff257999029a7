"""The comparison finds every difference between two sets of documents, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import bson
import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from hypothesis import given, settings
from hypothesis import strategies as st

from verify.comparison import EVERY_KEY, Join, Joined, Share, differing_shares, ordered_digest, share_digests
from verify.raw_document import Canonical, as_it_is, fields_sorted, key_text
from verify.report import DifferenceKind

Fields = Mapping[str, Any]

keys = st.one_of(
    st.integers(-50, 50),
    st.text("abé", max_size=2),
    st.builds(ObjectId, st.binary(min_size=12, max_size=12)),
    st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.booleans()}),
    st.none(),
)
documents = st.dictionaries(keys.map(lambda key: bson.encode({"_id": key})), st.integers(0, 5), max_size=30)
plants = st.lists(st.tuples(st.sampled_from(["missing", "extra", "changed"]), st.integers(0, 1000)), max_size=6)


def raw(fields: Fields) -> bytes:
    return bson.encode(fields)


def batches(found: Sequence[bytes], size: int) -> Iterator[bytes]:
    return (b"".join(found[at : at + size]) for at in range(0, len(found), size))


def with_value(key: bytes, value: int) -> bytes:
    return raw({**bson.decode(key), "value": value})


def joined(source: Sequence[bytes], target: Sequence[bytes], **options: Any) -> Joined:
    join = Join(**options)
    for batch in batches(source, 3):
        join.take_source(batch)
    for batch in batches(target, 4):
        if not join.take_target(batch):
            break
    return join.joined()


def planted(source: Mapping[bytes, int], wishes: Sequence[tuple[str, int]]) -> tuple[dict[bytes, int], set[bytes]]:
    """A target that differs from the source at these keys and no others."""
    target, differing = dict(source), set[bytes]()
    for kind, number in wishes:
        untouched = sorted(target.keys() - differing)
        if kind == "extra":
            key = raw({"_id": f"extra {number}"})
            target[key] = number
            differing.add(key)
        elif untouched:
            key = untouched[number % len(untouched)]
            differing.add(key)
            if kind == "missing":
                del target[key]
            else:
                target[key] += 1000
    return target, differing


@given(source=documents, wishes=plants, size=st.integers(1, 7))
@settings(max_examples=150)
def test_every_planted_difference_is_found_and_none_is_invented(
    source: dict[bytes, int], wishes: list[tuple[str, int]], size: int
) -> None:
    target, differing = planted(source, wishes)
    left = [with_value(key, value) for key, value in sorted(source.items())]
    right = [with_value(key, value) for key, value in sorted(target.items())]
    same = ordered_digest(batches(left, size)) == ordered_digest(batches(right, size + 1))
    assert same is (not differing)
    found = joined(left, right)
    assert set(found.candidates) == differing
    assert (found.source, found.target, found.complete) == (len(source), len(target), True)


@given(source=documents, wishes=plants, of=st.integers(1, 5), most=st.integers(1, 40))
@settings(max_examples=100)
def test_narrowing_to_shares_of_the_keys_loses_no_difference(
    source: dict[bytes, int], wishes: list[tuple[str, int]], of: int, most: int
) -> None:
    target, differing = planted(source, wishes)
    left = [with_value(key, value) for key, value in source.items()]
    right = [with_value(key, value) for key, value in reversed(target.items())]
    shares = list(differing_shares(share_digests(batches(left, 3), of), share_digests(batches(right, 2), of), most))
    found = [key for share in shares for key in joined(left, right, share=share).candidates]
    assert sorted(found) == sorted(differing)


@pytest.mark.parametrize("other", [1.0, Int64(1), Decimal128("1.00")])
def test_one_key_in_another_number_type_is_one_key_and_another_document(other: object) -> None:
    found = joined([raw({"_id": 1, "a": 1})], [raw({"_id": other, "a": 1})])
    assert [key_text(key) for key in found.candidates] == ["1"]


@pytest.mark.parametrize(("canonical", "differences"), [(as_it_is, 1), (fields_sorted, 0)])
def test_the_order_of_fields_counts_unless_it_is_told_not_to(canonical: Canonical, differences: int) -> None:
    source, target = [raw({"_id": 1, "a": {"x": 1, "y": [1, 2]}})], [raw({"a": {"y": [1, 2], "x": 1}, "_id": 1})]
    assert len(joined(source, target, canonical=canonical).candidates) == differences
    same = ordered_digest(source, canonical) == ordered_digest(target, canonical)
    assert same is (differences == 0)


def test_the_order_of_an_array_always_counts() -> None:
    assert joined([raw({"_id": 1, "a": [1, 2]})], [raw({"_id": 1, "a": [2, 1]})], canonical=fields_sorted).candidates


def test_a_key_that_stands_on_two_shards_is_compared_as_often_as_it_stands() -> None:
    one, other = raw({"_id": 1, "shard": 1}), raw({"_id": 1, "shard": 2})
    assert joined([one, other], [other, one]).candidates == ()
    assert len(joined([one, other], [one]).candidates) == 1
    assert len(joined([one], [one, other]).candidates) == 1


def test_under_a_shared_name_any_of_the_tables_documents_will_do() -> None:
    one, other = raw({"_id": 1, "from": "a"}), raw({"_id": 1, "from": "b"})
    assert joined([one, other], [other], fan_in=True).candidates == ()
    assert len(joined([one, other], [raw({"_id": 1})], fan_in=True).candidates) == 1


def test_differences_of_a_kind_that_is_excused_are_counted() -> None:
    found = joined([raw({"_id": 1})], [raw({"_id": 2})], excused={DifferenceKind.EXTRA})
    assert found.candidates == (raw({"_id": 1}),)
    assert found.excused == {DifferenceKind.EXTRA: 1}


def test_reading_ends_when_there_are_enough_differences() -> None:
    target = [raw({"_id": number}) for number in range(100)]
    found = joined([], target, most=10)
    assert (len(found.candidates), found.complete) == (10, False)
    assert found.target < 100


def test_a_table_that_is_equal_has_no_shares_to_be_joined() -> None:
    digests = share_digests([raw({"_id": number}) for number in range(100)], 7)
    assert sum(digest.count for digest in digests) == 100
    assert list(differing_shares(digests, digests, 10)) == []


def test_every_key_is_in_one_share() -> None:
    rows = [raw({"_id": number}) for number in range(100)]
    shares = [Share(frozenset({number}), 4) for number in range(4)]
    assert all(sum(share.has(row) for share in shares) == 1 for row in rows)
    assert all(map(EVERY_KEY.has, rows))


@pytest.mark.parametrize("canonical", [as_it_is, fields_sorted])
@pytest.mark.parametrize(
    "changed", [{"_id": 1, "n": 2}, {"_id": 1, "n": 1 << 24}, {"_id": 2, "n": 1}, {"_id": 1, "m": 1}]
)
def test_documents_that_differ_in_a_single_byte_have_another_digest(canonical: Canonical, changed: Fields) -> None:
    one, other = (ordered_digest([raw(fields)], canonical) for fields in ({"_id": 1, "n": 1}, changed))
    assert one.count == other.count == 1
    assert one.value != other.value
