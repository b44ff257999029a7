r"""`Glob`: one part of a table pattern, for a database or a collection, and what can be said about it. Pure.

Matching takes time in proportion to the name, as often as the part is long at worst, whatever wildcards there are: who may create
collections at the source chooses the names. A backtracking regular expression takes minutes for `*_*_*_*_*_tmp` and 230 times `_`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

TOKEN = re.compile(r"\\(?P<escaped>[*?!\\])|(?P<wildcard>[*?])|(?P<stray>\\)|(?P<literal>.)", re.DOTALL)


class PatternToken(NamedTuple):
    """One element of a part: a character, or a wildcard."""

    char: str
    wildcard: bool = False

    @property
    def any_text(self) -> bool:
        return self.wildcard and self.char == "*"


def tokens(part: str) -> tuple[PatternToken, ...]:
    return tuple(
        PatternToken(found["wildcard"], wildcard=True)
        if found["wildcard"]
        else PatternToken(found["escaped"] or found["literal"])
        for found in TOKEN.finditer(part)
    )


class Glob:
    """`before` and `after` are the texts up to the first wildcard and from the last one on. Without wildcards, `before` is all."""

    def __init__(self, part: str) -> None:
        found = tokens(part)
        wild = [number for number, token in enumerate(found) if token.wildcard]
        self._part = part
        self.literal = not wild
        first, last = (wild[0], wild[-1] + 1) if wild else (len(found), len(found))
        self.before, self.after = _text(found[:first]), _text(found[last:])
        self._least = first + len(found) - last
        self.one_star = len(wild) == 1 and found[first].any_text

    def matches(self, name: str) -> bool:
        if self.literal:
            return name == self.before
        if len(name) < self._least or not (name.startswith(self.before) and name.endswith(self.after)):
            return False
        return self.one_star or self._expression.match(name) is not None

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        """Each text between two `*` is sought once, from where the one before it ended: its first place leaves most to those after it.

        The group is atomic, so that no other place is tried. The end is `(?![\\s\\S])`, since `$` also matches before a final newline.
        """
        first, *others = _between_stars(self._part)
        middle = "".join(f"(?>.*?{text})" for text in others[:-1] if text)
        last = f".*{others[-1]}" if others else ""
        return re.compile(f"{first}{middle}{last}(?![\\s\\S])", re.DOTALL)


def _between_stars(part: str) -> Iterator[str]:
    text = ""
    for token in tokens(part):
        if token.any_text:
            yield text
            text = ""
        else:
            text += "." if token.wildcard else re.escape(token.char)
    yield text


def _text(found: tuple[PatternToken, ...]) -> str:
    return "".join(token.char for token in found)


@lru_cache(maxsize=16_384)
def glob(part: str) -> Glob:
    return Glob(part)


def literal(part: str) -> str | None:
    """The only name that this part of a pattern matches. None if the part has wildcards."""
    found = glob(part)
    return found.before if found.literal else None


def around_star(part: str) -> tuple[str, str] | None:
    """The texts before and after the part's only wildcard, a `*`. None if the part has another form."""
    found = glob(part)
    return (found.before, found.after) if found.one_star else None


def escaped(name: str) -> str:
    """The part that matches only this name."""
    return re.sub(r"[*?!\\]", r"\\\g<0>", name)


def part_covers(wide: str, narrow: str) -> bool:
    """Whether `wide` matches every name that `narrow` matches.

    It is tested on two names: the shortest one, and one full of a character that only wildcards match, with more of them for each `*` than
    `wide` has `?`.
    """
    stars = "\1" * (wide.count("?") + 1)
    return all(glob(wide).matches(_example(narrow, star)) for star in ("", stars))


def _example(part: str, star: str) -> str:
    return "".join((star if token.any_text else "\1") if token.wildcard else token.char for token in tokens(part))
