"""What changed routes do to the target's tables, and which of them cannot simply be renamed."""

from __future__ import annotations

from itertools import permutations

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.tables.routes import Routes
from changefeed.position import Position
from changefeed.records.ddl import Observation, TargetRename
from changefeed.table import TableId, TableKind, TableName, TableSchema
from owner.tables.route_change import Place, places, ready, rename_problems, undecided

Rule = tuple[str, str]


def name(text: str) -> TableName:
    return TableName.parse(text)


def routes(*rules: Rule) -> Routes:
    return Routes.model_validate([{"from": taken, "to": given} for taken, given in rules])


def table(text: str, kind: TableKind = TableKind.COLLECTION) -> TableSchema:
    return TableSchema(id=TableId(text), name=name(text), kind=kind, valid_from=Position(ClusterTime(100, 1)))


def done(old: str, new: str) -> TargetRename:
    return TargetRename(name=name(old), to=name(new), before=Observation(tables={}), done=True)


def changed(before: list[Rule], now: list[Rule], *tables: str, **renames: TargetRename) -> list[Place]:
    known = {name(origin.replace("__", ".")): rename for origin, rename in renames.items()}
    return places([table(each) for each in tables], routes(*before), routes(*now), known)


def test_a_table_is_where_its_last_rename_left_it() -> None:
    [a, b] = changed([("s.*", "x.*")], [("s.*", "z.*")], "s.a", "s.b", x__a=done("x.a", "y.a"))
    assert (a.origin, a.at, a.to) == (name("x.a"), name("y.a"), name("z.a"))
    assert (b.origin, b.at, b.to) == (name("x.b"), name("x.b"), name("z.b"))


def test_a_user_is_told_both_names() -> None:
    told = undecided(changed([], [("s.*", "x.*")], "s.a", "s.b", "t.c"))
    assert "s.a becomes x.a, s.b becomes x.b at the target" in told
    assert "t.c" not in told


def test_a_rename_waits_for_the_one_that_frees_its_name() -> None:
    found = changed([], [("s.a", "s.b"), ("s.b", "s.c")], "s.a", "s.b")
    assert list(rename_problems(found)) == []
    assert ready(found, {}) == {name("s.b"): (name("s.b"), name("s.c"))}
    after = changed([], [("s.a", "s.b"), ("s.b", "s.c")], "s.a", "s.b", s__b=done("s.b", "s.c"))
    assert ready(after, {}) == {name("s.a"): (name("s.a"), name("s.b"))}


@pytest.mark.parametrize(
    ("before", "now", "problem"),
    [
        ([("s.*", "x.all")], [("s.a", "x.a"), ("s.*", "x.all")], "x.all holds the rows of s.a, s.b, s.c"),
        ([], [("s.*", "x.all")], "the rows of s.a, s.b, s.c would come into one table, x.all"),
        ([], [("s.a", "s.b"), ("s.b", "s.c"), ("s.c", "s.a")], "s.a, s.b, s.c exchange their names"),
        ([], [("s.a", "s.b"), ("s.b", "s.a")], "s.a, s.b exchange their names"),
    ],
)
def test_names_that_cannot_simply_be_changed_are_told(before: list[Rule], now: list[Rule], problem: str) -> None:
    for order in permutations(("s.a", "s.b", "s.c")):
        [found] = rename_problems(changed(before, now, *order))
        assert problem in found
        assert "--routes copy" in found


def test_a_fan_in_that_moves_as_a_whole_is_renamed_once() -> None:
    found = changed([("s.*", "x.all")], [("s.*", "y.all")], "s.a", "s.b")
    assert list(rename_problems(found)) == []
    assert ready(found, {}) == {name("x.all"): (name("x.all"), name("y.all"))}


def test_time_series_are_not_renamed_and_views_have_no_rows() -> None:
    kinds = [table("s.t", TableKind.TIMESERIES), table("s.v", TableKind.VIEW)]
    found = places(kinds, routes(), routes(("s.*", "x.*")), {})
    [problem] = rename_problems(found)
    assert "s.t is a time series" in problem
    assert ready(found[1:], {}) == {}
