"""The majority point in a primary's reply to `hello`."""

from __future__ import annotations

from typing import Any

from bson.timestamp import Timestamp

from changefeed.cluster_time import ClusterTime
from changefeed.majority import MajorityPoint


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
