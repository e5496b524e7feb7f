"""Groups of failures: their counts, times and members."""

import pytest

from holdfast import Holdfast, InvalidInput, Status
from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.jobs import outcome
from holdfast.jobs.error_groups import members, read_errors
from holdfast.jobs.job import Job
from tests.support.engine_commands import claim_as
from tests.support.jobs import in_status, running

TRACE = 'Traceback:\n  File "/srv/shop/tasks.py", line {line}, in {function}\n    x\nE: no\n'


def fail(
    engine: Engine, error: str, *, retry: bool = False, trace: str | None = None, **fields: object
) -> Job:
    job = running(engine, **fields)
    end = outcome.retry_later if retry else outcome.failed
    time = {"delay": 3600.0} if retry else {"keep": 60.0}
    engine.finish([end(job, error, trace=trace, **time)])  # type: ignore[operator]
    return engine.get([job.id])[0]


def in_send(line: int = 1) -> str:
    return TRACE.format(line=line, function="send")


def test_similar_failures_are_one_group(engine: Engine, clock: FakeClock):
    start = clock.now()
    jobs = []
    for number in range(7):
        jobs.append(
            fail(
                engine,
                f"HTTPError: {400 + number} for 'ann-{number}'",
                trace=in_send(number),
                retry=number % 2 == 1,
                type="send" if number < 5 else "resend",
            )
        )
        clock.advance(60)
    other = fail(engine, "HTTPError: 400 for 'ann'", trace=TRACE.format(line=1, function="fetch"))
    found = read_errors(engine)
    assert (found.looked_at, found.complete, found.since) == (8, True, start)
    first, second = found.groups
    assert (first.exception, first.message) == ("HTTPError", "<n> for <text>")
    assert (first.frame, second.frame) == ("shop/tasks.py in send", "shop/tasks.py in fetch")
    assert (first.count, first.statuses) == (7, {Status.FAILED: 4, Status.RETRYING: 3})
    assert first.types == ["send", "resend"]
    assert (first.first_at, first.last_at) == (start, jobs[-1].updated_at)
    assert first.sample_ids == [job.id for job in reversed(jobs)][:5]
    assert first.sample_error == "HTTPError: 406 for 'ann-6'"
    assert (sum(first.sparkline), sum(second.sparkline), len(first.sparkline)) == (7, 1, 12)
    assert (second.count, second.sample_ids) == (1, [other.id])


def test_other_statuses_and_tasks_do_not_count(engine: Engine):
    for status in Status:
        in_status(engine, status, queue=f"q-{status}")
    fail(engine, "E: no", type="other")
    assert read_errors(engine).looked_at == 3
    assert read_errors(engine, statuses=["failed"]).groups[0].statuses == {
        "failed": 2,
        "retrying": 0,
    }
    assert read_errors(engine, statuses=[Status.RETRYING]).looked_at == 1
    assert read_errors(engine, type="other").groups[0].types == ["other"]
    for nothing in (read_errors(engine, type="none"), read_errors(engine, statuses=["pending"])):
        assert (nothing.groups, nothing.looked_at, nothing.complete) == ([], 0, True)
        assert nothing.since is None
    with pytest.raises(InvalidInput, match="type"):
        read_errors(engine, type="a b")


def test_the_last_run_decides_the_group(engine: Engine, clock: FakeClock):
    job = running(engine, max_attempts=3)
    engine.finish(
        [outcome.retry_later(job, "E: one", trace=TRACE.format(line=1, function="old"), delay=0.0)]
    )
    clock.advance(5)
    engine.promote(10)
    [again] = claim_as(engine, "default", 1, worker="host-1-a", types=["send"])
    engine.finish([outcome.failed(again, "E: two", trace=in_send(), keep=60.0)])
    [group] = read_errors(engine).groups
    assert (group.message, group.frame, group.count) == ("two", "shop/tasks.py in send", 1)
    assert group.first_at == clock.now()


def test_the_newest_failures_are_grouped(engine: Engine):
    jobs = [fail(engine, f"E{number % 2}: no") for number in range(9)]
    found = read_errors(engine, look=4)
    assert (found.looked_at, found.complete) == (4, False)
    assert sorted(id for group in found.groups for id in group.sample_ids) == [
        job.id for job in jobs[5:]
    ]
    assert read_errors(engine, look=9).looked_at == 9


def test_the_search_for_failures_of_a_rare_task_is_bounded(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    fail(engine, "E: no", type="rare")
    for _ in range(25):
        fail(engine, "E: no")
    search, pages = engine.search, []

    def counted(*given, **options):  # type: ignore[no-untyped-def]
        pages.append(given)
        return search(*given, **options)

    monkeypatch.setattr(engine, "search", counted)
    monkeypatch.setattr("holdfast.jobs.read._SCAN", 2)
    found = read_errors(engine, type="rare", look=2)
    assert (found.looked_at, found.complete, len(pages)) == (0, False, 3)


def test_every_job_can_be_in_one_group(engine: Engine):
    mine = [
        fail(engine, f"E: {number}", trace=in_send(), retry=number % 3 == 0) for number in range(8)
    ]
    for _ in range(5):
        fail(engine, "E: other", trace=in_send())
    [group] = [group for group in read_errors(engine).groups if group.count == 8]

    def everybody(**options: object) -> list[str]:
        ids, after = [], None
        for _ in range(50):
            page = members(engine, group.id, after=after, limit=3, **options)
            ids += page.ids
            if (after := page.next) is None:
                return ids
        raise AssertionError("the pages do not end")

    assert everybody() == [job.id for job in reversed(mine)]
    retrying = [job.id for job in reversed(mine) if job.status is Status.RETRYING]
    assert everybody(statuses=["retrying"]) == retrying
    assert everybody(statuses=["completed"]) == []
    assert members(engine, "0" * 16).ids == members(engine, None).ids == []


def test_the_application_lists_error_groups(app: Holdfast):
    fail(app.engine, "E: no")
    assert app.jobs.errors().groups[0].exception == "E"
    assert app.jobs.errors(status=["retrying"], type="send").groups == []
