"""Recurring jobs that kill their process: three times in a row, and they are disabled."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Context, Holdfast, Job
from holdfast.core.clock import FakeClock
from holdfast.engine.records import Seen
from holdfast.jobs import outcome
from holdfast.jobs.outcome import Died, Policy
from holdfast.testing import drain
from tests.conftest import Database
from tests.support.engine_commands import claim_as

CRASH = "its process died: SIGSEGV"
BECAUSE = "its process died three times in a row: SIGSEGV"
POLICY = Policy(backoff=lambda attempts: 10.0, keep={})


@pytest.fixture
def app(database: Database, clock: FakeClock) -> Holdfast:
    return database.app(clock=clock)


class Feed:
    """A recurring job that raises if a test asks for it, and the errors that its hook was given."""

    def __init__(self, app: Holdfast, **options: Any) -> None:
        self.app = app
        self.errors: list[str | None] = []
        self.raises = False

        def failed(end: Any) -> None:
            self.errors.append(end.error)

        @app.task(on_failure=failed)
        def fetch(ctx: Context) -> None:
            if self.raises:
                raise ValueError("no")

        self.schedule = fetch.using(key="a", **{"every": 60, **options})
        self.schedule.schedule()

    @property
    def row(self) -> Job:
        return self.app.schedules.get("fetch", "a")

    def claim(self, name: str) -> Job:
        engine = self.app.engine
        engine.beat(name, "{}")
        engine.promote(10)
        options: dict[str, Any] = {"worker": name, "types": ["fetch"]}
        jobs = claim_as(engine, "default", 1, **options)
        [job] = jobs or engine.claimer.claim_suspects(["default"], 1, **options)
        return job

    def crash(self, times: int, crash: str | None = CRASH) -> None:
        """Its worker dies with it, again and again."""
        for _ in range(times):
            job = self.claim(f"w{self.row.claim_no}")
            seen = Seen(str(job.worker_id), None, (job.claim,), crash)
            assert len(self.app.engine.sweep([seen], limit=10).rescued) == 1


def trouble(app: Holdfast) -> str | None:
    """What health says of recurring jobs."""
    [check] = [check for check in app.health().checks if check.name == "schedules"]
    return None if check.ok else check.detail


def test_a_recurring_job_is_disabled_after_three_crashes_in_a_row(app: Holdfast) -> None:
    feed = Feed(app)
    feed.crash(3)
    assert (feed.row.crashes, feed.row.enabled) == (3, True)
    drain(app, raise_errors=False)
    row = feed.row
    assert (row.status, row.enabled, row.disabled_because) == ("scheduled", False, BECAUSE)
    assert feed.errors == [f"Quarantined: {BECAUSE}"]
    assert app.jobs.attempts(row.id)[0].error == f"Quarantined: {BECAUSE}"
    assert drain(app) == []
    assert BECAUSE in app.jobs.why(row.id)[0]


def test_scheduling_again_does_not_reset_the_crash_count(app: Holdfast) -> None:
    """As an application does whose module calls `schedule()`: each new process imports it."""
    feed = Feed(app)
    for number in range(3):
        feed.crash(1)
        feed.schedule.schedule()
        assert feed.row.crashes == number + 1
    drain(app, raise_errors=False)
    assert feed.row.disabled_because == BECAUSE
    feed.schedule.schedule()  # a row that is disabled is enabled by it, with a clean record
    assert (feed.row.enabled, feed.row.crashes) == (True, 0)


def test_a_skipped_run_does_not_reset_the_crash_count(app: Holdfast, clock: FakeClock) -> None:
    """It comes back after each crash, too late for `missed="skip"`: it has not ended by itself."""
    feed = Feed(app, every=1, missed="skip")
    for number in range(3):
        feed.crash(1)
        assert (feed.row.crashes, feed.row.deaths) == (number + 1, number + 1)
        clock.advance(600)
        drain(app, raise_errors=False)
        if number < 2:
            assert (feed.row.crashes, feed.row.deaths) == (number + 1, number + 1)
            clock.advance(1)
    assert feed.row.disabled_because == BECAUSE


def test_a_late_recorded_timeout_counts(app: Holdfast, clock: FakeClock) -> None:
    """A supervisor recorded the verdict; the claim that applies it comes too late to run the job."""
    feed = Feed(app, missed="skip")
    job = feed.claim("w")
    app.engine.record_verdict(job.claim, "TimeoutError: timed out after 1 s")
    app.engine.leave("w")
    app.engine.sweep([Seen("w", None)], limit=10)
    clock.advance(600)
    drain(app, raise_errors=False)
    row = feed.row
    assert (row.consecutive_failures, row.last_error) == (1, "TimeoutError: timed out after 1 s")
    assert feed.errors == ["TimeoutError: timed out after 1 s"]


def test_a_late_recorded_timeout_of_a_timely_run_is_no_expiry(
    app: Holdfast, clock: FakeClock
) -> None:
    @app.task
    def once() -> None: ...

    job = once.using(expires="10s").enqueue()
    app.engine.beat("w", "{}")
    [held] = claim_as(app.engine, "default", 1, worker="w", types=["once"])
    app.engine.record_verdict(held.claim, "TimeoutError: timed out after 1 s")
    app.engine.leave("w")
    app.engine.sweep([Seen("w", None)], limit=10)
    clock.advance(600)
    drain(app, raise_errors=False)
    row = app.jobs.get(job.id)
    assert (row.status, row.error) == ("retrying", "TimeoutError: timed out after 1 s")


def test_health_names_the_disabled_job_until_it_is_enabled_or_deleted(app: Holdfast) -> None:
    feed = Feed(app)
    feed.crash(3)
    drain(app, raise_errors=False)
    problem = trouble(app)
    assert problem in app.health().problems
    assert problem is not None
    assert "'fetch a' is disabled: its process died three times in a row: SIGSEGV" in problem
    assert "'holdfast schedules enable fetch a'" in problem
    feed.schedule.disable()
    assert trouble(app) is None, "an operator has seen it"


@pytest.mark.parametrize("how", ["enable", "schedule"])
def test_enabling_resets_the_crash_count(app: Holdfast, clock: FakeClock, how: str) -> None:
    feed = Feed(app)
    feed.crash(3)
    drain(app, raise_errors=False)
    getattr(feed.schedule, how)()
    assert (feed.row.enabled, feed.row.disabled_because, feed.row.crashes) == (True, None, 0)
    assert trouble(app) is None
    clock.advance(60)
    feed.crash(2)
    assert (feed.row.crashes, feed.row.enabled) == (2, True)
    [done] = drain(app)
    assert (done.enabled, done.crashes, done.deaths) == (True, 0, 0)


@pytest.mark.parametrize("raises", [False, True])
def test_a_run_that_ends_by_itself_resets_the_crash_count(
    app: Holdfast, clock: FakeClock, raises: bool
) -> None:
    feed = Feed(app)
    feed.raises = raises
    for _ in range(3):
        feed.crash(2)
        [done] = drain(app, raise_errors=False)
        assert (done.crashes, done.deaths, done.enabled) == (0, 0, True)
        clock.advance(60)


def test_kills_from_outside_never_disable_a_job(app: Holdfast) -> None:
    feed = Feed(app)
    feed.crash(7, crash=None)
    [done] = drain(app)
    assert (done.enabled, done.last_error) == (True, None)


def end(app: Holdfast, job: Job, ended: outcome.Ended) -> None:
    finish = outcome.decide(job, ended, POLICY, app.clock.now())
    assert list(app.engine.finish([finish]).values()) == ["applied"]


def test_three_deaths_of_its_own_process_disable_a_job(app: Holdfast, clock: FakeClock) -> None:
    feed = Feed(app)
    for number in range(1, 4):
        assert feed.row.enabled
        end(app, feed.claim(f"w{number}"), Died("SIGSEGV"))
        assert (feed.row.crashes, feed.row.deaths) == ((number, number) if number < 3 else (0, 3))
        clock.advance(60)
    assert (feed.row.enabled, feed.row.disabled_because) == (False, BECAUSE)
    assert feed.row.consecutive_failures == 3
    assert feed.row.run_at >= clock.now() - timedelta(seconds=60)


def test_a_kill_from_outside_of_its_own_process_counts_no_crash(
    app: Holdfast, clock: FakeClock
) -> None:
    feed = Feed(app)
    for number in range(1, 6):
        end(app, feed.claim(f"w{number}"), Died("SIGKILL", own=False))
        assert (feed.row.crashes, feed.row.deaths, feed.row.enabled) == (0, number, True)
        clock.advance(60)
    [done] = drain(app)
    assert (done.deaths, done.consecutive_failures) == (0, 0)
