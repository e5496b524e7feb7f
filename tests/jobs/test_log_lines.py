"""Log lines of runs: stored with their job, read in order, deleted with it."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import Holdfast, InvalidInput, LogLine
from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.jobs import outcome
from holdfast.jobs.job import Job
from holdfast.jobs.log_lines import RUNS
from tests.support import engine_commands
from tests.support.jobs import execute, prune, running


def line(job: Job, line_no: int = 1, text: str = "text", *, claim_no: int = 1) -> LogLine:
    return LogLine(
        job_id=job.id,
        claim_no=claim_no,
        attempt=claim_no,
        line_no=line_no,
        at=job.created_at + timedelta(microseconds=line_no),
        level="info",
        text=text,
    )


def places(lines: list[LogLine]) -> list[str]:
    return [line.cursor for line in lines]


def kept(engine: Engine) -> int:
    [(count,)] = execute(engine, "SELECT count(*) FROM {logs}")
    return int(count)


def test_lines_are_returned_unchanged_and_in_order(engine: Engine):
    job, other = running(engine), running(engine)
    lines = [
        *(
            line(job, number, f"line {number}\n“{number}” 'and' more; \\ \U0001f600")
            for number in (1, 2, 10)
        ),
        *(line(job, number, claim_no=2) for number in (1, 2)),
    ]
    engine.log([*lines[::-1], line(other)])
    assert engine_commands.logs(engine, job.id) == lines
    assert engine_commands.logs(engine, new_id()) == []
    engine.log([])


def test_pages_continue_after_the_previous_one(engine: Engine):
    job = running(engine)
    engine.log([line(job, number, claim_no=claim) for claim in (1, 2) for number in (1, 2, 3)])
    assert places(engine_commands.logs(engine, job.id, limit=4)) == ["1.1", "1.2", "1.3", "2.1"]
    assert places(engine_commands.logs(engine, job.id, after=(2, 1), limit=4)) == ["2.2", "2.3"]
    assert engine_commands.logs(engine, job.id, after=(2, 3)) == []
    assert places(engine_commands.logs(engine, job.id, limit=2, newest=True)) == ["2.2", "2.3"]
    assert places(engine_commands.logs(engine, job.id, after=(2, 2), limit=2, newest=True)) == [
        "2.3"
    ]


def test_a_repeated_line_does_not_change_the_stored_one(engine: Engine):
    job = running(engine)
    engine.log([line(job, 1, "first")])
    engine.log([line(job, 1, "second"), line(job, 2, "other")])
    assert [line.text for line in engine_commands.logs(engine, job.id)] == ["first", "other"]


def test_lines_of_deleted_jobs_are_dropped_and_harm_no_others(engine: Engine):
    job, gone = running(engine), running(engine)
    engine_commands.delete(engine, [gone.id])
    engine.log([line(gone), line(job), line(gone, 2)])
    assert places(engine_commands.logs(engine, job.id)) == ["1.1"]
    assert kept(engine) == 1


@pytest.mark.parametrize("how", ["delete", "prune", "sql"])
def test_deleting_a_job_deletes_its_lines(engine: Engine, how: str):
    job, other = running(engine), running(engine)
    engine.log([line(job), line(job, 2), line(other)])
    engine.finish([outcome.completed(job, None, keep=0.0)])
    if how == "delete":
        engine_commands.delete(engine, [job.id])
    elif how == "prune":
        assert prune(engine) == 1
    else:  # of the application's own
        execute(engine, "DELETE FROM {jobs} WHERE id = :id", id=job.id)
    assert engine_commands.logs(engine, job.id) == []
    assert kept(engine) == 1


def test_a_retry_keeps_the_lines(engine: Engine):
    job = running(engine)
    engine.log([line(job)])
    engine.finish([outcome.failed(job, "E: no", keep=60.0)])
    assert engine_commands.retry(engine, [job.id]) == [job.id]
    assert places(engine_commands.logs(engine, job.id)) == ["1.1"]


def test_the_last_runs_of_a_job_keep_their_lines(engine: Engine):
    job, other = running(engine), running(engine)
    engine.log([line(other)])
    for number in range(1, RUNS + 4):
        engine.log([line(job, 1, claim_no=number), line(job, 2, claim_no=number)])
    found = engine_commands.logs(engine, job.id)
    assert [one.claim_no for one in found[::2]] == list(range(4, RUNS + 4))
    assert places(engine_commands.logs(engine, other.id)) == ["1.1"]


def test_the_application_reads_them(app: Holdfast):
    @app.task
    def send() -> None: ...

    job = send.enqueue()
    app.engine.log([line(job, number) for number in (1, 2, 3)])
    assert places(app.jobs.logs(job.id)) == ["1.1", "1.2", "1.3"]
    assert places(app.jobs.logs(job.id, after="1.1", limit=1)) == ["1.2"]
    assert places(app.jobs.logs(job.id, limit=1, newest=True)) == ["1.3"]
    for after in ("x", "1", "1.x", "-1.2", "1.2.3", "", "9" * 40 + ".1"):
        with pytest.raises(InvalidInput, match="is no place in a log: give the cursor of a line"):
            app.jobs.logs(job.id, after=after)
    for limit in (0, -1, 10_001, True, 2.0):
        with pytest.raises(InvalidInput, match="give a number of lines from 1 to 10000"):
            app.jobs.logs(job.id, limit=limit)  # type: ignore[arg-type]


def test_the_application_reads_them_asynchronously(app: Holdfast):
    @app.task
    def send() -> None: ...

    job = send.enqueue()
    app.engine.log([line(job)])

    async def read() -> list[list[str]]:
        pages = [await app.jobs.alogs(job.id), await app.jobs.alogs(job.id, after="1.1")]
        return [places(page) for page in pages]

    assert asyncio.run(read()) == [["1.1"], []]
