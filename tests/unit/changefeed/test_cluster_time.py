"""Cluster times keep MongoDB's order in each of their forms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from changefeed.cluster_time import ClusterTime

_UNSIGNED = st.integers(0, 2**32 - 1)
TIMES = st.builds(ClusterTime, _UNSIGNED, _UNSIGNED)


@given(TIMES)
def test_every_form_round_trips(time: ClusterTime) -> None:
    adapter = TypeAdapter(ClusterTime)

    assert ClusterTime.from_bson(time.to_bson()) == time
    assert ClusterTime.from_int(time.to_int()) == time
    assert ClusterTime.parse(str(time)) == time
    assert adapter.validate_json(adapter.dump_json(time)) == time


@given(TIMES, TIMES)
def test_the_order_is_that_of_bson_and_of_the_64_bit_number(left: ClusterTime, right: ClusterTime) -> None:
    assert (left < right) == (left.to_bson() < right.to_bson()) == (left.to_int() < right.to_int())


def test_the_tenth_increment_is_later_than_the_second() -> None:
    assert ClusterTime.parse("100.10") > ClusterTime.parse("100.2")


def test_next_is_the_smallest_later_time() -> None:
    assert ClusterTime(5, 1).next() == ClusterTime(5, 2)
    assert ClusterTime(5, 2**32 - 1).next() == ClusterTime(6, 0)


def test_iso_is_the_first_time_of_its_second_in_any_offset() -> None:
    midnight = ClusterTime.from_iso("2026-11-21T00:00:00Z")

    assert midnight == ClusterTime(1795219200, 0)
    assert midnight == ClusterTime.from_iso("2026-11-21T01:00:00.750+01:00")
    assert midnight.to_iso() == "2026-11-21T00:00:00Z"
    assert midnight == ClusterTime.from_datetime(datetime(2026, 11, 21, 2, tzinfo=timezone(timedelta(hours=2))))
    assert midnight.to_datetime() == datetime(2026, 11, 21, tzinfo=UTC)


def test_a_time_without_zone_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="has no time zone; add one, for example 2026-11-21T00:00:00Z"):
        ClusterTime.from_iso("2026-11-21T00:00:00")


@pytest.mark.parametrize("text", ["", "5", "5.", ".5", "5.5.5", "-1.0", "1e3.1", " 5.1", "99999999999.1"])
def test_an_invalid_cluster_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a cluster time; write seconds"):
        ClusterTime.parse(text)


@pytest.mark.parametrize(("seconds", "increment"), [(2**32, 0), (0, 2**32), (-1, 0), (0, -1)])
def test_more_than_32_bits_are_refused(seconds: int, increment: int) -> None:
    with pytest.raises(ValueError, match="does not fit two unsigned 32-bit numbers"):
        ClusterTime(seconds, increment)


def test_it_is_a_bson_timestamp() -> None:
    assert ClusterTime(7, 9).to_bson() == Timestamp(7, 9)


def test_the_time_before_is_one_that_an_entry_may_have() -> None:
    assert ClusterTime(5, 3).previous() == ClusterTime(5, 2)
    assert ClusterTime(5, 1).previous() == ClusterTime(5, 0)
    assert ClusterTime(5, 0).previous() == ClusterTime(4, 2**31 - 1)
    assert ClusterTime(5, 2**32 - 1).previous() == ClusterTime(5, 2**31 - 1)
    assert ClusterTime(0, 0).previous() == ClusterTime(0, 0)
