"""A part of each pass is compared once at each point; what this term has not recorded counts for nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.records.requests import ChangefeedId
from changefeed.records.sync_point import ComparedPart, FoundDifference, PartResult, PassPlace, SyncPoint, Verified
from changefeed.table import TableName
from owner.continuous_check import ContinuousCheck
from owner.etcd_view import OwnerView
from owner.etcd_writes import ChangefeedWriter
from sink.sink import SyncTarget
from tests.unit.owner.at_once import AtOnce

A = TableName("shop", "a")
HALF = PassPlace(table=A, key="aGFsZg==")


def point(seconds: int) -> SyncPoint:
    return SyncPoint(
        source=ClusterTime(seconds, 0), target=ClusterTime(seconds, 7), made_at=datetime(2026, 1, 1, tzinfo=UTC)
    )


def part(place: PassPlace | None, *, different: int = 0, due: int = 0) -> PartResult:
    found = FoundDifference(table=A, kind="changed", key="1", source="a", target="b")
    done = ComparedPart(tables=1, documents=10, bytes=100, different=different)
    return PartResult(part=done, place=place, due_bytes=due, differences=(found,) * different)


@dataclass
class Compared:
    """What the owner asks, writes into the target and into etcd; its answers are given."""

    answers: list[PartResult | None]
    places: list[PassPlace | None] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    verified: Verified = field(default_factory=Verified)
    continuous: bool = True
    background: AtOnce = field(default_factory=AtOnce)

    def __post_init__(self) -> None:
        target = SimpleNamespace(compared=lambda point, _: self.written.append(point.source.seconds))
        writer = SimpleNamespace(verified=lambda verified: setattr(self, "verified", verified))
        self.check = ContinuousCheck(
            ChangefeedId("f"),
            cast("SyncTarget", target),
            self._compare,
            self.background,
            cast("ChangefeedWriter", writer),
        )

    def _compare(self, id: ChangefeedId, point: SyncPoint, place: PassPlace | None, stop: threading.Event) -> Any:
        self.places.append(place)
        return self.answers.pop(0)

    def tick(self, seconds: int) -> None:
        self.background.seconds += 10
        fields = {"id": "f", "source": "mongodb://s", "sink": "mongodb://t", "sync_points": {}}
        configuration = Configuration.parse({**fields, "verify": {"continuous": self.continuous}})
        known = SimpleNamespace(verified=self.verified, info=SimpleNamespace(configuration=configuration))
        self.check.tick(cast("OwnerView", known), point(seconds))


def test_each_point_has_a_part_which_goes_on_where_the_last_one_ended() -> None:
    compared = Compared([part(HALF, due=200), part(None)])
    for seconds in (60, 60, 120, 120):
        compared.tick(seconds)
    assert (compared.places, compared.written) == ([None, HALF], [60, 120])
    present = compared.verified.present
    assert present is not None
    assert (present.number, present.done.documents, present.done.bytes, present.due_bytes) == (1, 20, 200, 200)
    assert present.ended_at is not None


def test_the_next_pass_begins_anew_and_the_last_one_is_kept() -> None:
    compared = Compared([part(None, different=1), part(HALF), part(None), part(None)])
    compared.tick(60)
    compared.tick(120)
    found = compared.verified
    assert found.present is not None
    assert found.last is not None
    assert (found.present.number, found.last.number, found.last.first_in) == (2, 1, A)
    assert found.last.first_at == ClusterTime(60, 0)
    assert found.different == 1, "it is not known yet that the difference is gone"
    compared.tick(180)
    assert compared.verified.different == 1
    compared.tick(240)
    assert compared.verified.different == 0


def test_a_point_that_is_too_old_is_left_and_not_tried_again() -> None:
    compared = Compared([None, part(None)])
    for seconds in (60, 60, 120):
        compared.tick(seconds)
    assert (compared.places, compared.written) == ([None, None], [120])


def test_a_pass_that_could_compare_no_table_does_not_count() -> None:
    nothing = PartResult(part=ComparedPart(tables=2, left_out=2), place=None, due_bytes=0)
    compared = Compared([part(None, different=1), nothing, part(None)])
    compared.tick(60)
    before = compared.verified.present
    compared.tick(120)
    assert (compared.verified.at, compared.verified.present) == (ClusterTime(120, 0), before)
    compared.tick(180)
    present = compared.verified.present
    assert present is not None
    assert (present.number, present.done.documents) == (2, 10)


class Slow(AtOnce):
    """The answer of a call comes with the next look."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], Any]] = []

    def take(self, key: Hashable, call: Callable[[], Any], *, about: Hashable = None) -> Any:
        if self.calls:
            return self.calls.pop()()
        self.calls.append(call)
        return None


def test_what_was_compared_before_a_changefeed_began_anew_does_not_count() -> None:
    compared = Compared([part(HALF)], background=Slow())
    compared.verified = Verified(at=ClusterTime(1, 0), place=HALF)
    compared.tick(60)
    compared.verified = Verified()
    compared.tick(120)
    assert (compared.places, compared.verified) == ([HALF], Verified())


def test_nothing_is_compared_unless_the_user_wants_it() -> None:
    compared = Compared([], continuous=False)
    compared.tick(60)
    assert compared.places == []


def test_another_order_of_fields_is_not_the_first_difference() -> None:
    found = FoundDifference(table=A, kind="reordered", key="1", source="a", target="b")
    result = PartResult(part=ComparedPart(reordered=1), place=None, due_bytes=0, differences=(found,))
    verified = Verified().after(ClusterTime(60, 0), result, datetime(2026, 1, 1, tzinfo=UTC))
    assert verified.present is not None
    assert (verified.present.first_in, verified.different, verified.present.done.reordered) == (None, 0, 1)
