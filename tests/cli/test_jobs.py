"""`holdfast jobs list` and `jobs show`."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.clock import FakeClock
from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.jobs.job import Status
from holdfast.jobs.outcome import completed, failed, retry_later
from tests.cli.command import Command
from tests.support import engine_commands
from tests.support.jobs import in_status, insert, new, running

FIELDS = [
    "id",
    "type",
    "payload",
    "status",
    "priority",
    "queue",
    "key",
    "entity_type",
    "entity_id",
    "attempts",
    "max_attempts",
    "worker_id",
    "created_at",
    "updated_at",
    "run_at",
    "started_at",
    "completed_at",
    "result",
    "error",
    "progress",
    "message",
    "crashes",
    "expires_at",
    "limit_key",
    "prune_error",
    "idempotency_key",
    "deaths",
    "unreadable_since",
]


def ids(command: Command, *options: str) -> list[str]:
    listed = command("jobs", "list", "--json", *options)
    assert listed.code == 0, listed.err
    return [job["id"] for job in listed.json]


def test_json_has_every_field_of_a_job(command: Command, now: Engine):
    job = running(
        now, payload='{"to":"ann"}', key="k", entity_type="movie", entity_id="7", priority=3
    )
    now.finish([completed(job, '{"sent":true}', keep=60.0)])
    [listed] = command("jobs", "list", "--json").json
    assert list(listed) == FIELDS
    assert (listed["payload"], listed["result"]) == ({"to": "ann"}, {"sent": True})
    assert (listed["entity_type"], listed["entity_id"], listed["key"]) == ("movie", 7, "k")
    assert (listed["status"], listed["priority"], listed["attempts"]) == ("completed", 3, 1)
    for name in ("created_at", "updated_at", "run_at", "started_at", "completed_at"):
        assert listed[name].endswith("Z")
        assert datetime.fromisoformat(listed[name]) == getattr(now.get([job.id])[0], name)


def test_an_empty_list_is_an_empty_array(command: Command):
    assert command("jobs", "list", "--json").json == []


def test_more_than_a_page(command: Command, now: Engine):
    made = [job.id for job in now.insert([new() for _ in range(230)])]
    assert ids(command, "--limit", "220") == made[:-221:-1]
    assert len(ids(command)) == 100


def test_filters(command: Command, now: Engine):
    mail = insert(now, "mail.send", queue="mail", key="ann")
    movie = insert(now, "scan", entity_type="movie", entity_id="7")
    text = insert(now, "scan", entity_type="movie", entity_id='"7"')
    later = insert(now, "mail.digest", delay=60.0)
    assert ids(command) == [later.id, text.id, movie.id, mail.id]
    assert ids(command, "--status", "scheduled") == [later.id]
    assert len(ids(command, "--status", "scheduled,pending")) == 4
    assert len(ids(command, "--status", "scheduled", "--status", "pending")) == 4
    assert ids(command, "--type", "mail.send") == [mail.id]
    assert ids(command, "--type", "mail*") == [later.id, mail.id]
    assert ids(command, "--queue", "mail") == [mail.id]
    assert ids(command, "--key", "ann") == [mail.id]
    assert ids(command, "--entity", "movie:7") == [movie.id]
    assert ids(command, "--entity", 'movie:"7"') == [text.id]
    assert ids(command, "--limit", "1") == [later.id]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert ids(command, "--since", tomorrow) == []
    assert len(ids(command, "--since", "1h")) == 4
    assert ids(command, "--until", "1h") == []
    assert len(ids(command, "--until", "2100-01-01")) == 4


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("--status", "finished", "completed"),
        ("--since", "yesterday", "'2h'"),
        ("--entity", "movie", "TYPE:ID"),
        ("--queue", "a b", "letters"),
        ("--limit", "-1", "0"),
    ],
)
def test_a_bad_filter_is_a_wrong_call(command: Command, option: str, value: str, remedy: str):
    refused = command("jobs", "list", option, value)
    assert refused.code == 2
    assert remedy in refused.err


def test_a_query(command: Command, now: Engine):
    plain = insert(now, priority=7, payload='{"user":{"id":7}}')
    other = running(now, type="send-mail", payload='{"user":{"id":"8"}}')
    now.finish([failed(other, 'HTTPError: "rate limit" of 50%', keep=60.0)])
    assert ids(command, "--query", "type:send") == [other.id, plain.id]
    assert ids(command, "--query", "type:=send priority:>5 payload.user.id:7") == [plain.id]
    assert ids(command, "--query", 'error:"\\"rate limit\\"" 50%') == [other.id]
    assert ids(command, "--query", "payload.user.id:8", "--status", "failed") == [other.id]
    assert ids(command, "--query", "payload.user.id:8", "--status", "pending") == []
    assert ids(command, "--query", f"id:{plain.id}") == [plain.id]
    assert ids(command, "--query", "before:1h") == []
    assert ids(command, "--query", "after:1h", "--limit", "1") == [other.id]
    twice = command("jobs", "list", "--query", "queue:a", "--queue", "b")
    assert (twice.code, "queue: give it once" in twice.err) == (2, True)
    wrong = command("jobs", "list", "--query", "colour:red")
    assert (wrong.code, wrong.out) == (2, "")
    assert "colour: is no qualifier: there are status, type" in wrong.err


def test_where_there_is_no_terminal_nothing_is_cut(command: Command, now: Engine):
    type, queue = "t" * 120, "q" * 120
    made = running(now, type=type, queue=queue)
    now.finish([failed(made, f"ValueError: {'long ' * 40}\x1b[31m", keep=60.0)])
    listed = command.process("jobs", "list", COLUMNS="40")
    header, row = listed.stdout.splitlines()
    assert header.split() == ["ID", "TYPE", "STATUS", "TRY", "MADE", "QUEUE", "PRIO", "DUE", "NOTE"]
    assert row.split()[:4] == [made.id, type, "failed", "1/3"]
    assert queue in row
    assert ("long " * 40).strip() in row
    assert "\x1b" not in listed.stdout


def test_on_a_terminal_it_fits(command: Command, now: Engine):
    made = insert(now, "t" * 60)
    shown = command.terminal("jobs", "list", columns=80)
    lines = [line for line in shown.out.splitlines() if made.id in line]
    assert len(lines) == 1
    assert "…" in lines[0]
    assert "\x1b[" in shown.out


def test_no_color(command: Command, now: Engine):
    insert(now)
    colours = "\x1b[36m"  # cyan, for pending
    assert colours in command.terminal("jobs", "list").out
    assert colours not in command.terminal("jobs", "list", NO_COLOR="1").out


def test_show(command: Command, now: Engine):
    job = running(now, payload='{"to":"ann"}', entity_type="movie", entity_id="7", key="k")
    trace = "Traceback (most recent call last):\n  in send\nValueError: bad"
    now.finish([failed(job, "ValueError: bad", trace=trace, keep=60.0)])
    shown = command("jobs", "show", job.id)
    assert shown.code == 0
    for text in (
        job.id,
        "send",
        "failed",
        "movie:7",
        '{"to": "ann"}',
        "1 of 3",
        *trace.split("\n"),
    ):
        assert text in shown.out
    told = command("jobs", "show", job.id, "--json").json
    assert list(told) == [*FIELDS, "waits", "failures"]
    assert told["waits"] == []
    [failure] = told["failures"]
    assert (failure["attempt"], failure["error"], failure["trace"]) == (1, "ValueError: bad", trace)
    assert failure["status"] == "failed"


def test_show_on_a_terminal_disarms_what_is_stored(command: Command, now: Engine):
    job = running(now)
    now.finish([failed(job, "E: \x1b]0;owned\x07", keep=60.0)])
    shown = command.terminal("jobs", "show", job.id, columns=200)
    assert "\\x1b]0;owned\\x07" in shown.out
    assert "\x1b]0;" not in shown.out


def test_unknown_and_impossible_ids(command: Command):
    unknown = command("jobs", "show", new_id())
    assert (unknown.code, unknown.out) == (4, "")
    assert unknown.err.startswith("holdfast: no job has the id")
    impossible = command("jobs", "show", "seven")
    assert impossible.code == 2
    assert "not a job id" in impossible.err


def waits(command: Command, id: str) -> str:
    told = command("jobs", "show", id, "--json").json["waits"]
    out = timeless(command("jobs", "show", id).out)
    assert all(timeless(reason) in out for reason in told)
    return "; ".join(told)


def timeless(text: str) -> str:
    """Seconds that passed between two calls do not matter."""
    return re.sub(r"\d+", "#", text)


def live(engine: Engine, **told: object) -> None:
    engine.beat("host-1-a", json.dumps({"queues": ["default"], "tasks": ["send"], **told}))


def test_why_a_pending_job_waits(command: Command, now: Engine):
    job = insert(now)
    assert "no worker lives" in waits(command, job.id)
    live(now, queues=["media"])
    assert "no live worker serves queue 'default'" in waits(command, job.id)
    live(now, tasks=["other"])
    assert "no live worker knows task 'send'" in waits(command, job.id)
    live(now, running=2, slots=2)
    assert "2 of 2 are taken" in waits(command, job.id)
    engine_commands.pause(now, "default", True)
    assert "queue 'default' is paused" in waits(command, job.id)


def test_why_a_later_job_waits(command: Command, now: Engine):
    scheduled = insert(now, delay=3600.0)
    assert waits(command, scheduled.id).startswith("due at ")
    tried = running(now)
    now.finish([retry_later(tried, "E: no", delay=3600.0)])
    assert "2 of 3 attempts are left" in waits(command, tried.id)
    overdue = in_status(now, Status.BLOCKED)
    assert "waits for another job" in waits(command, overdue.id)


def test_why_a_running_job_does_not_end(command: Command, now: Engine):
    job = running(now)
    assert waits(command, job.id) == ""
    engine_commands.cancel(now, [job.id], keep=60.0)
    assert "asked to stop" in waits(command, job.id)
    live(now, jobs=[{"id": job.id, "type": "send", "stuck": True}])
    assert "past its timeout" in waits(command, job.id)


def test_why_a_job_of_a_silent_worker_does_not_end(command: Command):
    past = command.database.engine(FakeClock(datetime.now(UTC) - timedelta(minutes=5)))
    job = running(past)
    assert "is silent" in waits(command, job.id)
