"""`app.health()`, check by check: each turns bad, and good again. (What is said to people, and the
command: tests/cli/test_health.py.)"""

import json
from typing import Any

import pytest

from holdfast import Health, Holdfast, InvalidInput
from holdfast.core.clock import FakeClock
from holdfast.monitoring.health_checks import Check
from holdfast.monitoring.metrics import MINUTE, Rollup, minute_of
from tests.conftest import Database
from tests.support.engine_commands import claim_as
from tests.support.jobs import insert

HOUR = 3600.0


class Scene:
    """An application, and workers that tell of themselves what a test says."""

    def __init__(self, app: Holdfast, clock: FakeClock) -> None:
        self.app = app
        self.clock = clock

    def beat(self, *workers: str, **told: Any) -> None:
        for worker in workers:
            info = {"queues": ["default"], "tasks": ["send"], "slots": 10, **told}
            self.app.engine.beat(worker, json.dumps(info))

    def did(self, worker: str = "w1", ago: int = 0, **counts: int) -> None:
        minute = minute_of(self.clock.now()) - ago * MINUTE
        self.app.engine.roll_up([Rollup(minute, "send", "default", worker, **counts)])

    def check(self, name: str, **limits: Any) -> Check:
        """It, where nothing else is wrong."""
        health = self.app.health(**limits)
        found = {check.name: check for check in health.checks}
        assert {other for other, check in found.items() if not check.ok} <= {name}
        check = found[name]
        assert health.ok == (check.ok or check.warning)
        told = health.warnings if check.warning else health.problems
        assert bool(told) is not check.ok
        return check


@pytest.fixture
def scene(database: Database, clock: FakeClock) -> Scene:
    return Scene(database.app(clock=clock), clock)


def numbers(check: Check) -> tuple[bool, float | None, float | None]:
    return check.ok, check.measured, check.threshold


def test_expected_workers(scene: Scene):
    assert numbers(scene.check("workers")) == (True, 0, 0)
    assert numbers(scene.check("workers", expected_workers=2)) == (False, 0, 2)
    scene.beat("w1", "w2")
    assert numbers(scene.check("workers", expected_workers=2)) == (True, 2, 2)
    assert scene.app.stats().workers == 2
    scene.app.engine.leave("w1")  # it may still hold something, but it is no worker any more
    assert scene.app.stats().workers == 1
    assert "1 workers live, and 2 are expected" in scene.check("workers", expected_workers=2).detail


def test_failures_of_the_window(scene: Scene):
    assert numbers(scene.check("failures")) == (True, 0.0, 0.05)
    scene.did(completed=96, failed=4, retried=50)
    assert numbers(scene.check("failures")) == (True, 0.04, 0.05)
    scene.did("w2", completed=94, failed=6)
    assert numbers(scene.check("failures")) == (False, 0.05, 0.05)  # it shall be under that
    assert "10 of 200 jobs (5.0%) failed in the last 60 minutes" in scene.check("failures").detail
    assert scene.check("failures", failure_rate=0.06).ok
    scene.clock.advance(10 * 60)
    assert not scene.check("failures", window="11m").ok
    assert numbers(scene.check("failures", window="10m")) == (True, 0.0, 0.05)
    scene.did(completed=1)
    assert numbers(scene.check("failures")) == (True, 10 / 201, 0.05)


def test_no_failures_at_all(scene: Scene):
    scene.did(completed=1)
    assert scene.check("failures", failure_rate=0).ok
    scene.did(completed=99, failed=1)
    assert not scene.check("failures", failure_rate=0).ok


def test_waiting_for_too_long(scene: Scene):
    insert(scene.app.engine)
    scene.clock.advance(HOUR + 1)
    scene.beat("w1")
    scene.did(completed=1)
    assert numbers(scene.check("waiting")) == (False, HOUR + 1, HOUR)
    assert scene.check("waiting", max_age="2h").ok
    assert numbers(scene.check("waiting", max_age=None)) == (True, HOUR + 1, None)
    assert claim_as(scene.app.engine, "default", 1, worker="w1", types=["send"])
    assert numbers(scene.check("waiting")) == (True, 0.0, HOUR)


def test_nothing_ends_while_work_waits(scene: Scene):
    insert(scene.app.engine)
    scene.clock.advance(599)
    scene.beat("w1")
    assert numbers(scene.check("progress")) == (True, 0, 0)
    scene.clock.advance(2)
    assert numbers(scene.check("progress")) == (False, 0, 1)
    assert scene.check("progress", stall="1h").ok
    assert scene.check("progress", stall=None).ok
    scene.did(retried=1)  # it goes on, if not well
    assert numbers(scene.check("progress")) == (True, 1, 1)
    scene.clock.advance(12 * 60)
    scene.beat("w1")
    assert not scene.check("progress").ok
    assert scene.check("progress", stall="15m", window="1m").ok


def test_a_paused_queue_is_not_expected_to_go_on(scene: Scene):
    insert(scene.app.engine)
    scene.clock.advance(700)
    scene.beat("w1")
    scene.app.queues.pause("default")
    assert not scene.check("paused").ok


