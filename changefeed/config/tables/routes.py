"""`Routes`: the names of tables downstream.

    routes: [{from: shop.orders, to: dr.all_orders}, {from: "shop.*", to: "shop_dr.*"}]

    shop.orders    dr.all_orders         the first rule that matches decides
    shop.items     shop_dr.items         the `*` of `to` becomes what the `*` of `from` matched, separately for database and collection
    crm.people     crm.people            no rule: its own name

A `to` without `*` gives every table of its rule the same name (fan-in): such a rule asks for it. Two rules with the same `to` are an error, and
so are two tables that come under one name without such a rule (`merged`), which depends on the tables that there are:

    routes: [{from: "r1.*", to: "r2.*"}], tables r1.a and r2.a        both would be r2.a downstream
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property

from pydantic import ConfigDict, Field, RootModel, field_validator, model_validator

from changefeed.config.options import Mistake, Options
from changefeed.config.tables.pattern import PatternList, TablePattern, around_star, covers, escaped, literal, tokens
from changefeed.errors import ConfigurationError
from changefeed.table import TableName


class _Origin(Enum):
    NONE = "none"
    COUNTLESS = "countless"


class Route(Options):
    from_: TablePattern = Field(alias="from", description="write a table pattern, for example shop.*")
    to: TablePattern = Field(description="write a table name, or one with the * of from, for example shop_dr.*")

    @field_validator("from_", "to")
    @classmethod
    def _is_not_negated(cls, pattern: TablePattern) -> TablePattern:
        if pattern.negated:
            raise Mistake(f"found {str(pattern)!r}; a route only renames tables, exclude tables under filter.tables")
        return pattern

    @model_validator(mode="after")
    def _can_be_filled_in(self) -> Route:
        for name, taken, given in (
            ("database", self.from_.db, self.to.db),
            ("collection", self.from_.coll, self.to.coll),
        ):
            if literal(given) is None and given != taken and (around_star(given) is None or around_star(taken) is None):
                raise Mistake(
                    f"found {name} {given!r} made from {taken!r}; write the {name} as it is in from, without wildcards, "
                    "or with one * where from has one *"
                )
        return self

    @property
    def fan_in(self) -> bool:
        """Whether it asks for one name for all its tables."""
        return literal(self.to.db) is not None and literal(self.to.coll) is not None

    @property
    def gathers(self) -> bool:
        """Whether it may bring any number of tables under one name."""
        parts = (self.to.db, self.from_.db), (self.to.coll, self.from_.coll)
        return any(literal(given) is not None and literal(taken) is None for given, taken in parts)

    def target(self, name: TableName) -> TableName:
        try:
            return TableName(self.target_database(name.db), _filled_in(self.to.coll, self.from_.coll, name.coll))
        except ValueError as error:
            raise ConfigurationError([f"routes: {name} has no name under {self.to}: {error}"]) from None

    def origin(self, target: TableName) -> TableName | _Origin:
        """The table of which the rule makes `target`."""
        db, coll = (_origin(self.to.db, self.from_.db, target.db), _origin(self.to.coll, self.from_.coll, target.coll))
        if isinstance(db, str) and isinstance(coll, str):
            return TableName(db, coll)
        return _Origin.NONE if _Origin.NONE in (db, coll) else _Origin.COUNTLESS

    def target_database(self, db: str) -> str:
        return _filled_in(self.to.db, self.from_.db, db)


def _filled_in(given: str, taken: str, name: str) -> str:
    fixed = literal(given)
    if fixed is not None:
        return fixed
    before, after = around_star(taken) or ("", "")
    new_before, new_after = around_star(given) or ("", "")
    return name if given == taken else new_before + name[len(before) : len(name) - len(after)] + new_after


def part_under(given: str, taken: str, part: str) -> str:
    """The part of a pattern that matches what a rule makes of the names of `part`, all of which `taken` matches."""
    if given == taken:
        return part
    if literal(given) is not None:
        return given
    (before, after), (new_before, new_after) = around_star(taken) or ("", ""), around_star(given) or ("", "")
    known = tokens(part)
    between = (
        token.char if token.wildcard else escaped(token.char) for token in known[len(before) : len(known) - len(after)]
    )
    return f"{escaped(new_before)}{''.join(between)}{escaped(new_after)}"


def _origin(given: str, taken: str, name: str) -> str | _Origin:
    """The name of which `_filled_in` makes `name`."""
    fixed = literal(given)
    if fixed is not None:
        return _Origin.NONE if fixed != name else literal(taken) or _Origin.COUNTLESS
    if given == taken:
        return name
    new_before, new_after = around_star(given) or ("", "")
    between = len(name) - len(new_before) - len(new_after)
    if between < 0 or not (name.startswith(new_before) and name.endswith(new_after)):
        return _Origin.NONE
    before, after = around_star(taken) or ("", "")
    return before + name[len(new_before) : len(new_before) + between] + after or _Origin.NONE


class Routes(RootModel[tuple[Route, ...]]):
    model_config = ConfigDict(frozen=True)

    root: tuple[Route, ...] = ()

    @model_validator(mode="after")
    def _do_not_meet(self) -> Routes:
        with_target: dict[TablePattern, int] = {}
        for number, later in enumerate(self.root):
            wider = [each for each in self._taken.wider(later.from_) if each < number]
            if (
                covering := next((each for each in wider if covers(self.root[each].from_, later.from_)), None)
            ) is not None:
                raise Mistake(
                    f"found {str(later.from_)!r} in rule {number}, whose tables rule {covering} already matches; "
                    "remove one, or put the narrower rule first"
                )
            if (earlier := with_target.setdefault(later.to, number)) != number:
                raise Mistake(
                    f"found {str(later.to)!r} in the rules {earlier} and {number}; two rules would give two tables "
                    "one name, give one of them another target"
                )
        return self

    @cached_property
    def _taken(self) -> PatternList:
        return PatternList(route.from_ for route in self.root)

    @cached_property
    def _given(self) -> PatternList:
        return PatternList(route.to for route in self.root)

    def target(self, name: TableName) -> TableName:
        route = self._of(name)
        return name if route is None else route.target(name)

    def _of(self, name: TableName) -> Route | None:
        number = self._taken.first(name)
        return None if number is None else self.root[number]

    def near(self, pattern: TablePattern) -> list[Route]:
        """The rules, in order, that may match a table of the pattern."""
        return [self.root[number] for number in self._taken.near(pattern)]

    def leading_to(self, target: TableName) -> list[Route]:
        """The rules, in order, that may give some table this name."""
        return [self.root[number] for number in sorted(self._given.like(target))]

    def joins(self, one: TableName, other: TableName) -> bool:
        """Whether one rule asks for both tables under one name."""
        route = self._of(one)
        return route is not None and route.fan_in and route is self._of(other)

    def may_share(self, name: TableName) -> bool:
        """Whether other tables may have this table's name downstream, now or later: only where a rule asks for it."""
        return self.joins(name, name) and self.gathers(name)

    def merged(self, names: Iterable[TableName]) -> Mapping[TableName, tuple[TableName, ...]]:
        """The names downstream under which several tables would come without a rule that asks for it."""
        found: dict[TableName, list[TableName]] = defaultdict(list)
        for name in names:
            found[self.target(name)].append(name)
        return {
            target: tuple(sorted(tables))
            for target, tables in sorted(found.items())
            if not all(self.joins(tables[0], other) for other in tables[1:])
        }

    def origins(self, target: TableName) -> frozenset[TableName] | None:
        """The tables that have this name downstream, if they exist. None if the fan-in of a rule makes their number unlimited."""
        found = [origin for route in self.leading_to(target) if (origin := route.origin(target)) is not _Origin.NONE]
        return None if _Origin.COUNTLESS in found else self.few_origins(target)

    def few_origins(self, target: TableName) -> frozenset[TableName]:
        """Those of the `origins` that no rule gathers."""
        found = (route.origin(target) for route in self.leading_to(target))
        candidates = {target, *(origin for origin in found if isinstance(origin, TableName))}
        return frozenset(name for name in candidates if self._has_name(name, target))

    def _has_name(self, name: TableName, target: TableName) -> bool:
        try:
            return self.target(name) == target
        except ConfigurationError:
            return False

    def gathers(self, name: TableName) -> bool:
        """Whether the rule of this table may bring any number of tables under its name downstream."""
        route = self._of(name)
        return route is not None and route.gathers

    def target_databases(self, db: str) -> frozenset[str]:
        """The databases downstream that may hold tables of `db`."""
        found = set()
        for route in self.root:
            if route.from_.matches_database(db):
                found.add(route.target_database(db))
                if route.from_.whole_database:
                    return frozenset(found)
        return frozenset(found | {db})
