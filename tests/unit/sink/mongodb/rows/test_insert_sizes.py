from __future__ import annotations

from changefeed.table import TableId
from sink.mongodb.rows.insert_sizes import FIRST, InsertSizes

HOT, CALM = TableId("hot"), TableId("calm")


def test_the_worked_example() -> None:
    sizes = InsertSizes()
    assert sizes.most(HOT) == FIRST
    sizes.took(HOT, 100, 0.142)
    assert sizes.most(HOT) == 2
    sizes.took(HOT, 2, 0.0048)
    assert sizes.most(HOT) == 2
    sizes.took(CALM, 100, 0.002)
    assert sizes.most(CALM) == 400
    sizes.took(CALM, 400, 0.008)
    assert sizes.most(CALM) is None


def test_a_slow_moment_is_made_up_for_within_a_few_commands() -> None:
    sizes = InsertSizes()
    sizes.took(CALM, 100, 0.002)
    sizes.took(CALM, 1, 5.0)
    assert sizes.most(CALM) == 1
    commands = 0
    while (most := sizes.most(CALM)) is not None:
        sizes.took(CALM, most, 0.002)
        commands += 1
    assert commands == 5


def test_a_small_command_says_little_about_large_ones() -> None:
    sizes = InsertSizes()
    sizes.took(HOT, 100, 0.142)
    sizes.took(HOT, 1, 0.002)
    assert sizes.most(HOT) == 4
    sizes.took(HOT, 4, 0.0076)
    assert sizes.most(HOT) == 2
