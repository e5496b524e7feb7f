"""Group commit: who leads, who waits, and what becomes of failures and interrupts."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.engine.group_commit import GroupCommit, Request
from holdfast.errors import DatabaseBusy, OutcomeUnknown


class Gate:
    """A writer that can be held, and that remembers the groups it was given."""

    def __init__(self) -> None:
        self.groups: list[list[Any]] = []
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)
        self.failing: BaseException | None = None

    def write(self, group: Sequence[Request[Any, Any]]) -> None:
        self.groups.append([request.work for request in group])
        self.entered.release()
        self.open.wait(10)
        if self.failing is not None:
            raise self.failing
        for request in group:
            request.resolve(request.work * 2)


def submit_in_threads(group: GroupCommit[Any, Any], works: Sequence[Any]) -> list[Any]:
    answers: list[Any] = [None] * len(works)

    def run(number: int) -> None:
        try:
            answers[number] = group.submit(works[number])
        except BaseException as error:
            answers[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    answers.append(threads)
    return answers


def joined(answers: list[Any]) -> list[Any]:
    for thread in answers.pop():
        thread.join(10)
        assert not thread.is_alive()
    return answers


def until_waiting(group: GroupCommit[Any, Any], count: int) -> None:
    deadline = threading.Event()
    for _ in range(1000):
        if len(group._waiting) == count:
            return
        deadline.wait(0.005)
    raise AssertionError("they do not gather")


def test_requests_that_arrive_during_a_write_share_the_next_commit() -> None:
    gate = Gate()
    group: GroupCommit[int, int] = GroupCommit(gate.write, largest=100)
    first = submit_in_threads(group, [1])
    gate.entered.acquire(timeout=10)
    rest = submit_in_threads(group, [2, 3, 4])
    until_waiting(group, 3)
    gate.open.set()
    assert joined(first) == [2]
    assert joined(rest) == [4, 6, 8]
    assert [sorted(works) for works in gate.groups] == [[1], [2, 3, 4]]


def test_groups_are_bounded() -> None:
    gate = Gate()
    group: GroupCommit[int, int] = GroupCommit(gate.write, largest=2)
    first = submit_in_threads(group, [0])
    gate.entered.acquire(timeout=10)
    rest = submit_in_threads(group, [1, 2, 3, 4, 5])
    until_waiting(group, 5)
    gate.open.set()
    joined(first)
    assert sorted(joined(rest)) == [2, 4, 6, 8, 10]
    assert [len(works) for works in gate.groups] == [1, 2, 2, 1]


def test_a_failed_write_fails_its_group_and_no_later_group() -> None:
    gate = Gate()
    gate.open.set()
    gate.failing = ValueError("no")
    group: GroupCommit[int, int] = GroupCommit(gate.write, largest=100)
    with pytest.raises(ValueError, match="no"):
        group.submit(1)
    gate.failing = None
    assert group.submit(2) == 4


@pytest.mark.parametrize(
    ("raised", "others"),
    [
        (KeyboardInterrupt(), "OutcomeUnknown"),
        (SystemExit(), "OutcomeUnknown"),
        (TypeError(), "OutcomeUnknown"),  # a mistake of ours, which may come after the commit, too
        (DatabaseBusy("held"), "DatabaseBusy"),
    ],
)
def test_an_interrupt_of_the_leader_leaves_the_outcome_of_its_group_unknown(
    raised: BaseException, others: str
) -> None:
    """It is the leader's own, and the others cannot know whether it came after the commit."""
    gate = Gate()
    gate.open.set()
    group: GroupCommit[int, int] = GroupCommit(gate.write, largest=100)
    first = submit_in_threads(group, [0])
    joined(first)
    gate.open.clear()
    leader = submit_in_threads(group, [1])
    gate.entered.acquire(timeout=10)
    gate.entered.acquire(timeout=10)
    rest = submit_in_threads(group, [2, 3])
    until_waiting(group, 2)
    gate.failing = raised
    gate.open.set()
    answers = joined(leader) + joined(rest)
    assert answers[0] is raised
    kinds = sorted(type(answer).__name__ for answer in answers[1:])
    assert kinds == sorted([others, type(raised).__name__])


def test_an_interrupted_waiter_leaves_a_leader_for_the_group() -> None:
    """The thread that was to lead next is interrupted: the one behind it leads."""
    gate = Gate()
    group: GroupCommit[int, int] = GroupCommit(gate.write, largest=1)
    first = submit_in_threads(group, [1])
    gate.entered.acquire(timeout=10)

    class Interrupted(Request[int, int]):
        def wait(self, timeout: float) -> None:
            raise KeyboardInterrupt

    interrupted = Interrupted(2)
    with group._lock:
        group._waiting.append(interrupted)
    rest = submit_in_threads(group, [3])
    until_waiting(group, 2)
    with pytest.raises(KeyboardInterrupt):
        group._wait(interrupted, 1.0)
    gate.open.set()
    assert joined(first) + joined(rest) == [2, 6]
    assert group.submit(4) == 8


def test_a_request_that_times_out_before_its_turn_has_written_nothing() -> None:
    gate = Gate()
    group: GroupCommit[int, int] = GroupCommit(gate.write, largest=256)
    first = submit_in_threads(group, [1])
    gate.entered.acquire(timeout=10)
    with pytest.raises(DatabaseBusy, match="was not begun"):
        group.submit(2, timeout=0.05)
    rest = submit_in_threads(group, [3])
    until_waiting(group, 1)
    gate.open.set()
    assert joined(first) + joined(rest) == [2, 6]
    assert gate.groups == [[1], [3]]


def test_a_request_that_times_out_during_its_write_has_an_unknown_outcome() -> None:
    gate = Gate()
    group: GroupCommit[int, int] = GroupCommit(gate.write, largest=256)
    first = submit_in_threads(group, [1])
    gate.entered.acquire(timeout=10)
    raised: list[BaseException] = []

    def follow() -> None:
        try:
            group.submit(3, timeout=0.5)
        except OutcomeUnknown as problem:
            raised.append(problem)

    leader = submit_in_threads(group, [2])
    until_waiting(group, 1)
    follower = threading.Thread(target=follow)
    follower.start()
    until_waiting(group, 2)
    held, gate.open = gate.open, threading.Event()
    held.set()  # the second group, of 2 and 3, is held in its turn
    gate.entered.acquire(timeout=10)
    follower.join(10)
    assert len(raised) == 1
    gate.open.set()
    assert joined(first) + joined(leader) == [2, 4]
    assert group.submit(5) == 10
