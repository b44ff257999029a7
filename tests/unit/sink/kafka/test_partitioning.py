"""The place of a key is that which producers of Java compute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sink.kafka.rows.partitioning import hashes_of, murmur2, partition_of, partitions_of


@pytest.mark.parametrize(
    ("key", "hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafkas_own_tests(key: bytes, hash: int) -> None:
    assert murmur2(key) == hash & 0xFFFFFFFF


def test_a_key_of_any_length_has_one_of_the_partitions() -> None:
    found = {partition_of(bytes(range(256)) * 2 + b"x" * length, 6) for length in range(300)}
    assert found == set(range(6))
    assert partition_of(b"", 6) == partition_of(b"", 6)


@given(
    st.integers(0, 70).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=9))
)
def test_keys_of_one_length_have_the_hashes_that_each_has_alone(keys: list[bytes]) -> None:
    assert list(hashes_of(keys)) == list(map(murmur2, keys))


@given(st.lists(st.integers(0, 2**40)), st.integers(1, 50))
def test_keys_of_many_lengths_have_the_partitions_that_each_has_alone(numbers: list[int], partitions: int) -> None:
    keys = [b"%d" % number for each in numbers for number in range(each, each + 20)]
    assert partitions_of(keys, partitions) == [partition_of(key, partitions) for key in keys]
