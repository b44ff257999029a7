"""A node's decisions for one changefeed, tick by tick."""

from __future__ import annotations

from dataclasses import replace

from changefeed.errors import FencedError
from tests.unit.processor.deciding_node import A, B, C, Node, assignment, at, orders, reported


def test_tables_follow_the_barrier_job_by_job() -> None:
    node, given = Node(), orders(110, assignment(a=100, b=104))
    [job] = node.tick(given)
    assert node.tick(given) == []
    node.succeed(job)
    assert node.places(given) == {"a": 110, "b": 110}
    assert node.tick(given) == []


def test_a_checkpoint_is_reported_only_after_its_job() -> None:
    node, given = Node(), orders(110, assignment(a=100))
    node.tick(given)
    assert node.places(given) == {"a": 100}


def test_a_pause_begins_nothing_and_says_that_all_stands_only_when_it_does() -> None:
    node, given = Node(), orders(110, assignment(a=100))
    [job] = node.tick(given)
    paused = replace(given, running=False)
    assert node.tick(paused) == []
    assert reported(node.following, paused).run == 1
    node.fail(job, FencedError("the run is over"))
    assert reported(node.following, paused).run == 0
    [again] = node.tick(orders(110, assignment(a=100), run=2))
    assert again.replay_of(A) == at(110)
    assert reported(node.following, orders(110, assignment(a=100), run=2)).run == 2


def test_a_new_run_begins_only_when_no_job_of_the_last_is_left() -> None:
    node = Node()
    [job] = node.tick(orders(110, assignment(a=100)))
    following_run = orders(120, assignment(a=100), run=2)
    assert node.tick(following_run) == []
    assert reported(node.following, following_run).run == 1
    node.succeed(job)
    [_] = node.tick(following_run)
    assert reported(node.following, following_run).run == 2


def test_a_table_that_leaves_is_released_once_its_job_is_over() -> None:
    node = Node()
    [job] = node.tick(orders(110, assignment(a=100, b=100)))
    leaving = orders(120, assignment(a=100, b=100, leaving="b"), rev=11)
    assert node.tick(leaving) == []
    assert reported(node.following, leaving).released == {}
    node.succeed(job)
    node.tick(leaving)
    report = reported(node.following, leaving)
    assert report.released == {B: at(110)}
    assert report.assignment_rev == 11


def test_a_table_that_was_never_begun_is_released_at_its_start() -> None:
    node, leaving = Node(), orders(110, assignment(a=100, b=103, leaving="b"))
    node.tick(leaving)
    assert reported(node.following, leaving).released == {B: at(103)}


def test_a_table_given_again_begins_at_its_new_start() -> None:
    node = Node()
    node.tick(orders(100, assignment(a=100, b=100)))
    node.tick(orders(100, assignment(a=100, b=100, leaving="b"), rev=11))
    node.tick(orders(100, assignment(a=100), rev=12))
    given = orders(130, assignment(a=100, b=120), rev=13)
    jobs = node.tick(given)
    assert node.places(given) == {"a": 100, "b": 120}
    assert [job.of(B).start for job in jobs if job.of(B)] == [at(120)]  # type: ignore[union-attr]  # filtered


def test_an_assignment_is_obeyed_when_no_table_waits_for_a_job() -> None:
    node = Node()
    [job] = node.tick(orders(110, assignment(a=100, b=100)))
    given = orders(120, assignment(a=100), rev=11)
    node.tick(given)
    assert reported(node.following, given).assignment_rev == 10
    node.succeed(job)
    node.tick(given)
    assert reported(node.following, given).assignment_rev == 11
    assert node.following.lanes.tables == {A}


def test_a_table_in_copy_stays_at_its_start_and_holds_no_other() -> None:
    node, given = Node(), orders(110, assignment(a=100, c=100))
    [job] = node.tick(given, copying={C: at(100)})
    node.succeed(job)
    assert node.places(given) == {"a": 110, "c": 100}


def test_a_table_that_leaves_while_its_copy_moves_it_is_released_where_it_came_to() -> None:
    node = Node()
    begun = orders(300, assignment(a=100))
    node.tick(begun, copying={A: at(100)})
    leaving = orders(300, assignment(leaving="a", a=100), rev=11)
    node.following = node.following.follow(leaving, frozenset({A}))
    assert reported(node.following, leaving, copying=frozenset({A})).released == {}
    node.following = node.following.moved({A: at(120)}, leaving)
    assert node.tick(leaving, copying={A: at(120)}) == []
    assert reported(node.following, leaving).released == {A: at(120)}


def test_rows_in_scope_are_told_to_flow_for_a_second() -> None:
    node, given = Node(), orders(110, assignment(a=100))
    assert not node.following.report(given, now=node.now).flowing
    [job] = node.tick(given)
    node.succeed(job)
    assert node.following.report(given, now=node.now + 0.9).flowing
    assert not node.following.report(given, now=node.now + 1.0).flowing
