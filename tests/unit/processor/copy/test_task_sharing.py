from hypothesis import given
from hypothesis import strategies as st

from processor.copy.task_sharing import TOGETHER, TaskSharing


def shared_out(tasks: int, steps: list[bool]) -> tuple[list[int], list[list[int]]]:
    """`steps`: whether each step is small. Returns the steps that can begin, and the steps of each task."""
    sharing: TaskSharing[int] = TaskSharing(tasks)
    begun = [number for number, small in enumerate(steps) if sharing.add(number, small=small)]
    return begun, sharing.tasks()


def test_few_small_steps_are_spread_over_all_tasks() -> None:
    assert shared_out(4, [True] * 6) == ([0, 1, 2, 3, 4, 5], [[0, 4], [1, 5], [2], [3]])


def test_a_chunk_of_a_large_table_is_alone() -> None:
    assert shared_out(3, [False, True, True, True, False]) == ([0, 1, 2, 3, 4], [[0], [4], [1, 2, 3]])


def test_who_comes_first_is_begun_first() -> None:
    begun, tasks = shared_out(1, [True] * (TOGETHER + 3) + [False])
    assert begun == list(range(TOGETHER))
    assert tasks == [begun]


def test_without_a_free_task_nothing_begins() -> None:
    assert shared_out(-1, [True, False]) == ([], [])


@given(st.integers(0, 6), st.lists(st.booleans(), max_size=300))
def test_room_is_what_can_begin(tasks: int, steps: list[bool]) -> None:
    sharing: TaskSharing[int] = TaskSharing(tasks)
    for number, small in enumerate(steps):
        before = sharing.room
        if sharing.add(number, small=small):
            assert before > 0
        else:
            assert before == 0 or not small
    shared_out = sharing.tasks()
    assert len(shared_out) <= tasks
    assert all(0 < len(task) <= TOGETHER for task in shared_out)


@given(st.integers(1, 6), st.lists(st.booleans(), max_size=300))
def test_what_can_begin_is_in_one_task_each(tasks: int, steps: list[bool]) -> None:
    begun, tasks_given = shared_out(tasks, steps)
    assert sorted(number for task in tasks_given for number in task) == begun
    assert all(steps[number] for task in tasks_given if len(task) > 1 for number in task)