def test_hung_workers(scene: Scene):
    scene.beat("w1", "w2")
    scene.clock.advance(16)
    scene.beat("w2", jobs=[{"id": "07", "type": "send", "stuck": False}])
    silent = scene.check("silent")
    assert (numbers(silent), "worker w1" in silent.detail) == ((False, 1, 0), True)
    scene.beat("w1", heartbeat=10)  # and may be silent for longer than others
    assert scene.check("silent").ok
    scene.clock.advance(30)
    scene.beat("w2")
    assert scene.check("silent").ok
    scene.clock.advance(1)
    assert not scene.check("silent").ok
    scene.beat("w1")
    scene.beat("w2", jobs=[{"id": "07", "type": "send", "stuck": True}])
    assert numbers(scene.check("stuck")) == (False, 1, 0)
    scene.beat("w2")
    assert scene.check("stuck").ok


def test_a_worker_that_does_not_answer_its_supervisor(scene: Scene):
    scene.beat("w1", "w2")
    assert scene.check("frozen").ok
    scene.beat("w1", pid=42, silent_for=7.2, overdue=["07"])
    frozen = scene.check("frozen")
    assert numbers(frozen) == (False, 1, 0)
    for part in ("worker w1 (process 42)", "for 7 s", "job 07 is past", "process=True"):
        assert part in frozen.detail
    assert scene.app.health().stuck_jobs == ["07"]
    scene.beat("w1", pid=42, overdue=["07"])
    assert "job 07 is past its timeout and goes on in worker w1" in scene.check("frozen").detail
    scene.beat("w1", pid=42, overdue=["08"], jobs=[{"id": "08", "type": "send", "stuck": True}])
    assert not scene.check("stuck").ok  # and names it: "frozen" need not
    assert scene.app.health().stuck_jobs == ["08"]


def test_an_even_spread(scene: Scene):
    scene.beat("w1", "w2")
    scene.clock.advance(HOUR)
    scene.beat("w1", "w2", "new")  # who has just come is not compared
    scene.did("w1", completed=200)
    scene.did("w2", completed=20)
    assert numbers(scene.check("spread")) == (False, 20 / 110, 0.25)
    assert "worker w2 finished 20 of 220 jobs" in scene.check("spread").detail
    assert scene.check("spread", spread=0.1).ok
    scene.beat("w2", slots=1)  # it has a tenth of the slots
    assert scene.check("spread").ok
    scene.beat("w2", queues=["other"])  # it is there for others
    assert scene.check("spread").ok
    scene.beat("w2")
    scene.did("w2", completed=150)
    assert numbers(scene.check("spread")) == (True, 150 / 175, 0.25)


def test_few_jobs_say_nothing_about_the_spread(scene: Scene):
    scene.beat("w1", "w2")
    scene.clock.advance(HOUR)
    scene.beat("w1", "w2")
    scene.did("w1", completed=39)
    assert scene.check("spread").ok
    scene.did("w1", completed=40)
    assert numbers(scene.check("spread")) == (False, 0.0, 0.25)  # the other did nothing at all


def test_versions(scene: Scene):
    scene.beat("w1", version="1.0", app_version="a")
    scene.beat("w2", version="1.0")
    assert numbers(scene.check("versions")) == (True, 1, 1)
    scene.beat("w2", version="1.1")
    assert "several versions of Holdfast: 1.0, 1.1" in scene.check("versions").detail
    scene.beat("w2", version="1.0", app_version="b")
    assert "several versions of the application: a, b" in scene.check("versions").detail
    scene.app.engine.leave("w2")
    assert scene.check("versions").ok


def test_a_worker_tells_its_versions(database: Database):
    from importlib import metadata

    from holdfast.monitoring.snapshot import Snapshot

    app = database.app(app_version="2026.3")
    with app.worker() as worker:
        assert worker.join(20)
        [told] = Snapshot(app.engine).workers
    assert (told.version, told.app_version) == (metadata.version("holdfast"), "2026.3")


def test_thresholds_of_the_application(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOLDFAST_HEALTH_EXPECTED_WORKERS", "3")
    monkeypatch.setenv("HOLDFAST_HEALTH_MAX_AGE", "none")
    app = database.app(clock=clock, health={"failure_rate": 0.5, "window": "5m"})

    def threshold(health: Health) -> dict[str, float | None]:
        wanted = ("workers", "waiting", "failures")
        return {check.name: check.threshold for check in health.checks if check.name in wanted}

    assert threshold(app.health()) == {"workers": 3, "waiting": None, "failures": 0.5}
    found = app.health(failure_rate=0.2, expected_workers=None, max_age="1m")
    assert threshold(found) == {"workers": 0, "waiting": 60.0, "failures": 0.2}
    wrong: list[dict[str, Any]] = [
        {"failure_rate": 5},
        {"window": "10s"},
        {"expected_workers": -1},
        {"spread": "even"},
        {"max_wait": 3},
    ]
    for limits in wrong:
        with pytest.raises(InvalidInput, match=next(iter(limits))):
            app.health(**limits)
        with pytest.raises(InvalidInput, match=next(iter(limits))):
            Holdfast(database.url, health=limits)
