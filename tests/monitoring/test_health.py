"""`app.health()`, check by check: each fails, and passes again. (Messages and the command:
tests/cli/test_health.py.)"""

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


class MonitoredApp:
    """An application, with workers whose reports a test writes."""

    def __init__(self, app: Holdfast, clock: FakeClock) -> None:
        self.app = app
        self.clock = clock

    def beat(self, *workers: str, **report: Any) -> None:
        for worker in workers:
            info = {"queues": ["default"], "tasks": ["send"], "slots": 10, **report}
            self.app.engine.beat(worker, json.dumps(info))

    def did(self, worker: str = "w1", ago: int = 0, **counts: int) -> None:
        minute = minute_of(self.clock.now()) - ago * MINUTE
        self.app.engine.roll_up([Rollup(minute, "send", "default", worker, **counts)])

    def check(self, name: str, **limits: Any) -> Check:
        """Run all checks and return this one. All others must pass."""
        health = self.app.health(**limits)
        found = {check.name: check for check in health.checks}
        assert {other for other, check in found.items() if not check.ok} <= {name}
        check = found[name]
        assert health.ok == (check.ok or check.warning)
        messages = health.warnings if check.warning else health.problems
        assert bool(messages) is not check.ok
        return check


@pytest.fixture
def monitored(database: Database, clock: FakeClock) -> MonitoredApp:
    return MonitoredApp(database.app(clock=clock), clock)


def numbers(check: Check) -> tuple[bool, float | None, float | None]:
    return check.ok, check.measured, check.threshold


def test_expected_workers(monitored: MonitoredApp):
    assert numbers(monitored.check("workers")) == (True, 0, 0)
    assert numbers(monitored.check("workers", expected_workers=2)) == (False, 0, 2)
    monitored.beat("w1", "w2")
    assert numbers(monitored.check("workers", expected_workers=2)) == (True, 2, 2)
    assert monitored.app.stats().workers == 2
    monitored.app.engine.leave("w1")  # it may still hold jobs, but it is no worker any more
    assert monitored.app.stats().workers == 1
    assert (
        "1 workers live, and 2 are expected"
        in monitored.check("workers", expected_workers=2).detail
    )


def test_failures_of_the_window(monitored: MonitoredApp):
    assert numbers(monitored.check("failures")) == (True, 0.0, 0.05)
    monitored.did(completed=96, failed=4, retried=50)
    assert numbers(monitored.check("failures")) == (True, 0.04, 0.05)
    monitored.did("w2", completed=94, failed=6)
    assert numbers(monitored.check("failures")) == (
        False,
        0.05,
        0.05,
    )  # it must be below that
    assert (
        "10 of 200 jobs (5.0%) failed in the last 60 minutes" in monitored.check("failures").detail
    )
    assert monitored.check("failures", failure_rate=0.06).ok
    monitored.clock.advance(10 * 60)
    assert not monitored.check("failures", window="11m").ok
    assert numbers(monitored.check("failures", window="10m")) == (True, 0.0, 0.05)
    monitored.did(completed=1)
    assert numbers(monitored.check("failures")) == (True, 10 / 201, 0.05)


def test_no_failures_at_all(monitored: MonitoredApp):
    monitored.did(completed=1)
    assert monitored.check("failures", failure_rate=0).ok
    monitored.did(completed=99, failed=1)
    assert not monitored.check("failures", failure_rate=0).ok


def test_waiting_for_too_long(monitored: MonitoredApp):
    insert(monitored.app.engine)
    monitored.clock.advance(HOUR + 1)
    monitored.beat("w1")
    monitored.did(completed=1)
    assert numbers(monitored.check("waiting")) == (False, HOUR + 1, HOUR)
    assert monitored.check("waiting", max_age="2h").ok
    assert numbers(monitored.check("waiting", max_age=None)) == (True, HOUR + 1, None)
    assert claim_as(monitored.app.engine, "default", 1, worker="w1", types=["send"])
    assert numbers(monitored.check("waiting")) == (True, 0.0, HOUR)


def test_nothing_ends_while_work_waits(monitored: MonitoredApp):
    insert(monitored.app.engine)
    monitored.clock.advance(599)
    monitored.beat("w1")
    assert numbers(monitored.check("progress")) == (True, 0, 0)
    monitored.clock.advance(2)
    assert numbers(monitored.check("progress")) == (False, 0, 1)
    assert monitored.check("progress", stall="1h").ok
    assert monitored.check("progress", stall=None).ok
    monitored.did(retried=1)  # a retried run is progress, too
    assert numbers(monitored.check("progress")) == (True, 1, 1)
    monitored.clock.advance(12 * 60)
    monitored.beat("w1")
    assert not monitored.check("progress").ok
    assert monitored.check("progress", stall="15m", window="1m").ok


