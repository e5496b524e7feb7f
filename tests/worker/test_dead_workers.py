"""Who is dead, by what a watcher saw: no clock but its own, no silence but under its own beats."""

from collections.abc import Iterable
from datetime import UTC, datetime

from holdfast.engine.records import Seen, WorkerInfo
from holdfast.worker.liveness.dead_workers import Observer

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)
BEAT, LOOK = 5.0, 2.0


def worker(id: str, beat_no: int = 1, *, dead: bool = False) -> WorkerInfo:
    return WorkerInfo(
        id=id,
        info="{}",
        beat_no=beat_no,
        started_at=MOMENT,
        beat_at=MOMENT,
        left_at=None,
        died_at=MOMENT if dead else None,
    )


class Watcher:
    """An observer, and the beats and looks of its own heart: every 5 and every 2 seconds."""

    def __init__(self, *workers: WorkerInfo, now: float = 1000.0) -> None:
        self.observer = Observer(BEAT)
        self.workers = {one.id: one for one in workers}
        self.now = now
        self.beat_at = now
        self.beats = self.looks = True

    def others(self, *workers: WorkerInfo) -> None:
        self.workers |= {one.id: one for one in workers}

    def watch(self, seconds: float, mine: Iterable[str] = ()) -> tuple[float, list[Seen]]:
        """Advance until a worker is declared dead or the time is up; returns the time and the
        workers."""
        began = self.now
        while True:
            if self.beats and self.now >= self.beat_at:
                self.observer.beat(self.now)
                self.beat_at = self.now + BEAT
            if self.looks:
                dead = self.observer.look(self.now, list(self.workers.values()), frozenset(mine))
                if dead:
                    return self.now - began, dead
            if self.now - began >= seconds:
                return self.now - began, []
            self.now += LOOK

    def sleeps(self, seconds: float) -> None:
        """The whole process does nothing, as in a suspended machine."""
        self.now += seconds


def test_a_worker_is_dead_after_fifteen_seconds_of_silence() -> None:
    watcher = Watcher(worker("w", 7))
    assert watcher.watch(60) == (16.0, [Seen("w", 7)])  # the first look after the fifteenth second


def test_a_worker_is_not_dead_before_that() -> None:
    observer = Observer(BEAT)
    for now in (0.0, 5.0, 10.0, 14.9):
        observer.beat(now)
        assert observer.look(now, [worker("w")], frozenset()) == []
    observer.beat(15.0)
    assert observer.look(15.0, [worker("w")], frozenset()) == [Seen("w", 1)]


def test_silence_is_counted_from_the_first_observation() -> None:
    """However long the worker was silent before: it was not observed."""
    watcher = Watcher()
    watcher.watch(100)
    watcher.now += LOOK
    watcher.others(worker("w"))
    assert watcher.watch(60) == (16.0, [Seen("w", 1)])


def test_a_heartbeat_resets_the_silence() -> None:
    watcher = Watcher(worker("w", 1))
    assert watcher.watch(14) == (14.0, [])
    watcher.others(worker("w", 2))
    assert watcher.watch(14) == (14.0, [])
    assert watcher.watch(60) == (2.0, [Seen("w", 2)])


def test_a_worker_with_heartbeats_is_never_dead() -> None:
    watcher = Watcher(worker("w", 1))
    for beat_no in range(2, 100):
        assert watcher.watch(6)[1] == []
        watcher.others(worker("w", beat_no))


def test_no_worker_is_declared_dead_before_the_observers_first_heartbeat() -> None:
    watcher = Watcher(worker("w"))
    watcher.beats = False
    assert watcher.watch(100) == (100.0, [])


def test_silence_is_not_counted_while_the_observers_heartbeats_fail() -> None:
    """The observer can read and cannot write: perhaps no worker can."""
    watcher = Watcher(worker("w"))
    assert watcher.watch(10)[1] == []
    watcher.beats = False
    assert watcher.watch(100)[1] == []
    watcher.beats, watcher.beat_at = True, watcher.now
    after, dead = watcher.watch(60)
    assert (after >= 15.0, dead) == (True, [Seen("w", 1)])


