"""How many processes a supervisor starts for jobs whose process died."""

from collections.abc import Sequence

import pytest

from holdfast.engine.records import Suspects
from holdfast.jobs.outcome import SHARED
from holdfast.worker.processes.isolation import FRESH, PROCESSES, LevelProcess, plan
from holdfast.worker.running.slots import Lane

OLD = FRESH + 1


def lanes(size: int = 100) -> list[Lane]:
    lane = Lane("default", ["async"], size)
    lane.types = ["send"]
    return [lane]


def started(
    waiting: int,
    level: int = 1,
    there: Sequence[LevelProcess] = (),
    *,
    size: int = 100,
    queue: str = "default",
    type: str = "send",
) -> int:
    found = plan([Suspects(queue, type, level, waiting)], lanes(size), {level: there})
    assert set(found) <= {level}
    return found.get(level, 0)


def test_the_guarantee_of_isolation_levels() -> None:
    assert {level: number - 1 for level, number in SHARED.items()} == {1: 16, 2: 4, 3: 0}


@pytest.mark.parametrize(
    ("level", "waiting", "processes"),
    [
        *[(1, 1, 1), (1, 12, 1), (1, 17, 1), (1, 18, 2), (1, 60, 4), (1, 100, 6), (1, 1000, 6)],
        *[(2, 1, 1), (2, 5, 1), (2, 17, 4), (2, 1000, 4)],
        *[(3, 1, 1), (3, 2, 2), (3, 5, 2)],
    ],
)
def test_as_many_processes_start_as_waiting_suspects_need(
    level: int, waiting: int, processes: int
) -> None:
    assert started(waiting, level) == processes
    assert processes <= PROCESSES[level]


def test_slots_of_a_lane_are_respected() -> None:
    assert started(10, size=2) == 5
    assert started(10, size=5) == 2


def test_new_processes_count_as_free() -> None:
    fresh = LevelProcess(0.5, full=False)
    assert started(17, there=[fresh]) == 0
    assert started(40, there=[fresh]) == 2


def test_no_process_starts_while_one_has_free_slots() -> None:
    assert started(50, there=[LevelProcess(OLD, full=False)]) == 0
    assert started(50, there=[LevelProcess(OLD, full=True), LevelProcess(OLD, full=False)]) == 0
    assert started(50, there=[LevelProcess(OLD, full=True)]) == 3


def test_the_number_of_processes_is_bounded() -> None:
    full = LevelProcess(OLD, full=True)
    assert started(1000, 1, [full] * 4) == 2
    assert started(1000, 1, [full] * 6) == 0
    assert started(9, 3, [full, full]) == 0


def test_suspects_of_other_queues_start_no_process() -> None:
    assert started(5, queue="other") == 0
    assert started(5, type="unknown") == 0
    assert started(0) == 0


def test_levels_have_processes_of_their_own() -> None:
    waiting = [Suspects("default", "send", level, 5) for level in (1, 2, 3)]
    assert plan(waiting, lanes(), {}) == {1: 1, 2: 1, 3: 2}
