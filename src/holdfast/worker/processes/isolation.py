"""Isolation of jobs with deaths on record: jobs whose process died while they ran
(docs/decisions/0021).

It is unknown which job of a process killed it. So these jobs run again with fewer others at each death:
with one death on record, at most 16 other such jobs share the process; with two, at most 4; with three
or more, none. A supervisor starts processes for each of these levels; its ordinary processes leave such
jobs to them. An embedded worker has no supervisor and does what it can by itself.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.app import Holdfast
from holdfast.engine.engine import Engine
from holdfast.engine.records import Suspects
from holdfast.jobs.job import Job
from holdfast.jobs.outcome import SHARED
from holdfast.worker.processes.pool import is_importable
from holdfast.worker.running.slots import Lane

PROCESSES: Mapping[int, int] = {1: 6, 2: 4, 3: 2}  #: the most that a supervisor starts for a level
FRESH = 2.0  # seconds in which a new process may not have looked for jobs yet
_LOOK = 0.1  # seconds between two looks of a process that is idle
_BUSY_LOOK = 0.3  # seconds between two looks of one that is busy, or held back by limits
_EMBEDDED_LOOK = 2.0  # seconds between two looks of an embedded worker that found none
_HOLD, _EVERY = 1.0, 10.0  # a job that has to run alone holds ordinary jobs for 1 of 10 seconds
_PATIENCE = 60.0  # seconds, after which it no longer waits for running jobs to end
_ALONE = 4  # in place of a level: not counted with those in processes of their own

Taken = tuple[Lane, list[Job]]


class LevelProcess(NamedTuple):
    """A process for one level, as its supervisor knows it."""

    age: float  #: seconds since its start
    full: bool  #: it had too few slots for the jobs that waited when it last looked


def plan(
    waiting: Iterable[Suspects],
    lanes: Sequence[Lane],
    processes_of: Mapping[int, Sequence[LevelProcess]],
) -> dict[int, int]:
    """Return how many processes to start for each level: none while a process of the level is new or
    has free slots. Such a process takes the waiting jobs; if it does not, a limit holds them back."""
    needed = dict.fromkeys(SHARED, 0.0)
    for group in waiting:
        lane = next((lane for lane in lanes if _takes(lane, group)), None)
        if lane is not None:
            needed[group.level] += group.waiting / min(SHARED[group.level], lane.size)
    started = {}
    for level, number in needed.items():
        there = processes_of.get(level, ())
        fresh = sum(process.age < FRESH for process in there)
        if number and all(process.full or process.age < FRESH for process in there):
            wanted = min(math.ceil(number) - fresh, PROCESSES[level] - len(there))
            if wanted > 0:
                started[level] = wanted
    return started


def _takes(lane: Lane, group: Suspects) -> bool:
    return lane.queue == group.queue and group.type in lane.types


class SuspectLane(Lane):
    """Jobs of one level, in slots of an ordinary lane."""

    of: Lane

    def __init__(self, of: Lane, level: int, *, apart: bool = False) -> None:
        super().__init__(of.queue, of.kinds, of.size)
        self.of = of
        self.level = level
        self.apart = apart


class Isolation:
    """Decides which jobs with deaths on record a worker claims. The base class, for the ordinary
    processes of a supervisor, claims none."""

    level = 0
    takes_others = True  #: it runs ordinary jobs, too
    holds_others = False  #: it begins no ordinary job at this moment
    full = False  #: it has too few slots for the jobs that wait
    idle_since: float | None = None
    look_at = math.inf  #: when it wants to look again

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lanes: dict[tuple[Lane, int, bool], SuspectLane] = {}

    def take(self, worker: str, now: float, lanes: Sequence[Lane]) -> Iterator[Taken]:
        """Claim the jobs that may begin now, and yield them by lane. The caller starts each lane's jobs
        before it asks for the next lane's."""
        return iter(())

    def _lane(self, of: Lane, level: int, *, apart: bool = False) -> SuspectLane:
        key = of, level, apart
        if key not in self._lanes:
            self._lanes[key] = SuspectLane(of, level, apart=apart)
        return self._lanes[key]

    def _running(self, level: int) -> int:
        return sum(lane.taken for lane in self._lanes.values() if lane.level == level)

    def _claim(
        self, worker: str, lane: SuspectLane, limit: int, level: int, types: Collection[str]
    ) -> list[Job]:
        rules = {type: rule for type, rule in lane.of.rules.items() if type in types}
        return self._engine.claimer.claim_suspects(
            [lane.queue], limit, level=level, worker=worker, types=sorted(types), rules=rules
        )


