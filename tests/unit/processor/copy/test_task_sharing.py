from hypothesis import given
from hypothesis import strategies as st

from processor.copy.task_sharing import TOGETHER, Lots


def lots_of(tasks: int, works: list[bool]) -> tuple[list[int], list[list[int]]]:
    """`works`: whether each is small. Those that can begin, and how they are shared out."""
    lots: Lots[int] = Lots(tasks)
    begun = [number for number, small in enumerate(works) if lots.add(number, small=small)]
    return begun, lots.tasks()


def test_few_small_works_are_spread_over_all_tasks() -> None:
    assert lots_of(4, [True] * 6) == ([0, 1, 2, 3, 4, 5], [[0, 4], [1, 5], [2], [3]])


def test_a_chunk_of_a_large_table_is_alone() -> None:
    assert lots_of(3, [False, True, True, True, False]) == ([0, 1, 2, 3, 4], [[0], [4], [1, 2, 3]])


def test_who_comes_first_is_begun_first() -> None:
    begun, tasks = lots_of(1, [True] * (TOGETHER + 3) + [False])
    assert begun == list(range(TOGETHER))
    assert tasks == [begun]


def test_without_a_free_task_nothing_begins() -> None:
    assert lots_of(-1, [True, False]) == ([], [])


@given(st.integers(0, 6), st.lists(st.booleans(), max_size=300))
def test_room_is_what_can_begin(tasks: int, works: list[bool]) -> None:
    lots: Lots[int] = Lots(tasks)
    for number, small in enumerate(works):
        before = lots.room
        if lots.add(number, small=small):
            assert before > 0
        else:
            assert before == 0 or not small
    shared_out = lots.tasks()
    assert len(shared_out) <= tasks
    assert all(0 < len(task) <= TOGETHER for task in shared_out)


@given(st.integers(1, 6), st.lists(st.booleans(), max_size=300))
def test_what_can_begin_is_in_one_task_each(tasks: int, works: list[bool]) -> None:
    begun, shared_out = lots_of(tasks, works)
    assert sorted(number for task in shared_out for number in task) == begun
    assert all(works[number] for task in shared_out if len(task) > 1 for number in task)
