"""`holdfast jobs logs`, and the last lines in `jobs show`."""

import signal
from datetime import timedelta
from typing import Any

from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.jobs.job import Job, LogLine
from holdfast.jobs.job_json import iso
from holdfast.jobs.outcome import completed
from tests.cli.command import Command
from tests.support.jobs import insert, running


def log(engine: Engine, job: Job, *numbers: int, text: str = "line", **fields: Any) -> None:
    lines = [
        LogLine(
            **{
                "job_id": job.id,
                "claim_no": 1,
                "attempt": 1,
                "line_no": number,
                "at": job.created_at + timedelta(seconds=number),
                "level": "info",
                "text": f"{text} {number}",
                **fields,
            }
        )
        for number in numbers
    ]
    engine.log(lines)


def test_lines_as_text(command: Command, now: Engine):
    job = running(now)
    log(now, job, 1, 2)
    log(now, job, 3, level="error", text="Trace\n  back\x1b[31m")
    log(now, job, 1, claim_no=2, attempt=2)
    moments = [iso(job.created_at + timedelta(seconds=number)) for number in (1, 2, 3, 1)]
    assert command("jobs", "logs", job.id).out.splitlines() == [
        f"{moments[0]} #1 INFO     line 1",
        f"{moments[1]} #1 INFO     line 2",
        f"{moments[2]} #1 ERROR    Trace",
        "      back\\x1b[31m 3",
        f"{moments[3]} #2 INFO     line 1",
    ]


def test_lines_as_json_more_than_a_page(command: Command, now: Engine):
    job = running(now)
    log(now, job, *range(1, 1202))
    told = command("jobs", "logs", job.id, "--json").out.splitlines()
    assert len(told) == 1201
    assert told[0] == (
        '{"claim_no": 1, "attempt": 1, "line_no": 1, '
        f'"at": "{iso(job.created_at + timedelta(seconds=1))}", "level": "info", "text": "line 1"}}'
    )


def test_a_job_without_lines_and_one_that_is_not_there(command: Command, now: Engine):
    done = command("jobs", "logs", insert(now).id)
    assert (done.code, done.out) == (0, "")
    unknown = command("jobs", "logs", new_id())
    assert unknown.code != 0
    assert "no job has the id" in unknown.err


def test_follow_goes_on_until_the_job_has_ended(command: Command, now: Engine):
    job = running(now)
    log(now, job, 1)
    with command.started("jobs", "logs", job.id, "--follow", "--interval", "0.05") as follow:
        assert follow.stdout is not None
        assert follow.stdout.readline().endswith("line 1\n")
        log(now, job, 2)
        assert follow.stdout.readline().endswith("line 2\n")
        now.finish([completed(job, None, keep=60.0)])
        log(now, job, 3)  # the worker writes the last ones a little later
        assert follow.stdout.readline().endswith("line 3\n")
        assert follow.wait(30) == 0
        assert follow.stdout.read() == ""


def test_follow_is_ended_by_hand(command: Command, now: Engine):
    job = running(now)
    log(now, job, 1)
    with command.started("jobs", "logs", job.id, "-f") as follow:
        assert follow.stdout is not None
        follow.stdout.readline()
        follow.send_signal(signal.SIGINT)
        assert follow.wait(30) == 130


def test_show_has_the_last_lines(command: Command, now: Engine):
    job = running(now)
    assert "lines of its log" not in command("jobs", "show", job.id).out
    log(now, job, *range(1, 31))
    shown = command("jobs", "show", job.id).out
    head, _, rest = shown.partition("the last lines of its log\n")
    assert [line.rpartition(" ")[2] for line in rest.splitlines()] == [
        str(number) for number in range(11, 31)
    ]
    assert "status: running" in head
