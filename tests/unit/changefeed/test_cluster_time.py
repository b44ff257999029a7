"""Cluster times keep MongoDB's order in each of their forms. The majority point stands in a primary's reply to `hello`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from changefeed.cluster_time import ClusterTime, MajorityPoint

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


def hello(newest: int, majority: int, *, term: int = 3) -> dict[str, Any]:
    """A reply as 6.0.5 gives it, with times in seconds after a fixed one."""
    return {
        "setName": "rs",
        "me": "db1:27017",
        "ismaster": True,
        "lastWrite": {
            "opTime": {"ts": Timestamp(1795335500 + newest, 1), "t": term},
            "majorityOpTime": {"ts": Timestamp(1795335500 + majority, 1), "t": term},
        },
    }


def point(newest: int, majority: int, *, term: int = 3) -> MajorityPoint:
    found = MajorityPoint.of_hello(hello(newest, majority, term=term))
    assert found is not None
    return found


def test_a_majority_is_behind_when_its_primary_has_more() -> None:
    assert point(5, 3).behind
    assert not point(3, 3).behind


def test_a_router_has_no_majority_point() -> None:
    assert MajorityPoint.of_hello({"msg": "isdbgrid", "ismaster": True}) is None


def test_the_majority_has_a_write_of_its_own_term_only() -> None:
    write_ts = ClusterTime(1795335503, 1)
    assert point(5, 3).has(write_ts, 3)
    assert not point(5, 2).has(write_ts, 3)
    assert not point(9, 9, term=4).has(write_ts, 3)


def test_the_text_stays_the_same_while_the_majority_does_not_move() -> None:
    assert str(point(5, 3)) == str(point(9, 3))
    assert str(point(5, 3)) == (
        "the majority of replica set 'rs' has not moved since 2026-11-22T08:18:23Z (1795335503.1), while its primary db1:27017 answers and "
        "takes writes; start its other members, or fix what keeps them from replicating"
    )