class Process(Isolation):
    """For a process that a supervisor started for one level: it claims no other jobs."""

    takes_others = False
    look_at = 0.0

    def __init__(self, engine: Engine, level: int) -> None:
        super().__init__(engine)
        self.level = level

    def take(self, worker: str, now: float, lanes: Sequence[Lane]) -> Iterator[Taken]:
        if now < self.look_at:
            return
        waiting = [group for group in self._engine.suspects() if group.level == self.level]
        known = began = full = False
        for lane in lanes:
            mine = [group for group in waiting if _takes(lane, group)]
            if not mine:
                continue
            known = True
            limit = min(lane.free, SHARED[self.level] - self._running(self.level))
            slots, jobs = self._lane(lane, self.level), list[Job]()
            if limit > 0:
                types = {group.type for group in mine}
                jobs = self._claim(worker, slots, limit, self.level, types)
            # If it claimed fewer jobs than it has slots for, a limit holds the others back.
            full = full or (len(jobs) >= limit and sum(g.waiting for g in mine) > len(jobs))
            if jobs:
                began = True
                yield slots, jobs
        self.full = full
        busy = known or self._running(self.level) > 0
        self.idle_since = None if busy else self.idle_since or now
        self.look_at = now + (_BUSY_LOOK if busy and not began else _LOOK)


class Embedded(Isolation):
    """For a worker inside an application. A job with one death on record runs among the others, in free
    slots. A job with more deaths runs in a process of its own, if that can import the task, else while
    no other job runs."""

    look_at = 0.0

    def __init__(self, engine: Engine, is_importable: Callable[[str], bool]) -> None:
        super().__init__(engine)
        self._is_importable = is_importable
        self._eager = False  #: looks whenever something has happened
        self._alone: SuspectLane | None = None  #: the job in it runs while no other job begins
        self._alone_since = 0.0
        self._others_until = 0.0  #: the turn of the ordinary jobs
        self._wanted_since: float | None = None

    def take(self, worker: str, now: float, lanes: Sequence[Lane]) -> Iterator[Taken]:
        if self._alone is not None:
            if self._alone.taken:
                return
            self._alone, self.holds_others = None, False
            self._others_until = now + (now - self._alone_since)
        if now < self.look_at and not self._eager:
            return
        waiting = self._engine.suspects()
        known = [lane for lane in lanes if any(_takes(lane, group) for group in waiting)]
        # The next slot is for them: between two looks, ordinary jobs would take each freed slot.
        self._eager = any(not lane.free for lane in known)
        yield from self._take_shared(worker, lanes, waiting)
        yield from self._take_alone(worker, now, lanes, waiting)
        self.look_at = now + (_BUSY_LOOK if known else _EMBEDDED_LOOK)

    def _take_shared(
        self, worker: str, lanes: Sequence[Lane], waiting: Sequence[Suspects]
    ) -> Iterator[Taken]:
        for lane in lanes:
            for level, most in SHARED.items():
                types = {
                    group.type
                    for group in waiting
                    if group.level == level
                    and _takes(lane, group)
                    and (level == 1 or self._is_importable(group.type))
                }
                limit = min(lane.free, most - self._running(level))
                if not types or limit < 1:
                    continue
                slots = self._lane(lane, level, apart=level > 1)
                if jobs := self._claim(worker, slots, limit, level, types):
                    yield slots, jobs

    def _take_alone(
        self, worker: str, now: float, lanes: Sequence[Lane], waiting: Sequence[Suspects]
    ) -> Iterator[Taken]:
        """Claim a job whose task no other process can import, at a time when no other job runs. To get
        there, new jobs are held back for one second in ten; after a minute the job runs beside jobs
        that have not ended by then, while no new ones begin. Afterwards ordinary jobs run for as long
        as this job ran, before the next such job."""
        self.holds_others = False
        wanted = [
            (lane, group)
            for lane in lanes
            for group in waiting
            if _takes(lane, group) and group.level > 1 and not self._is_importable(group.type)
        ]
        if not wanted:
            self._wanted_since = None
            return
        busy = any(lane.taken for lane in lanes)
        idle = not busy and all(lane.exhausted or not lane.types for lane in lanes)
        if now < self._others_until and not idle:
            return
        self._wanted_since = self._wanted_since or now
        waited = now - self._wanted_since
        lane, group = wanted[0]
        if not lane.free or (busy and waited < _PATIENCE):
            self.holds_others = lane.free > 0 and waited % _EVERY < _HOLD
            return
        slots = self._lane(lane, _ALONE)
        if jobs := self._claim(worker, slots, 1, group.level, {group.type}):
            self._alone, self._alone_since, self._wanted_since = slots, now, None
            self.holds_others = True
            yield slots, jobs


def make_isolation(app: Holdfast, level: int | None) -> Isolation:
    """Return the isolation of a worker. `level`: None for an embedded worker, 0 for an ordinary process
    of a supervisor, else the level that the process was started for."""
    if level is None:
        return Embedded(app.engine, lambda type: is_importable(app.tasks[type]))
    return Process(app.engine, level) if level else Isolation(app.engine)