def test_a_paused_queue_is_not_expected_to_go_on(monitored: MonitoredApp):
    insert(monitored.app.engine)
    monitored.clock.advance(700)
    monitored.beat("w1")
    monitored.app.queues.pause("default")
    assert not monitored.check("paused").ok


def test_hung_workers(monitored: MonitoredApp):
    monitored.beat("w1", "w2")
    monitored.clock.advance(16)
    monitored.beat("w2", jobs=[{"id": "07", "type": "send", "stuck": False}])
    silent = monitored.check("silent")
    assert (numbers(silent), "worker w1" in silent.detail) == ((False, 1, 0), True)
    monitored.beat("w1", heartbeat=10)  # it may be silent for longer than others
    assert monitored.check("silent").ok
    monitored.clock.advance(30)
    monitored.beat("w2")
    assert monitored.check("silent").ok
    monitored.clock.advance(1)
    assert not monitored.check("silent").ok
    monitored.beat("w1")
    monitored.beat("w2", jobs=[{"id": "07", "type": "send", "stuck": True}])
    assert numbers(monitored.check("stuck")) == (False, 1, 0)
    monitored.beat("w2")
    assert monitored.check("stuck").ok


def test_a_worker_that_does_not_answer_its_supervisor(monitored: MonitoredApp):
    monitored.beat("w1", "w2")
    assert monitored.check("frozen").ok
    monitored.beat("w1", pid=42, silent_for=7.2, overdue=["07"])
    frozen = monitored.check("frozen")
    assert numbers(frozen) == (False, 1, 0)
    for part in ("worker w1 (process 42)", "for 7 s", "job 07 is past", "process=True"):
        assert part in frozen.detail
    assert monitored.app.health().stuck_jobs == ["07"]
    monitored.beat("w1", pid=42, overdue=["07"])
    assert "job 07 is past its timeout and goes on in worker w1" in monitored.check("frozen").detail
    monitored.beat("w1", pid=42, overdue=["08"], jobs=[{"id": "08", "type": "send", "stuck": True}])
    assert not monitored.check("stuck").ok  # it names the job: "frozen" need not
    assert monitored.app.health().stuck_jobs == ["08"]


def test_an_even_spread(monitored: MonitoredApp):
    monitored.beat("w1", "w2")
    monitored.clock.advance(HOUR)
    monitored.beat("w1", "w2", "new")  # a worker that has just started is not compared
    monitored.did("w1", completed=200)
    monitored.did("w2", completed=20)
    assert numbers(monitored.check("spread")) == (False, 20 / 110, 0.25)
    assert "worker w2 finished 20 of 220 jobs" in monitored.check("spread").detail
    assert monitored.check("spread", spread=0.1).ok
    monitored.beat("w2", slots=1)  # it has a tenth of the slots
    assert monitored.check("spread").ok
    monitored.beat("w2", queues=["other"])  # it serves other queues only
    assert monitored.check("spread").ok
    monitored.beat("w2")
    monitored.did("w2", completed=150)
    assert numbers(monitored.check("spread")) == (True, 150 / 175, 0.25)


def test_few_jobs_say_nothing_about_the_spread(monitored: MonitoredApp):
    monitored.beat("w1", "w2")
    monitored.clock.advance(HOUR)
    monitored.beat("w1", "w2")
    monitored.did("w1", completed=39)
    assert monitored.check("spread").ok
    monitored.did("w1", completed=40)
    assert numbers(monitored.check("spread")) == (
        False,
        0.0,
        0.25,
    )  # the other worker finished none


def test_versions(monitored: MonitoredApp):
    monitored.beat("w1", version="1.0", app_version="a")
    monitored.beat("w2", version="1.0")
    assert numbers(monitored.check("versions")) == (True, 1, 1)
    monitored.beat("w2", version="1.1")
    assert "several versions of Holdfast: 1.0, 1.1" in monitored.check("versions").detail
    monitored.beat("w2", version="1.0", app_version="b")
    assert "several versions of the application: a, b" in monitored.check("versions").detail
    monitored.app.engine.leave("w2")
    assert monitored.check("versions").ok


def test_a_worker_tells_its_versions(database: Database):
    from importlib import metadata

    from holdfast.monitoring.snapshot import Snapshot

    app = database.app(app_version="2026.3")
    with app.worker() as worker:
        assert worker.join(20)
        [found] = Snapshot(app.engine).workers
    assert (found.version, found.app_version) == (metadata.version("holdfast"), "2026.3")


def test_a_report_of_another_release_that_says_things_otherwise(monitored: MonitoredApp):
    """The worker counts as live all the same; what it says is left out."""
    monitored.beat("w1", slots={"async": 100}, jobs=["an id"])
    assert numbers(monitored.check("workers", expected_workers=1)) == (True, 1, 1)


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
