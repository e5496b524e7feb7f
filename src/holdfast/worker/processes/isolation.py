"""Where jobs run whose process died under them before (decision 0021).

Nobody knows which of the jobs in a process killed it. So they run again in ever smaller company: with
one death on record beside at most 16 others of that kind, with two beside 4, with three or more alone.
A supervisor starts processes for each of these levels; its ordinary processes leave such jobs to them.
An embedded worker has no supervisor and does what it can by itself.
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

PROCESSES: Mapping[int, int] = {1: 6, 2: 4, 3: 2}  #: by level: as many a supervisor starts
FRESH = 2.0  # seconds in which a new process may not have looked for its jobs yet
_LOOK = 0.1  # seconds between two looks of a process that has nothing to do
_BUSY_LOOK = 0.3  # seconds between two looks of one that has, or that limits keep from more
_EMBEDDED_LOOK = 2.0  # seconds between two looks of an embedded worker that knows of none
_HOLD, _EVERY = 1.0, 10.0  # for so long of every so many seconds, it begins nothing else
_PATIENCE = 60.0  # seconds, after which it no longer waits for the others to end
_LONE = 4  # in place of a level: not counted with those in processes of their own

Taken = tuple[Lane, list[Job]]


class LevelProcess(NamedTuple):
    """A process for one level, as its supervisor knows it."""

    age: float  #: seconds since its start
    full: bool  #: jobs waited that it had no slot for, when it last looked


def plan(
    waiting: Iterable[Suspects],
    lanes: Sequence[Lane],
    processes_of: Mapping[int, Sequence[LevelProcess]],
) -> dict[int, int]:
    """How many processes to start for each level. One that is new, or that has free slots, takes what
    waits; if it does not, a limit holds that back."""
    needed = dict.fromkeys(SHARED, 0.0)
    for one in waiting:
        for lane in lanes:
            if lane.queue == one.queue and one.type in lane.types:
                needed[one.level] += one.waiting / min(SHARED[one.level], lane.size)
                break
    started = {}
    for level, number in needed.items():
        there = processes_of.get(level, ())
        fresh = sum(one.age < FRESH for one in there)
        if number and all(one.full or one.age < FRESH for one in there):
            wanted = min(math.ceil(number) - fresh, PROCESSES[level] - len(there))
            started[level] = max(0, wanted)
    return {level: number for level, number in started.items() if number}


class SuspectLane(Lane):
    """Jobs of one level, in slots of an ordinary lane."""

    of: Lane

    def __init__(self, of: Lane, level: int, *, apart: bool = False) -> None:
        super().__init__(of.queue, of.kinds, of.size)
        self.of = of
        self.level = level
        self.apart = apart


class Isolation:
    """Which jobs with deaths on record a worker takes. This one takes none: an ordinary process."""

    level = 0
    takes_others = True  #: it is there for ordinary jobs, too
    holds_others = False  #: it begins no ordinary job at this moment
    full = False  #: jobs wait that it has no slot for
    idle_since: float | None = None
    look_at = math.inf  #: when it wants to look again

    def take(self, worker: str, now: float, lanes: Sequence[Lane]) -> Iterator[Taken]:
        """Claim what may begin now. The caller begins each part before it asks for the next one."""
        return iter(())


class _Taking(Isolation):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.look_at = 0.0
        self._lanes: dict[tuple[Lane, int, bool], SuspectLane] = {}

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


def _mine(waiting: Iterable[Suspects], lane: Lane) -> list[Suspects]:
    return [one for one in waiting if one.queue == lane.queue and one.type in lane.types]


class Process(_Taking):
    """A process that a supervisor started for one level: it takes nothing else."""

    takes_others = False

    def __init__(self, engine: Engine, level: int) -> None:
        super().__init__(engine)
        self.level = level

    def take(self, worker: str, now: float, lanes: Sequence[Lane]) -> Iterator[Taken]:
        if now < self.look_at:
            return
        waiting = [one for one in self._engine.suspects() if one.level == self.level]
        known = began = full = False
        for lane in lanes:
            if not (mine := _mine(waiting, lane)):
                continue
            known = True
            limit = min(lane.free, SHARED[self.level] - self._running(self.level))
            slots, jobs = self._lane(lane, self.level), list[Job]()
            if limit > 0:
                jobs = self._claim(worker, slots, limit, self.level, {one.type for one in mine})
            # Less than it had slots for: a limit holds the others back.
            full = full or (len(jobs) >= limit and sum(one.waiting for one in mine) > len(jobs))
            if jobs:
                began = True
                yield slots, jobs
        self.full = full
        busy = known or self._running(self.level) > 0
        self.idle_since = None if busy else self.idle_since or now
        self.look_at = now + (_BUSY_LOOK if busy and not began else _LOOK)


class Embedded(_Taking):
    """A worker inside of an application. One death on record: among the others, in free slots. Two or
    more: in a process of its own, where that can import the task; else when nothing else runs."""

    def __init__(self, engine: Engine, is_importable: Callable[[str], bool]) -> None:
        super().__init__(engine)
        self._is_importable = is_importable
        self._eager = False  #: looks whenever something has happened
        self._lone: SuspectLane | None = None  #: runs while nothing else begins
        self._lone_since = 0.0
        self._others_until = 0.0  #: their turn
        self._wanted_since: float | None = None

    def take(self, worker: str, now: float, lanes: Sequence[Lane]) -> Iterator[Taken]:
        if self._lone is not None:
            if self._lone.taken:
                return
            self._lone, self.holds_others = None, False
            self._others_until = now + (now - self._lone_since)
        if now < self.look_at and not self._eager:
            return
        waiting = self._engine.suspects()
        known = [lane for lane in lanes if _mine(waiting, lane)]
        # The next slot is theirs: between two looks, ordinary jobs would take each that becomes free.
        self._eager = any(not lane.free for lane in known)
        yield from self._beside(worker, lanes, waiting)
        yield from self._alone(worker, now, lanes, waiting)
        self.look_at = now + (_BUSY_LOOK if known else _EMBEDDED_LOOK)

    def _beside(
        self, worker: str, lanes: Sequence[Lane], waiting: Sequence[Suspects]
    ) -> Iterator[Taken]:
        for lane in lanes:
            for level, most in SHARED.items():
                mine = {one.type for one in _mine(waiting, lane) if one.level == level}
                types = {one for one in mine if level == 1 or self._is_importable(one)}
                limit = min(lane.free, most - self._running(level))
                if not types or limit < 1:
                    continue
                slots = self._lane(lane, level, apart=level > 1)
                if jobs := self._claim(worker, slots, limit, level, types):
                    yield slots, jobs

    def _alone(
        self, worker: str, now: float, lanes: Sequence[Lane], waiting: Sequence[Suspects]
    ) -> Iterator[Taken]:
        """Run one that no other process could find. It waits for a moment in which nothing runs. To
        find one, new jobs are held back for a second now and then; after a minute it runs beside what
        has not ended by then, while nothing new begins. Then it is the others' turn for as long."""
        self.holds_others = False
        wanted = [
            (lane, one)
            for lane in lanes
            for one in _mine(waiting, lane)
            if one.level > 1 and not self._is_importable(one.type)
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
        lane, one = wanted[0]
        if not lane.free or (busy and waited < _PATIENCE):
            self.holds_others = lane.free > 0 and waited % _EVERY < _HOLD
            return
        lone = self._lane(lane, _LONE)
        if jobs := self._claim(worker, lone, 1, one.level, {one.type}):
            self._lone, self._lone_since, self._wanted_since = lone, now, None
            self.holds_others = True
            yield lone, jobs


def make_isolation(app: Holdfast, level: int | None) -> Isolation:
    """For a worker: None: it is embedded; 0: an ordinary process of a supervisor; else: one for jobs of
    that level."""
    if level is None:
        return Embedded(app.engine, lambda type: is_importable(app.tasks[type]))
    return Process(app.engine, level) if level else Isolation()
