"""When the owner writes the target's users, and what it has recorded by then."""

from __future__ import annotations

from typing import Any

from changefeed.errors import SinkUnavailable
from changefeed.users import PrincipalChanges, PrincipalNames, Principals
from owner.chores import MOST_PRINCIPALS, PrincipalCopy
from tests.unit.owner.at_once import AtOnce

ANN = PrincipalNames(users=frozenset({"admin.ann"}))


class Sides:
    def __init__(self) -> None:
        self.source: dict[str, Any] = {}
        self.target: dict[str, Any] = {}
        self.recorded = PrincipalNames()
        self.applied: list[PrincipalNames] = []
        self.looks, self.down = 0, False
        self.background = AtOnce()
        self.copy = PrincipalCopy("f", self.background, self._source, self)

    def _source(self) -> Principals:
        self.looks += 1
        return Principals(users=self.source, roles={})

    def read(self, roles: frozenset[str]) -> Principals:
        if self.down:
            raise SinkUnavailable("away")
        return Principals(users=self.target, roles={})

    def apply(self, changes: PrincipalChanges) -> None:
        self.applied.append(self.recorded)
        self.target |= {user["_id"]: user for user in changes.users}
        self.target = {id: user for id, user in self.target.items() if id not in changes.dropped.users}

    def ticks(self, count: int = 8) -> None:
        for _ in range(count):
            self.recorded = self.copy.tick(self.recorded) or self.recorded


def test_a_user_is_recorded_before_it_is_written_and_until_it_is_dropped() -> None:
    sides = Sides()
    sides.source = {"admin.ann": {"_id": "admin.ann"}}
    sides.target = {"admin.theirs": {"_id": "admin.theirs"}}
    sides.ticks()
    assert (set(sides.target), sides.recorded, sides.applied) == ({"admin.ann", "admin.theirs"}, ANN, [ANN])
    sides.source = {}
    sides.background.seconds += 10
    sides.ticks()
    assert (set(sides.target), sides.recorded) == ({"admin.theirs"}, PrincipalNames())
    assert sides.applied == [ANN, ANN]


def test_equal_sides_are_looked_at_every_ten_seconds() -> None:
    sides = Sides()
    sides.ticks(100)
    assert sides.looks == 1
    sides.background.seconds += 10
    sides.ticks(100)
    assert sides.looks == 2


def test_a_target_that_is_away_is_an_error_until_it_is_back() -> None:
    sides = Sides()
    sides.down = True
    sides.ticks()
    assert sides.copy.error is not None
    assert "users and roles: away" in str(sides.copy.error)
    sides.down = False
    sides.background.seconds += 10
    sides.ticks()
    assert sides.copy.error is None


def test_more_users_than_a_record_holds_are_an_error_that_says_so() -> None:
    sides = Sides()
    sides.source = {f"admin.{n}": {"_id": f"admin.{n}"} for n in range(MOST_PRINCIPALS + 1)}
    sides.ticks()
    assert str(MOST_PRINCIPALS) in str(sides.copy.error)
    assert sides.applied == []
