from hypothesis import given
from hypothesis import strategies as st

from processor.copy.task_sharing import CHUNKS_TOGETHER, TOGETHER, StepSize, TaskSharing

BRIEF, SMALL, CHUNK, ANY = StepSize.BRIEF, StepSize.SMALL, StepSize.CHUNK, StepSize.ANY
SIZES = st.lists(st.sampled_from(StepSize), max_size=300)


def shared_out(tasks: int, steps: list[StepSize]) -> tuple[list[int], list[list[int]]]:
    """The steps that can begin, and the steps of each task."""
    sharing: TaskSharing[int] = TaskSharing(tasks)
    begun = [number for number, size in enumerate(steps) if sharing.add(number, size)]
    return begun, sharing.tasks()


def test_few_small_steps_are_spread_over_all_tasks() -> None:
    assert shared_out(4, [SMALL] * 6) == ([0, 1, 2, 3, 4, 5], [[0, 4], [1, 5], [2], [3]])


def test_brief_steps_take_no_more_tasks_than_they_are_worth() -> None:
    assert shared_out(4, [BRIEF] * 3) == ([0, 1, 2], [[0, 1, 2]])
    assert shared_out(4, [BRIEF] * 9) == (list(range(9)), [[0, 2, 4, 6, 8], [1, 3, 5, 7]])


def test_a_chunk_has_a_task_of_its_own_while_there_are_free_ones() -> None:
    assert shared_out(3, [CHUNK, SMALL, SMALL, SMALL, CHUNK]) == ([0, 1, 2, 3, 4], [[0], [4], [1, 2, 3]])


def test_further_chunks_join_the_tasks_of_others() -> None:
    begun, tasks = shared_out(4, [CHUNK] * 6)
    assert tasks == [[0, 4], [1, 5], [2], [3]]
    begun, tasks = shared_out(1, [CHUNK] * 6)
    assert tasks == [begun] == [list(range(CHUNKS_TOGETHER))]


def test_nothing_waits_behind_what_may_take_hours() -> None:
    assert shared_out(2, [ANY, CHUNK, ANY, CHUNK, SMALL]) == ([0, 1, 3], [[0], [1, 3]])


def test_who_comes_first_is_begun_first() -> None:
    begun, tasks = shared_out(1, [SMALL] * (TOGETHER + 3) + [CHUNK])
    assert begun == list(range(TOGETHER))
    assert tasks == [begun]


def test_without_a_free_task_nothing_begins() -> None:
    assert shared_out(-1, list(StepSize)) == ([], [])


@given(st.integers(0, 6), SIZES)
def test_room_is_what_can_begin(tasks: int, steps: list[StepSize]) -> None:
    sharing: TaskSharing[int] = TaskSharing(tasks)
    for number, size in enumerate(steps):
        before = sharing.room(size)
        assert sharing.add(number, size) == (before > 0)
    shared_out = sharing.tasks()
    assert len(shared_out) <= tasks
    assert all(0 < len(task) <= TOGETHER for task in shared_out)


@given(st.integers(0, 6), st.sampled_from(StepSize), st.integers(0, 100), SIZES)
def test_as_many_can_begin_as_there_is_room(tasks: int, size: StepSize, more: int, before: list[StepSize]) -> None:
    sharing: TaskSharing[int] = TaskSharing(tasks)
    for number, each in enumerate(before):
        sharing.add(number, each)
    room = sharing.room(size)
    assert all(sharing.add(-number, size) for number in range(min(room, more)))


@given(st.integers(1, 6), SIZES)
def test_what_can_begin_is_in_one_task_each(tasks: int, steps: list[StepSize]) -> None:
    begun, tasks_given = shared_out(tasks, steps)
    assert sorted(number for task in tasks_given for number in task) == begun
    for task in tasks_given:
        sizes = {steps[number] for number in task}
        assert sizes <= {BRIEF, SMALL} or sizes == {CHUNK} or (sizes == {ANY} and len(task) == 1)