def test_an_outage_resets_the_silence() -> None:
    """Neither beats nor looks for a while: afterwards all have the whole time to be heard of."""
    watcher = Watcher(worker("w"))
    assert watcher.watch(14)[1] == []
    watcher.beats = watcher.looks = False
    watcher.watch(20)
    watcher.beats = watcher.looks = True
    watcher.beat_at = watcher.now
    assert watcher.watch(14) == (14.0, [])
    assert watcher.watch(60) == (2.0, [Seen("w", 1)])


def test_failing_heartbeats_reset_the_silence_although_observations_continue() -> None:
    watcher = Watcher(worker("w"))
    assert watcher.watch(6)[1] == []
    watcher.beats = False
    assert watcher.watch(10)[1] == []
    watcher.beats, watcher.beat_at = True, watcher.now
    assert watcher.watch(14) == (14.0, [])


def test_one_late_heartbeat_of_the_observer_is_tolerated() -> None:
    """A beat that waited two seconds for a lock is no outage."""
    observer = Observer(BEAT)
    for now in range(15):
        if now in (0, 5, 12):
            observer.beat(float(now))
        assert observer.look(float(now), [worker("w")], frozenset()) == []
    assert observer.look(15.0, [worker("w")], frozenset()) == [Seen("w", 1)]


def test_a_jump_of_the_clock_does_not_count_as_silence() -> None:
    """The machine was suspended: the others had no chance to beat in our time."""
    watcher = Watcher(worker("w"))
    assert watcher.watch(8)[1] == []
    watcher.sleeps(3600)
    assert watcher.watch(14) == (14.0, [])
    assert watcher.watch(60) == (2.0, [Seen("w", 1)])


def test_rare_observations_do_not_count_as_silence() -> None:
    """Between two of them a whole life may have passed unseen."""
    observer = Observer(BEAT)
    for now in range(0, 200, 5):
        observer.beat(float(now))
        if now % 10 == 0:
            assert observer.look(float(now), [worker("w")], frozenset()) == []


def test_own_and_dead_workers_are_not_judged() -> None:
    watcher = Watcher(worker("mine"), worker("dead", dead=True), worker("other"))
    after, dead = watcher.watch(60, mine=["mine"])
    assert (after, dead) == (16.0, [Seen("other", 1)])


def test_workers_are_judged_separately() -> None:
    watcher = Watcher(worker("a"))
    watcher.watch(6)
    watcher.others(worker("b"))
    assert watcher.watch(60) == (10.0, [Seen("a", 1)])
    watcher.others(worker("a", dead=True))
    assert watcher.watch(60) == (6.0, [Seen("b", 1)])


def test_a_worker_that_returns_starts_without_silence() -> None:
    watcher = Watcher(worker("w"))
    watcher.watch(14)
    del watcher.workers["w"]
    watcher.watch(4)
    watcher.others(worker("w"))
    assert watcher.watch(14) == (14.0, [])


def test_dead_workers_are_returned_until_they_are_declared_dead() -> None:
    """The burial may fail: the database is asked again with what is seen then."""
    watcher = Watcher(worker("w"))
    assert watcher.watch(60)[1] == [Seen("w", 1)]
    watcher.now += LOOK
    assert watcher.watch(0) == (0.0, [Seen("w", 1)])
    watcher.now += LOOK
    watcher.others(worker("w", 2))
    assert watcher.watch(0) == (0.0, [])


def test_the_allowed_silence_follows_the_heartbeat_interval() -> None:
    observer = Observer(0.5)
    now = 0.0
    dead: list[Seen] = []
    while not dead:
        observer.beat(now)
        dead = observer.look(now, [worker("w")], frozenset())
        now += 0.25
    assert now - 0.25 == 1.5
