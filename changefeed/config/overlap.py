"""`common_target`: a table name in the target that two changefeeds would both write, from their patterns and routes alone. Pure.

The existing tables do not decide this, since tables are created and dropped. A pattern, with each route that it may match, gives a
pattern of downstream names. Some names that match two such patterns are tried on both changefeeds. So both would write a name that is
found, if the source had its table. A common name may be missed only if exclusions cut a pattern to pieces.

    shop.*                                 shop.*                     shop.example
    shop.*, !shop.tmp_*                    shop.tmp_*                 none
    shop.* with shop.* to dr.*             dr.orders                  dr.orders
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import product, zip_longest

from changefeed.config.configuration import Configuration
from changefeed.config.tables.pattern import (
    PatternList,
    PatternToken,
    TablePattern,
    glob,
    literal,
    part_covers,
    tokens,
)
from changefeed.config.tables.routes import part_under
from changefeed.table import TableName

_ANYTHING = "example"


def common_target(one: Configuration, other: Configuration) -> TableName | None:
    """None if no name is found that both would write."""
    theirs = PatternList(_downstream(other))
    for first in _downstream(one):
        for second in (theirs[number] for number in theirs.near(first)):
            for db, coll in product(common_texts(first.db, second.db), common_texts(first.coll, second.coll)):
                name = _name(db, coll)
                if name is not None and writes(one, name) and writes(other, name):
                    return name
    return None


def _name(db: str, coll: str) -> TableName | None:
    return TableName(db, coll) if db and coll else None


def writes(configuration: Configuration, target: TableName) -> bool:
    """Whether a changefeed would write this table of the target. A fan-in has an unlimited number of origins (None): it counts as written."""
    origins = configuration.routes.origins(target)
    return origins is None or any(configuration.filter.wants_table(name) for name in origins)


def _downstream(configuration: Configuration) -> Iterator[TablePattern]:
    for wanted in configuration.filter.tables:
        if wanted.negated:
            continue
        yield wanted
        for route in configuration.routes.near(wanted):
            db = _routed(wanted.db, route.from_.db, route.to.db)
            coll = _routed(wanted.coll, route.from_.coll, route.to.coll)
            if db is not None and coll is not None:
                yield TablePattern(db, coll)


def _routed(wanted: str, taken: str, given: str) -> str | None:
    """A part of a pattern after a route. None if the route cannot match it."""
    if not any(common_texts(wanted, taken)):
        return None
    follows = literal(taken) is None if given == taken else part_covers(taken, wanted)
    return part_under(given, taken, wanted if follows else taken)


def common_texts(one: str, other: str) -> Iterator[str]:
    """Some texts that both pattern parts match, the more readable first: a `*` becomes a word, then nothing."""
    for fixed, wide in ((one, other), (other, one)):
        if (name := literal(fixed)) is not None:
            if glob(wide).matches(name):
                yield name
            return
    texts = dict.fromkeys(_joined(tokens(one), tokens(other), word) for word in (_ANYTHING, ""))
    yield from (text for text in texts if text is not None)


def _joined(one: tuple[PatternToken, ...], other: tuple[PatternToken, ...], word: str) -> str | None:
    """A text that both match, if both have a `*`: what each demands at its ends, and between these all of both. None if an end is in the way."""
    stars, others = ([number for number, token in enumerate(each) if token.any_text] for each in (one, other))
    if not stars or not others:
        return _common(one, other)
    before = _laid_over(one[: stars[0]], other[: others[0]])
    after = _laid_over(one[: stars[-1] : -1], other[: others[-1] : -1])
    if before is None or after is None:
        return None
    between = (*one[stars[0] : stars[-1]], *other[others[0] : others[-1]])
    texts = (_ANYTHING[0] if token.wildcard else token.char for token in between if not token.any_text)
    return f"{before}{word}{''.join(texts)}{after[::-1]}"


def _laid_over(one: tuple[PatternToken, ...], other: tuple[PatternToken, ...]) -> str | None:
    """A text that begins as both demand, which have no `*`."""
    text = ""
    for first, second in zip_longest(one, other):
        fixed = {token.char for token in (first, second) if token is not None and not token.wildcard}
        if len(fixed) > 1:
            return None
        text += next(iter(fixed), _ANYTHING[0])
    return text


@lru_cache(maxsize=4096)
def _common(one: tuple[PatternToken, ...], other: tuple[PatternToken, ...]) -> str | None:
    """The shortest text that both match: a breadth-first search over pairs of places, each with the text that leads there."""
    waiting = deque([(0, 0, "")])
    seen = {(0, 0)}
    while waiting:
        here, there, text = waiting.popleft()
        if here == len(one) and there == len(other):
            return text
        for step in _steps(one[here : here + 1], other[there : there + 1]):
            place = here + step[0], there + step[1]
            if place not in seen:
                seen.add(place)
                waiting.append((*place, text + step[2]))
    return None


def _steps(one: tuple[PatternToken, ...], other: tuple[PatternToken, ...]) -> Iterator[tuple[int, int, str]]:
    """A `*` ends, or both consume one character. A `*` that consumes one remains."""
    if one and one[0].any_text:
        yield 1, 0, ""
    if other and other[0].any_text:
        yield 0, 1, ""
    if one and other:
        first, second = one[0], other[0]
        if first.wildcard or second.wildcard or first.char == second.char:
            char = second.char if first.wildcard else first.char
            both_wild = first.wildcard and second.wildcard
            yield 0 if first.any_text else 1, 0 if second.any_text else 1, _ANYTHING[0] if both_wild else char
