r"""The elements of a regular expression, and their form for RE2. Pure.

What an assertion becomes depends on what follows it (`After`). `$` is also true before a last newline, which RE2 cannot look for, only read: so
nothing may follow it. With `m`, `^` is not true behind a last newline: RE2 says so too only where something has to follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from changefeed.config.tables.regex.character_set import CharacterSet
from changefeed.config.tables.regex.cursor import Unsupported


class After(NamedTuple):
    """`end`: the expression ends here. `more`: at least one character has to follow."""

    end: bool
    more: bool


class Assertion(Enum):
    """A place in a text, by the form that RE2 has for it."""

    START = r"\A"
    LINE_START = "(?m:^)"
    LAST_LINE_END = r"\n?\z"
    LINE_END = "(?m:$)"
    END = r"\z"
    WORD_EDGE = r"\b"

    @classmethod
    def of(cls, char: str, *, lines: bool) -> Assertion | None:
        """What `^` and `$` mean, with the option m or without."""
        match char:
            case "^":
                return cls.LINE_START if lines else cls.START
            case "$":
                return cls.LINE_END if lines else cls.LAST_LINE_END
            case _:
                return None

    @property
    def more(self) -> bool:
        return False

    def text(self, after: After) -> str:
        if self is Assertion.LAST_LINE_END and not after.end:
            raise Unsupported(r"$ or \Z in the middle; write it where the expression ends, or write the newline as \n")
        if self is Assertion.LINE_START and not after.more:
            raise Unsupported(
                "^ with the option m where nothing has to follow; write what follows so that it is at least one character"
            )
        return self.value


@dataclass(frozen=True, slots=True)
class One:
    """One character."""

    of: CharacterSet

    @property
    def more(self) -> bool:
        return True

    def text(self, _: After) -> str:
        return self.of.text()


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    times: str
    least: int

    @property
    def more(self) -> bool:
        return self.least > 0 and self.part.more

    def text(self, _: After) -> str:
        return f"(?:{self.part.text(After(end=False, more=False))}){self.times}"


@dataclass(frozen=True, slots=True)
class Choice:
    branches: Sequence[Sequence[Node]]

    @property
    def more(self) -> bool:
        return all(any(part.more for part in branch) for branch in self.branches)

    def text(self, after: After) -> str:
        return f"(?:{'|'.join(_sequence(branch, after) for branch in self.branches)})"


Node: TypeAlias = Assertion | One | Repeat | Choice


def _sequence(parts: Sequence[Node], after: After) -> str:
    texts = []
    for part in reversed(parts):
        texts.append(part.text(after))
        after = After(end=False, more=after.more or part.more)
    return "".join(reversed(texts))


def text_of(found: Choice) -> str:
    """The whole expression for RE2."""
    return found.text(After(end=True, more=False))
