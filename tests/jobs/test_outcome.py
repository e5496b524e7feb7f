"""What follows from how a run ended: the whole table of `judge` and `decide`."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Discard, InvalidInput, Retry, Snooze
from holdfast.core.clock import FakeClock
from holdfast.engine.dialect import SqliteDialect
from holdfast.jobs.job import TRANSITIONS, Job, Status
from holdfast.jobs.outcome import (
    CRASHES,
    Died,
    Ended,
    GivenBack,
    Late,
    Outcome,
    Policy,
    Raised,
    Returned,
    Snoozed,
    Stopped,
    Unreadable,
    decide,
    judge,
)
from holdfast.jobs.rows import new_to_job
from tests.support.jobs import new

KEEP = {Status.COMPLETED: 1.0, Status.FAILED: 2.0, Status.CANCELLED: 3.0}
POLICY = Policy(backoff=lambda attempts: 100.0 + attempts, keep=KEEP)


START = datetime(2030, 1, 1, tzinfo=UTC)


def job(**fields: Any) -> Job:
    """One that runs: the second of three attempts, of the third claim, unless told otherwise."""
    made = new_to_job(SqliteDialect(FakeClock()), new(), Status.RUNNING, 0, None)
    held = {"attempts": 2, "max_attempts": 3, "claim_no": 3, "worker_id": "w"}
    return dataclasses.replace(made, started_at=START, **(held | fields))


CHILD = new("child")
LAST: dict[str, Any] = {"attempts": 3}
UNREAD = Unreadable("E: no")
FAILS = "; it fails at 2030-01-01 01:00:00 UTC unless a worker that can read it takes it first"
DIED_BEFORE: dict[str, Any] = {"crashes": CRASHES - 1}

# How it ended, of what job; what follows, with what in the finish.
TABLE: dict[str, tuple[Ended, dict[str, Any], Outcome, dict[str, Any]]] = {
    "returned": (Returned("1"), {}, Outcome.COMPLETED, {"result": "1", "keep": 1.0}),
    "returned nothing": (Returned(None), {}, Outcome.COMPLETED, {"result": None}),
    "returned, and enqueued": (
        *(Returned("1", (CHILD,)), {}, Outcome.COMPLETED),
        {"enqueue": (CHILD,)},
    ),
    "returned in the last attempt": (Returned("1"), LAST, Outcome.COMPLETED, {"error": None}),
    "raised": (
        *(Raised("E: no", "trace"), {}, Outcome.RETRY_LATER),
        {"error": "E: no", "trace": "trace", "delay": 102.0},
    ),
    "raised in the last attempt": (
        *(Raised("E: no", "trace"), LAST, Outcome.FAILED),
        {"error": "E: no", "trace": "trace", "keep": 2.0},
    ),
    "raised past the last attempt": (
        # max_attempts was lowered by a newer request while it ran
        *(Raised("E: no", None), {"attempts": 5}, Outcome.FAILED),
        {"error": "E: no"},
    ),
    "raised for good": (
        *(Raised("E: no", None, permanent=True), {"attempts": 1}, Outcome.FAILED),
        {"error": "E: no", "keep": 2.0},
    ),
    "raised for good in the last attempt": (
        *(Raised("E: no", None, permanent=True), LAST, Outcome.FAILED),
        {"error": "E: no"},
    ),
    "raised with a delay": (
        *(Raised("E: no", None, after=7.0), {}, Outcome.RETRY_LATER),
        {"error": "E: no", "delay": 7.0},
    ),
    "raised with a delay of nothing": (
        *(Raised("E: no", None, after=0.0), {}, Outcome.RETRY_LATER),
        {"delay": 0.0},
    ),
    "raised with a delay in the last attempt": (
        *(Raised("E: no", None, after=7.0), LAST, Outcome.FAILED),
        {"error": "E: no", "keep": 2.0},
    ),
    "snoozed": (Snoozed(9.0), {}, Outcome.SNOOZED, {"delay": 9.0, "error": None}),
    "snoozed in the last attempt": (Snoozed(9.0), LAST, Outcome.SNOOZED, {"delay": 9.0}),
    "stopped": (Stopped(), {}, Outcome.STOPPED, {"keep": 3.0, "error": None}),
    "stopped in the last attempt": (Stopped(), LAST, Outcome.STOPPED, {"keep": 3.0}),
    "given back": (GivenBack(), {}, Outcome.RELEASED, {"error": None, "delay": 0.0}),
    "given back in the last attempt": (GivenBack(), LAST, Outcome.RELEASED, {"error": None}),
    "late": (Late("Expired: x"), {}, Outcome.STOPPED, {"error": "Expired: x", "keep": 3.0}),
    "late in the last attempt": (Late("Expired: x"), LAST, Outcome.STOPPED, {"keep": 3.0}),
    "returned, and recurs": (
        *(Returned("1"), {"schedule": '{"every":60.0}'}, Outcome.RECURRED),
        {"result": "1", "error": None},
    ),
    "died": (
        Died("signal 9"),
        {},
        Outcome.CRASHED,
        {"error": "its process died: signal 9", "delay": 101.0},
    ),
    "killed from outside": (  # any number of times: no crash is counted
        *(Died("SIGKILL", own=False), {"crashes": 7}, Outcome.CRASHED),
        {"error": "its process died: SIGKILL", "own": False},
    ),
    "died in the last attempt": (  # which is given back
        *(Died("signal 9"), LAST, Outcome.CRASHED),
        {"error": "its process died: signal 9"},
    ),
    "died again": (
        *(Died("signal 9"), {"crashes": 1}, Outcome.CRASHED),
        {"error": "its process died: signal 9", "delay": 102.0},
    ),
    "died for the third time": (
        *(Died("signal 9"), DIED_BEFORE, Outcome.FAILED),
        {
            "error": "Quarantined: its process died 3 times under it, with no other job in it"
            " (signal 9)",
            "keep": 2.0,
        },
    ),
    "died more often": (Died("signal 9"), {"crashes": 7}, Outcome.FAILED, {"keep": 2.0}),
    "unreadable": (UNREAD, {}, Outcome.UNREADABLE, {"error": f"E: no{FAILS}"}),
    "unreadable in the last attempt": (UNREAD, LAST, Outcome.UNREADABLE, {"trace": None}),
    "unreadable, of a recurring job": (
        *(UNREAD, {"schedule": '{"every":60.0}'}, Outcome.UNREADABLE),
        {"recur": None},
    ),
    "unreadable for an hour": (
        *(UNREAD, {"unreadable_since": START - timedelta(hours=1)}, Outcome.FAILED),
        {"error": "E: no; no worker could read it for 3600 s", "keep": 2.0},
    ),
    "unreadable for an hour, of a recurring job": (
        *(UNREAD, {"unreadable_since": START - timedelta(hours=1), "schedule": '{"every":60.0}'}),
        *(Outcome.RECURRED, {"error": "E: no; no worker could read it for 3600 s"}),
    ),
    "returned after crashes": (Returned("1"), DIED_BEFORE, Outcome.COMPLETED, {"result": "1"}),
    "raised after crashes": (Raised("E: no", None), DIED_BEFORE, Outcome.RETRY_LATER, {}),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_decided_finish_of_every_outcome(case: str) -> None:
    ended, fields, outcome, expected = TABLE[case]
    held = job(**fields)
    finish = decide(held, ended, POLICY)
    assert finish.outcome is outcome
    assert {name: getattr(finish, name) for name in expected} == expected
    assert (finish.id, finish.claim_no, finish.attempt) == (held.id, 3, held.attempts)
    assert (finish.worker_id, finish.started_at) == ("w", held.started_at)


def test_the_table_of_outcomes_is_complete() -> None:
    """Every way to end, with attempts left and without; every outcome that there is."""
    ends = {(type(ended), fields.get("attempts", 2) >= 3) for ended, fields, _, _ in TABLE.values()}
    kinds = (Returned, Raised, Snoozed, Stopped, GivenBack, Late, Died, Unreadable)
    assert ends == {(kind, last) for kind in kinds for last in (False, True)}
    assert {outcome for _, _, outcome, _ in TABLE.values()} == set(Outcome)


def test_every_outcome_is_a_way_out_of_running() -> None:
    for outcome in Outcome:
        assert TRANSITIONS[outcome].sources == {Status.RUNNING}


def test_a_job_is_quarantined_at_its_third_crash() -> None:
    ends = [decide(job(crashes=n), Died("x"), POLICY).outcome for n in range(4)]
    assert ends == ["crashed", "crashed", "failed", "failed"]


# recurring jobs that kill their process

RECURS: dict[str, Any] = {"schedule": '{"every":60.0}'}
BECAUSE = "its process died three times in a row: SIGSEGV"


def test_a_recurring_job_is_disabled_by_the_third_crash_in_a_row() -> None:
    for crashes, because in [(0, None), (1, None), (2, BECAUSE)]:
        finish = decide(job(crashes=crashes, **RECURS), Died("SIGSEGV"), POLICY)
        assert finish.recur is not None
        assert (finish.recur.died, finish.recur.because, finish.own) == (True, because, True)
    assert finish.error == f"Quarantined: {BECAUSE}"


def test_a_recurring_job_killed_from_outside_continues() -> None:
    finish = decide(job(crashes=2, **RECURS), Died("SIGKILL", own=False), POLICY)
    assert finish.recur is not None
    assert (finish.recur.died, finish.recur.because, finish.own) == (True, None, False)
    assert finish.error == "its process died: SIGKILL"


def test_a_recurring_job_that_killed_its_workers_is_disabled_with_the_cause() -> None:
    held = job(crashes=3, error="its process died: SIGSEGV", **RECURS)
    finish = decide(held, Raised("Quarantined: ...", None, permanent=True), POLICY)
    assert finish.recur is not None
    assert (finish.recur.died, finish.recur.because) == (False, BECAUSE)


def test_other_ends_of_a_recurring_job_disable_nothing() -> None:
    for ended in (Returned("1"), Raised("E: no", None), Stopped(), Late(None)):
        finish = decide(job(crashes=2, **RECURS), ended, POLICY)
        assert finish.recur is not None
        assert (finish.recur.died, finish.recur.because) == (False, None)


# what an exception means


class Ours(Exception): ...


class Special(Ours): ...


class Other(Exception): ...


def policy(**fields: Any) -> Policy:
    return dataclasses.replace(POLICY, **fields)


@pytest.mark.parametrize(
    ("error", "discard_on", "retry_on", "permanent"),
    [
        (Ours("no"), (), None, False),
        (Ours("no"), (Ours,), None, True),
        (Special("no"), (Ours,), None, True),
        (Ours("no"), (Special,), None, False),
        (Ours("no"), (Other, Ours), None, True),
        (Ours("no"), (), (Ours,), False),
        (Special("no"), (), (Ours,), False),
        (Ours("no"), (), (Special,), True),
        (Other("no"), (), (Ours,), True),
        (Other("no"), (), (), True),
        (Special("no"), (Special,), (Ours,), True),
        (Ours("no"), (Special,), (Ours,), False),
        (Discard("no"), (), None, True),
        (Discard("no"), (), (Discard,), True),
        (SystemExit(3), (), None, False),
    ],
)
def test_permanent_errors_are_recognized(
    error: BaseException, discard_on: Any, retry_on: Any, permanent: bool
) -> None:
    judged = judge(error, policy(discard_on=discard_on, retry_on=retry_on))
    assert isinstance(judged, Raised)
    assert (judged.permanent, judged.after) == (permanent, None)
    assert judged.error.startswith(type(error).__name__)


def test_an_error_is_recorded_with_its_traceback() -> None:
    try:
        raise Ours("no")
    except Ours as error:
        judged = judge(error, POLICY)
    assert isinstance(judged, Raised)
    assert judged.error == "Ours: no"
    assert "test_outcome.py" in (judged.trace or "")


@pytest.mark.parametrize("fields", [{}, {"retry_on": (Other,)}, {"discard_on": (Exception,)}])
def test_an_explicit_outcome_overrides_the_tasks_error_lists(fields: dict[str, Any]) -> None:
    judged = judge(Retry("busy", after="2m"), policy(**fields))
    assert isinstance(judged, Raised)
    assert (judged.error, judged.after, judged.permanent) == ("Retry: busy", 120.0, False)
    assert judge(Snooze("1h"), policy(**fields)) == Snoozed(3600.0)


def test_invalid_outcomes_of_handlers_are_errors() -> None:
    with pytest.raises(InvalidInput, match=r"Retry\(after=\)=-1"):
        Retry(after=-1)
    with pytest.raises(InvalidInput, match=r"Snooze\(delay\)='soon'"):
        Snooze("soon")


def test_an_exception_becomes_a_finish() -> None:
    def after(error: BaseException, **fields: Any) -> tuple[Outcome, float]:
        finish = decide(job(**fields), judge(error, POLICY), POLICY)
        return finish.outcome, finish.delay

    assert after(Ours("no")) == (Outcome.RETRY_LATER, 102.0)
    assert after(Retry(after=5)) == (Outcome.RETRY_LATER, 5.0)
    assert after(Retry(after=5), **LAST) == (Outcome.FAILED, 0.0)
    assert after(Discard(), attempts=1) == (Outcome.FAILED, 0.0)
    assert after(Snooze(60), **LAST) == (Outcome.SNOOZED, 60.0)


# payloads that cannot be read


@pytest.mark.parametrize(("waited", "least", "most"), [(0, 0.5, 0.5), (3, 3, 3), (1800, 30, 30)])
def test_an_unreadable_payload_is_offered_again_after_doubled_delays(
    waited: float, least: float, most: float
) -> None:
    since = START - timedelta(seconds=waited)
    held = job(unreadable_since=since if waited else None)
    delays = [decide(held, UNREAD, POLICY, START).delay for _ in range(200)]
    assert 0.75 * least <= min(delays) < max(delays) <= 1.25 * most


@pytest.mark.parametrize(
    ("patience", "outcome"), [(0.0, "failed"), (10.0, "failed"), (11, "unreadable")]
)
def test_a_payload_may_be_unreadable_for_a_limited_time(patience: float, outcome: str) -> None:
    held = job(unreadable_since=START - timedelta(seconds=10))
    assert decide(held, UNREAD, policy(unreadable_for=patience), START).outcome == outcome


def test_without_a_waiting_time_an_unreadable_payload_fails_immediately() -> None:
    finish = decide(job(), UNREAD, policy(unreadable_for=0.0), START)
    assert (finish.outcome, finish.error) == (Outcome.FAILED, "E: no")
