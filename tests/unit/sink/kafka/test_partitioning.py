"""The place of a key is that which producers of Java compute."""

from __future__ import annotations

import pytest

from sink.kafka.rows.partitioning import murmur2, partition_of


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
