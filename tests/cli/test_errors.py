"""`holdfast errors`."""

from holdfast.engine.engine import Engine
from holdfast.jobs.outcome import failed, retry_later
from tests.cli.command import Command
from tests.support.jobs import running

TRACE = 'Traceback:\n  File "/srv/shop/tasks.py", line 7, in send\n'


def fill(now: Engine) -> list[str]:
    jobs = [running(now, type="send") for _ in range(3)]
    for job in jobs[:2]:
        now.finish([failed(job, f"HTTPError: 429 for {job.id}", trace=TRACE, keep=60.0)])
    now.finish([retry_later(jobs[2], "the \x1b[31mworker died", delay=60.0)])
    return [job.id for job in jobs]


def test_groups(command: Command, now: Engine):
    ids = fill(now)
    header, first, second = command("errors").out.splitlines()
    assert header.split() == ["COUNT", "LAST", "TASKS", "ERROR", "WHERE", "SAMPLE"]
    assert first.split()[0] == "2"
    assert "HTTPError: <n> for <uuid>" in first
    assert "shop/tasks.py in send" in first
    assert first.endswith(ids[1])
    assert "the \\x1b[<n>mworker died" in second
    assert "\x1b" not in second


def test_json(command: Command, now: Engine):
    ids = fill(now)
    told = command("errors", "--json").json
    assert (told["looked_at"], told["complete"]) == (3, True)
    group = told["groups"][0]
    assert (group["count"], group["types"], group["sample_ids"]) == (2, ["send"], ids[1::-1])
    assert group["statuses"] == {"failed": 2, "retrying": 0}
    assert group["first_at"].endswith("Z")
    assert told["since"] <= group["first_at"]
    assert command("errors", "--status", "retrying", "--json").json["looked_at"] == 1
    assert command("errors", "--type", "other", "--json").json["groups"] == []


def test_nothing_goes_wrong(command: Command):
    assert len(command("errors").out.splitlines()) == 1
    assert command("errors", "--json").json["since"] is None


def test_wrong_calls(command: Command):
    refused = command("errors", "--status", "pending")
    assert (refused.code, refused.out) == (2, "")
    assert "failed or retrying" in refused.err
    assert command("errors", "--type", "a b").code == 2
