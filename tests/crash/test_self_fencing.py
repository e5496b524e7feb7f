"""Self-fencing: when a worker whose heartbeats are late stops its runs, and when they continue."""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from holdfast.engine.records import WorkerInfo
from holdfast.errors import DatabaseUnavailable
from holdfast.worker.liveness import self_fencing
from holdfast.worker.liveness.dead_workers import Observer
from holdfast.worker.liveness.self_fencing import SelfFencing

BEAT = 5.0
LIMIT = 2.4 * BEAT  # of silence, at which runs are stopped


def info(id: str, beat_no: int, *, dead: bool = False) -> WorkerInfo:
    moment = datetime.now(UTC)
    return WorkerInfo(
        id=id,
        info="{}",
        beat_no=beat_no,
        started_at=moment,
        beat_at=moment,
        left_at=None,
        died_at=moment if dead else None,
    )


@dataclass
class Table:
    """The workers, as an engine returns them."""

    numbers: dict[str, int] = field(default_factory=lambda: {"we": 1, "other": 1})
    dead: set[str] = field(default_factory=set)
    reachable: bool = True

    def workers(self) -> list[WorkerInfo]:
        if not self.reachable:
            raise DatabaseUnavailable("gone")
        return [info(id, no, dead=id in self.dead) for id, no in self.numbers.items()]


class FencingSimulation:
    """This worker's last heartbeat was at 0; the clock advances in the steps of SelfFencing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table = Table()
        self.now = 0.0
        self.beat_at = 0.0
        monkeypatch.setattr(self_fencing, "boottime", lambda: self.now)
        self.fencing = SelfFencing(self.table, BEAT, self)  # type: ignore[arg-type]
        self.stopped_at: float | None = None

    id = "we"

    def silence(self) -> float:
        return self.now - self.beat_at

    def confirmed(self, moment: float) -> None:
        self.beat_at = moment

    def go(self, until: float, others_beat_every: float | None) -> None:
        """Runs are stopped as soon as the silence that counts is over the limit."""
        next_beat = self.now
        while self.now < until:
            self.now += 0.1 * BEAT
            if others_beat_every is not None and self.now >= next_beat:
                self.table.numbers["other"] += 1
                next_beat += others_beat_every
            with suppress(DatabaseUnavailable):
                self.fencing.tick()
            if self.stopped_at is None and self.fencing.silence() > LIMIT:
                self.stopped_at = self.now


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> FencingSimulation:
    return FencingSimulation(monkeypatch)


def test_runs_continue_if_all_workers_are_silent(simulation: FencingSimulation) -> None:
    simulation.go(0.9 * BEAT, others_beat_every=BEAT)
    simulation.go(20 * BEAT, others_beat_every=None)
    assert simulation.stopped_at is None


@pytest.mark.parametrize("every", [0.4 * BEAT, BEAT, 1.2 * BEAT, 1.45 * BEAT])
def test_runs_stop_before_others_take_them_if_only_this_worker_is_silent(
    simulation: FencingSimulation, every: float
) -> None:
    simulation.go(4 * BEAT, others_beat_every=every)
    assert simulation.stopped_at is not None
    assert simulation.stopped_at <= 2.9 * BEAT


def test_runs_stop_when_other_workers_send_heartbeats_again(simulation: FencingSimulation) -> None:
    """A lock that blocks only this worker."""
    simulation.go(10 * BEAT, others_beat_every=None)
    confirmed = simulation.beat_at
    assert confirmed > 9 * BEAT
    simulation.go(14 * BEAT, others_beat_every=BEAT)
    assert simulation.stopped_at is not None
    assert simulation.stopped_at - confirmed <= 2.9 * BEAT


def test_an_unreadable_database_does_not_let_runs_continue(simulation: FencingSimulation) -> None:
    simulation.table.reachable = False
    simulation.go(4 * BEAT, others_beat_every=None)
    assert simulation.stopped_at is not None
    assert simulation.stopped_at <= 2.5 * BEAT


def test_a_worker_that_was_declared_dead_is_not_confirmed(simulation: FencingSimulation) -> None:
    simulation.table.dead.add("we")
    simulation.go(4 * BEAT, others_beat_every=None)
    assert simulation.beat_at == 0.0


def test_an_observer_that_pauses_for_the_whole_window_forgets_its_observations() -> None:
    """The counterpart in the observer: after such a pause of its own heartbeats it starts again."""
    observer = Observer(BEAT)
    seen = [info("we", 1)]
    for step in range(13):  # up to 2.4 heartbeats of silence are held against us
        if step % 5 == 0:
            observer.beat(step)
        assert observer.look(float(step), seen, frozenset()) == []
    later = 12.0 + 1.6 * BEAT
    observer.beat(later)
    assert observer.look(later, seen, frozenset()) == []
    observer.beat(later + BEAT)
    assert observer.look(later + BEAT, seen, frozenset()) == []
