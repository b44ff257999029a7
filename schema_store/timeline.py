"""`Timeline`: one value that changes at positions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Generic, TypeVar

from changefeed.errors import InvariantError
from changefeed.position import Position

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Timeline(Generic[Value]):
    """`values[i]` is valid in `[positions[i], positions[i + 1])`. None means no value.

    With positions (5, 9, 12) and values (a, None, b): nothing before 5, `a` at 5 and 8, nothing at 9 and 11, `b` from 12 on.
    """

    positions: tuple[Position, ...] = ()
    values: tuple[Value | None, ...] = ()

    def at(self, position: Position) -> Value | None:
        """The value for an event at `position`."""
        index = bisect_right(self.positions, position)
        return self.values[index - 1] if index else None

    def before(self, position: Position) -> Value | None:
        """The value for the last event below `position`."""
        index = bisect_left(self.positions, position)
        return self.values[index - 1] if index else None

    def after(self, position: Position) -> Value | None:
        """The value that follows the one for an event at `position`."""
        index = bisect_right(self.positions, position)
        return self.values[index] if index < len(self.values) else None

    @property
    def last(self) -> Value | None:
        return self.values[-1] if self.values else None

    @property
    def sole(self) -> Value | None:
        """The only value, if there never was another one, nor an end."""
        return self.values[0] if len(self.values) == 1 else None

    @property
    def began(self) -> Position:
        """The start of the last stretch without a gap. The timeline must not have ended."""
        first = len(self.values)
        while first and self.values[first - 1] is not None:
            first -= 1
        return self.positions[first]

    def changes_at(self, position: Position) -> bool:
        index = bisect_left(self.positions, position)
        return index < len(self.positions) and self.positions[index] == position

    def starts_after(self, position: Position) -> bool:
        return bool(self.positions) and position < self.positions[0]

    def then(self, position: Position, value: Value | None) -> Timeline[Value]:
        """With `value` from `position` on. The last change must be below `position`, or at it: then it is replaced."""
        if not self.positions or self.positions[-1] < position:
            return Timeline((*self.positions, position), (*self.values, value))
        if self.positions[-1] == position:
            return Timeline(self.positions, (*self.values[:-1], value))
        raise InvariantError(
            f"a schema change at {position} is recorded after the one at {self.positions[-1]}; "
            "changes of one table or name must be recorded in stream order"
        )

    def since(self, before: Position) -> Timeline[Value] | None:
        """Without the values that no event at or after `before` needs. None if nothing is left.

        A change at `before` itself stays, even an end: its record still exists, and this change marks it as applied.
        """
        index = max(bisect_left(self.positions, before) - 1, 0)
        if index == len(self.positions) - 1 and self.values[index] is None and self.positions[index] < before:
            return None
        return self if index == 0 else Timeline(self.positions[index:], self.values[index:])

    def shown(self, since: Position) -> tuple[Value | None, tuple[object, ...]]:
        """The value below `since` and each later change: equal if the answers from there on are equal."""
        first = bisect_left(self.positions, since)
        return self.before(since), (*self.positions[first:], *self.values[first:])
