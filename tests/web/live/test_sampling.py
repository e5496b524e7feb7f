"""Samples are delivered immediately, then at intervals; clients fetch again when more happened."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.events.sampling import MOST
from holdfast.jobs.job import EventKind
from holdfast.web.live.frames import Frame
from holdfast.web.live.sampling import AGAIN, REST, Sampler


@dataclass
class Page:
    """A subscriber that records what it got, and at which wake-ups."""

    line: list[Frame] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    must_refetch: bool = False
    refetches: int = 0

    @property
    def wake(self) -> "Page":
        return self

    def offer(self, frames: list[Frame], *, wake: bool) -> None:
        assert not wake
        self.line += frames

    def set(self) -> None:
        self.told.append(len(self.line))
        self.line.clear()
        self.refetches += self.must_refetch
        self.must_refetch = False


class Timers:
    """Timers of an event loop, which pass when the test moves the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, act: Callable[[], None]) -> None:
        self._due.append((self.now + seconds, act))

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while passed := [due for due in self._due if due[0] <= until]:
            first = min(passed, key=lambda due: due[0])
            self._due.remove(first)
            self.now = first[0]
            first[1]()
        self.now = until


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    timers = Timers()
    loop = SimpleNamespace(get_running_loop=lambda: timers)
    monkeypatch.setattr("holdfast.web.live.sampling.asyncio", loop)
    monkeypatch.setattr("holdfast.web.live.sampling.time", timers)
    return timers


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def sampler(timers: Timers, page: Page) -> Sampler:
    subscribers: Any = [page]
    return Sampler(lambda: subscribers)


def frames(number: int, kind: EventKind = EventKind.STARTED) -> list[Frame]:
    frame: Any = SimpleNamespace(event=SimpleNamespace(kind=kind))
    return [frame] * number


def test_the_first_is_told_at_once_and_the_next_after_a_rest(
    sampler: Sampler, timers: Timers, page: Page
) -> None:
    for _ in range(4):
        sampler.offer(frames(1))
    assert (page.told, len(page.line)) == ([1], 3)
    timers.advance(REST)
    assert page.told == [1, 3]
    timers.advance(5)
    assert page.told == [1, 3]
    sampler.offer(frames(1))
    assert page.told == [1, 3, 1]


def test_nothing_is_told_of_nothing(sampler: Sampler, timers: Timers, page: Page) -> None:
    sampler.offer([])
    timers.advance(5)
    assert page.told == []


def test_of_each_kind_a_few_a_second(sampler: Sampler, timers: Timers, page: Page) -> None:
    sampler.offer(frames(3 * MOST) + frames(2, EventKind.FAILED))
    sampler.offer(frames(MOST))
    assert page.told == [MOST + 2]
    timers.advance(1)
    sampler.offer(frames(MOST))
    timers.advance(REST)
    assert page.told[:2] == [MOST + 2, MOST]


def test_who_was_not_told_everything_looks_again_once_that_is_over(
    sampler: Sampler, timers: Timers, page: Page
) -> None:
    sampler.offer(frames(MOST))
    timers.advance(AGAIN - 0.1)
    assert page.refetches == 0
    timers.advance(0.1 + REST)
    assert page.refetches == 1
    timers.advance(10)
    assert page.refetches == 1


def test_and_once_more_for_what_came_meanwhile(
    sampler: Sampler, timers: Timers, page: Page
) -> None:
    sampler.offer(frames(MOST))
    timers.advance(AGAIN - 0.1)
    sampler.offer(frames(1))
    timers.advance(0.1 + REST)
    assert page.refetches == 1
    timers.advance(AGAIN)
    assert page.refetches == 2


def test_of_little_nobody_looks_again(sampler: Sampler, timers: Timers, page: Page) -> None:
    sampler.offer(frames(MOST - 1))
    timers.advance(10)
    assert (page.told, page.refetches) == ([MOST - 1], 0)
