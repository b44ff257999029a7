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
from itertools import product

from changefeed.config.configuration import Configuration
from changefeed.config.tables.pattern import PatternToken, around_star, escaped, literal, tokens
from changefeed.table import TableName

_ANYTHING = "example"


def common_target(one: Configuration, other: Configuration) -> TableName | None:
    """None if no name is found that both would write."""
    for first, second in product(_downstream(one), _downstream(other)):
        for db, coll in product(common_texts(first[0], second[0]), common_texts(first[1], second[1])):
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


def _downstream(configuration: Configuration) -> Iterator[tuple[str, str]]:
    for wanted in configuration.filter.tables:
        if wanted.negated:
            continue
        yield wanted.db, wanted.coll
        for route in configuration.routes.root:
            db = _routed(wanted.db, route.from_.db, route.to.db)
            coll = _routed(wanted.coll, route.from_.coll, route.to.coll)
            if db is not None and coll is not None:
                yield db, coll


def _routed(wanted: str, taken: str, given: str) -> str | None:
    """A part of a pattern after a route. None if the route cannot match it."""
    if not any(common_texts(wanted, taken)):
        return None
    if literal(given) is not None:
        return given
    if given == taken:
        return wanted if literal(taken) is None else taken
    before, after = around_star(taken) or ("", "")
    new_before, new_after = around_star(given) or ("", "")
    fixed, around = literal(wanted), around_star(wanted)
    if fixed is not None:
        return escaped(new_before + fixed[len(before) : len(fixed) - len(after)] + new_after)
    inner = ("", "")
    if around is not None and around[0].startswith(before) and around[1].endswith(after):
        inner = around[0][len(before) :], around[1][: len(around[1]) - len(after)]
    return f"{escaped(new_before + inner[0])}*{escaped(inner[1] + new_after)}"


def common_texts(one: str, other: str) -> Iterator[str]:
    """Some texts that both pattern parts match, the more readable first: a `*` becomes a word, then nothing."""
    seen = set()
    for wide_one, wide_other in product((True, False), repeat=2):
        text = _common(_filled(one, wide_one), _filled(other, wide_other))
        if text is not None and text not in seen:
            seen.add(text)
            yield text


def _filled(part: str, wide: bool) -> tuple[PatternToken, ...]:
    word = tuple(map(PatternToken, _ANYTHING)) if wide else ()
    return tuple(each for token in tokens(part) for each in ((*word, token) if token.any_text else (token,)))


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
