from __future__ import annotations

from changefeed.table import TableId
from sink.mongodb.rows.command_sizes import FIRST, CommandSizes

HOT, CALM = TableId("hot"), TableId("calm")


def test_the_worked_example() -> None:
    sizes = CommandSizes()
    assert sizes.most(HOT, 0) == FIRST
    sizes.took(HOT, 0, 100, 0.142)
    assert sizes.most(HOT, 0) == 2
    sizes.took(HOT, 0, 2, 0.0048)
    assert sizes.most(HOT, 0) == 2
    sizes.took(CALM, 0, 100, 0.002)
    assert sizes.most(CALM, 0) == 400
    sizes.took(CALM, 0, 400, 0.008)
    assert sizes.most(CALM, 0) is None


def test_a_slow_moment_is_made_up_for_within_a_few_commands() -> None:
    sizes = CommandSizes()
    sizes.took(CALM, 0, 100, 0.002)
    sizes.took(CALM, 0, 1, 5.0)
    assert sizes.most(CALM, 0) == 1
    commands = 0
    while (most := sizes.most(CALM, 0)) is not None:
        sizes.took(CALM, 0, most, 0.002)
        commands += 1
    assert commands == 5


def test_a_small_command_says_little_about_large_ones() -> None:
    sizes = CommandSizes()
    sizes.took(HOT, 0, 100, 0.142)
    sizes.took(HOT, 0, 1, 0.002)
    assert sizes.most(HOT, 0) == 4
    sizes.took(HOT, 0, 4, 0.0076)
    assert sizes.most(HOT, 0) == 2


def test_updates_say_nothing_about_inserts() -> None:
    sizes = CommandSizes()
    sizes.took(HOT, 1, 100, 0.6)
    assert (sizes.most(HOT, 0), sizes.most(HOT, 1)) == (FIRST, 1)


def test_a_long_command_of_several_tables_says_nothing_of_each_so_they_get_commands_of_their_own() -> None:
    sizes = CommandSizes()
    assert sizes.may_share(HOT)
    sizes.took_together([HOT, CALM], 0.05)
    assert sizes.may_share(HOT)
    sizes.took_together([HOT, CALM], 0.5)
    assert (sizes.may_share(HOT), sizes.may_share(CALM)) == (False, False)
    sizes.took(HOT, 0, 1, 0.5)
    sizes.took(CALM, 0, 1, 0.002)
    assert (sizes.may_share(HOT), sizes.may_share(CALM)) == (False, True)
    sizes.took(HOT, 0, 1, 0.002)
    assert sizes.may_share(HOT)
