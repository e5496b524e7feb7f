"""`holdfast jobs watch`: each change is a line, and the exit code tells how it ended."""

import json
import signal
from typing import Any

import pytest

from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.engine.records import Report
from holdfast.jobs.job import Status
from holdfast.jobs.job_json import FIELDS
from holdfast.jobs.outcome import completed
from tests.cli.command import Command
from tests.support import engine_commands
from tests.support.forked import Forked
from tests.support.jobs import claim, in_status, insert


def line(watch: Forked) -> Any:
    assert watch.stdout is not None
    return json.loads(watch.stdout.readline())


def test_a_line_for_each_change_until_all_have_ended(command: Command, now: Engine):
    first, second = insert(now), insert(now)
    with command.started("jobs", "watch", first.id, second.id, "--json") as watch:
        seen = [line(watch), line(watch)]
        assert [(job["id"], job["status"]) for job in seen] == [
            (first.id, "pending"),
            (second.id, "pending"),
        ]
        assert list(seen[0]) == list(FIELDS)
        held = claim(now, 1)[0]
        assert (told := line(watch))["status"] == "running"
        assert told["id"] == held.id == first.id
        now.report([Report(held.id, held.claim_no, 40.0, "half way")])
        told = line(watch)
        assert (told["progress"], told["message"]) == (40.0, "half way")
        now.finish([completed(held, '"good"', keep=60.0)])
        told = line(watch)
        assert (told["status"], told["result"]) == ("completed", "good")
        other = claim(now, 1)[0]
        while line(watch)["status"] != "running":
            pass
        now.finish([completed(other, "1", keep=60.0)])
        assert line(watch)["status"] == "completed"
        assert watch.wait(30) == 0


def test_without_ids_it_shows_what_runs_and_how_it_ends(command: Command, now: Engine):
    held = in_status(now, Status.RUNNING)
    insert(now)
    with command.started("jobs", "watch", "--json") as watch:
        assert (line(watch)["id"], Status.RUNNING) == (held.id, held.status)
        now.finish([completed(held, '"good"', keep=60.0)])
        told = line(watch)
        assert (told["id"], told["status"], told["result"]) == (held.id, "completed", "good")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 130
        assert watch.stderr is not None
        assert watch.stderr.read() == ""


@pytest.mark.parametrize(
    ("status", "code"), [(Status.COMPLETED, 0), (Status.FAILED, 1), (Status.CANCELLED, 1)]
)
def test_the_exit_code(command: Command, now: Engine, status: Status, code: int):
    job = in_status(now, status)
    watched = command("jobs", "watch", job.id)
    assert watched.code == code
    assert job.id in watched.out
    assert status in watched.out
    assert command("jobs", "watch", job.id, "--json").code == code


def test_a_job_that_is_deleted_has_ended(command: Command, now: Engine):
    job = insert(now)
    with command.started("jobs", "watch", job.id, "--json") as watch:
        assert line(watch)["status"] == "pending"
        engine_commands.delete(now, [job.id])
        assert watch.wait(30) == 1


def test_unknown_jobs(command: Command):
    assert command("jobs", "watch", new_id()).code == 4
    assert command("jobs", "watch", "seven").code == 2


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal_it_draws(command: Command, now: Engine, columns: int):
    done, bad = in_status(now, Status.COMPLETED), in_status(now, Status.FAILED, type="import")
    shown = command.terminal("jobs", "watch", done.id, bad.id, columns=columns)
    assert shown.code == 1
    for text in ("completed", "import", "E: no", "━"):
        assert text in shown.out
    assert (done.id in shown.out) is (columns >= 100)
