"""`holdfast jobs retry`, `cancel` and `delete`."""

import pytest

from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.jobs.job import Status
from tests.cli.command import Command
from tests.support.jobs import in_status, insert


def status(engine: Engine, id: str) -> str | None:
    found = engine.get([id])
    return found[0].status.value if found else None


def test_by_ids(command: Command, now: Engine):
    failed = in_status(now, Status.FAILED)
    assert command("jobs", "retry", failed.id).out == f"retried {failed.id}\n"
    assert status(now, failed.id) == "pending"
    other = insert(now)
    done = command("jobs", "cancel", failed.id, other.id, "--json")
    assert [(job["id"], job["status"]) for job in done.json] == [
        (failed.id, "cancelled"),
        (other.id, "cancelled"),
    ]
    assert command("jobs", "delete", failed.id, other.id).code == 0
    assert (status(now, failed.id), status(now, other.id)) == (None, None)


def test_a_running_job_is_asked_to_stop(command: Command, now: Engine):
    job = in_status(now, Status.RUNNING)
    assert command("jobs", "cancel", job.id).out == f"asked to stop {job.id}\n"
    refused = command("jobs", "retry", job.id)
    assert refused.code == 1
    assert "is running" in refused.err


def test_one_that_is_refused_keeps_none_of_the_others_from_it(command: Command, now: Engine):
    absent, done = new_id(), in_status(now, Status.COMPLETED)
    waiting = insert(now)
    changed = command("jobs", "cancel", absent, done.id, waiting.id)
    assert changed.code == 4
    assert changed.out == f"cancelled {waiting.id}\n"
    assert absent in changed.err
    assert "too late" in changed.err


def test_by_a_filter(command: Command, now: Engine):
    failed = [in_status(now, Status.FAILED).id for _ in range(3)]
    done = in_status(now, Status.COMPLETED).id
    other = in_status(now, Status.FAILED, type="other").id
    retried = command("jobs", "retry", "--type", "send", "--yes")
    assert (retried.code, retried.out) == (0, "retried 3 of 3 jobs\n")
    assert {status(now, id) for id in failed} == {"pending"}
    assert (status(now, done), status(now, other)) == ("completed", "failed")
    cancelled = command("jobs", "cancel", "--type", "send", "--limit", "2", "--yes", "--json")
    assert cancelled.json == {"matched": 2, "cancelled": 2, "skipped": {}}
    assert [status(now, id) for id in failed] == ["pending", "cancelled", "cancelled"]
    deleted = command("jobs", "delete", "--status", "completed,failed", "--yes")
    assert deleted.out == "deleted 2 of 2 jobs\n"
    assert (status(now, done), status(now, other)) == (None, None)


def test_another_status_can_be_retried(command: Command, now: Engine):
    done = in_status(now, Status.COMPLETED).id
    assert command("jobs", "retry", "--status", "completed", "--yes").code == 0
    assert status(now, done) == "pending"


def test_all_of_them(command: Command, now: Engine):
    held = in_status(now, Status.RUNNING)
    insert(now)
    in_status(now, Status.FAILED, type="other")
    statuses = ["--status", "running,pending"]
    retried = command("jobs", "retry", "--all", *statuses, "--yes")
    assert retried.out == "retried 1 of 2 jobs; skipped: 1 running\n"
    assert command("jobs", "retry", "--all", "--yes", "--json").json == {
        "matched": 1,
        "retried": 1,
        "skipped": {},
    }
    assert command("jobs", "cancel", "--all", "--yes").out == "cancelled 3 of 3 jobs\n"
    assert now.get([held.id])[0].cancel_requested
    assert command("jobs", "delete", "--all", held.id).code == 2
    assert command("jobs", "delete", "--all", "--yes").out == "deleted 3 of 3 jobs\n"


def test_edit(command: Command, now: Engine):
    job = insert(now)
    edited = command("jobs", "edit", job.id, "--priority", "5", "--in", "10m", "--queue", "media")
    assert edited.out.startswith(f"edited {job.id}: scheduled, queue media, priority 5, due 2")
    told = command("jobs", "edit", job.id, "--at", "2030-01-31T12:00", "--json").json
    assert (told["run_at"], told["priority"]) == ("2030-01-31T12:00:00.000000Z", 5)
    assert command("jobs", "edit", job.id, "--in", "0").code == 0
    assert status(now, job.id) == "pending"
    held = in_status(now, Status.RUNNING)
    refused = command("jobs", "edit", held.id, "--priority", "5")
    assert (refused.code, "is running" in refused.err) == (1, True)


@pytest.mark.parametrize(
    "arguments", [[], ["--in", "5m", "--at", "2030-01-01"], ["--in", "soon"], ["--queue", "a b"]]
)
def test_what_to_edit_must_be_said(command: Command, now: Engine, arguments: list[str]):
    job = insert(now)
    assert command("jobs", "edit", job.id, *arguments).code == 2
    assert now.get([job.id])[0].run_at == job.run_at


@pytest.mark.parametrize("verb", ["retry", "cancel", "delete"])
def test_nobody_to_ask_means_no(command: Command, now: Engine, verb: str):
    jobs = [in_status(now, Status.FAILED).id, insert(now).id]
    refused = command.process("jobs", verb, "--type", "send")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--yes" in refused.stderr
    assert "jobs match" in refused.stderr
    assert [status(now, id) for id in jobs] == ["failed", "pending"]


@pytest.mark.parametrize("verb", ["retry", "cancel", "delete"])
def test_which_jobs_must_be_said(command: Command, now: Engine, verb: str):
    job = insert(now)
    for arguments in [[], ["--limit", "3"], [job.id, "--type", "send"]]:
        refused = command("jobs", verb, "--yes", *arguments)
        assert refused.code == 2
    assert status(now, job.id) == "pending"


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, None), ("n\n", 1, "pending")])
def test_on_a_terminal_it_asks(
    command: Command, now: Engine, answer: str, code: int, left: str | None
):
    jobs = [insert(now).id for _ in range(3)]
    asked = command.terminal("jobs", "delete", "--type", "send", typed=answer)
    assert "delete 3 jobs?" in asked.out
    assert asked.code == code
    assert ("3/3" in asked.out) == (code == 0)  # the bar
    assert {status(now, id) for id in jobs} == {left}


def test_nothing_that_matches_is_no_failure(command: Command):
    assert command("jobs", "delete", "--type", "send", "--yes").out == "deleted 0 of 0 jobs\n"


def test_yes_from_the_environment(command: Command, now: Engine):
    insert(now)
    done = command("jobs", "cancel", "--type", "send", HOLDFAST_JOBS_CANCEL_YES="1")
    assert done.out == "cancelled 1 of 1 jobs\n"
