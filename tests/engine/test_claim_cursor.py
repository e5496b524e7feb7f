"""Where a claim begins to look: the shortcut, and when it must not be taken."""

import dataclasses

from holdfast.core.clock import FakeClock
from holdfast.engine.dialect import PostgresDialect
from holdfast.engine.postgres.claimer import ClaimCursor
from holdfast.jobs.job import Job
from holdfast.jobs.read import FIRST_ID
from holdfast.jobs.rows import new_to_job
from tests.support.jobs import new

CLOCK = FakeClock()


def claimed(priority: int = 0) -> Job:
    return new_to_job(
        PostgresDialect(CLOCK), new(priority=priority), "running", CLOCK.now(), CLOCK.now()
    )


def begins_anew(bounds: ClaimCursor) -> bool:
    return bounds.looked_at_everything(bounds.start("default", ["send"]))


def ready(clock: FakeClock, cost: float = 0.001) -> ClaimCursor:
    bounds = ClaimCursor(clock.monotonic)
    bounds.start("default", ["send"])
    bounds.took(cost)
    return bounds


def test_a_claim_begins_where_the_last_one_ended() -> None:
    bounds = ready(FakeClock())
    first, last = claimed(), claimed()
    bounds.claimed("default", [first, last])
    [bound] = bounds.start("default", ["send"])
    assert (bound["id"], bound["rank"]) == (last.id, 0)
    [other] = bounds.start("media", ["send"])
    assert other["id"] == FIRST_ID


def test_a_job_enqueued_by_this_process_before_the_cursor_is_not_missed() -> None:
    bounds = ready(FakeClock())
    bounds.claimed("default", [claimed()])
    bounds.inserted([new()])
    assert not begins_anew(bounds)
    bounds.inserted([new(priority=1)])
    assert begins_anew(bounds)


def test_cheap_full_scans_run_often() -> None:
    for cost, pause in [(0.001, 0.05), (0.01, 0.2), (0.1, 2.0), (5.0, 10.0)]:
        clock = FakeClock()
        bounds = ready(clock, cost)
        bounds.claimed("default", [claimed()])
        clock.advance(pause * 0.99)
        assert not begins_anew(bounds)
        clock.advance(pause * 0.02)
        assert begins_anew(bounds)


def test_a_short_claim_is_followed_by_a_full_scan_unless_that_is_expensive() -> None:
    clock = FakeClock()
    assert ready(clock, 0.005).may_look_again()
    dear = ready(clock, 0.2)
    assert not dear.may_look_again()
    clock.advance(4.1)
    assert dear.may_look_again()


def test_a_released_job_resets_the_cursor() -> None:
    bounds = ready(FakeClock())
    bounds.claimed("default", [claimed(), dataclasses.replace(claimed(), type="fetch")])
    bounds.forget("default", ["fetch"])
    assert not begins_anew(bounds)
    bounds.forget()
    assert begins_anew(bounds)
