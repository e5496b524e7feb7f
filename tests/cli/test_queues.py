"""`holdfast queues pause`, `limit` and `purge`."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Holdfast
from holdfast.engine.engine import Engine
from holdfast.jobs.job import Status
from tests.cli.command import Command
from tests.support.jobs import WORKER, claim, in_status, insert, new, running


def in_hours(hours: float) -> str:
    return (datetime.now(UTC) + timedelta(hours=hours)).isoformat()


def test_a_pause_that_ends_by_itself(command: Command, now: Engine):
    insert(now, queue="media")
    told = command("queues", "pause", "media", "--for", "2h")
    assert told.out.startswith("paused media, resumes ")
    assert told.out.endswith("(in 2h)\n")
    [media] = command("queues", "list", "--json").json
    left = datetime.fromisoformat(media["resume_at"]) - datetime.now(UTC)
    assert timedelta(hours=1.9) < left <= timedelta(hours=2)
    assert command("queues", "list").out.splitlines()[1].split() == [
        *("media", "1", media["paused_at"], media["resume_at"]),
    ]
    assert claim(now, queue="media") == []
    until = in_hours(5)
    [mail, media] = command("queues", "pause", "mail", "media", "--until", until, "--json").json
    assert (mail["name"], media["name"]) == ("mail", "media")
    assert datetime.fromisoformat(mail["resume_at"]) == datetime.fromisoformat(until)
    [resumed] = command("queues", "resume", "media", "--json").json
    assert (resumed["paused_at"], resumed["resume_at"]) == (None, None)
    assert len(claim(now, queue="media")) == 1


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--for", "1h", "--until", "2100-01-01"], "one of them"),
        (["--for", "soon"], "'90s'"),
        (["--until", "2h"], "--for takes"),
        (["--until", "2020-01-01"], "is past"),
    ],
)
def test_pauses_that_make_no_sense(command: Command, words: list[str], remedy: str):
    refused = command("queues", "pause", "media", *words)
    assert (refused.code, refused.out) == (2, "")
    assert remedy in refused.err
    assert command("queues", "list", "--json").json == []


def fetched(engine: Engine) -> int:
    """How many jobs a worker gets."""
    engine.beat(WORKER, "{}")
    return len(engine.claimer.fetch("default", 3, worker=WORKER, types=["send"], rules={}).jobs)


def test_limit(command: Command, now: Engine):
    now.insert([new() for _ in range(3)])
    told = command("queues", "limit", "default", "2", "--rate", "100/m").out
    assert told == "queue:default: 2 at once, at most 100/m\n"
    assert fetched(now) == 2
    assert fetched(now) == 0
    only_rate = command("queues", "limit", "default", "--rate", "3/s", "--json").json
    assert (only_rate["name"], only_rate["concurrency"], only_rate["rate"]) == (
        *("queue:default", None, "3/s"),
    )
    assert command("queues", "limit", "default").out == "queue:default: no limit\n"
    assert fetched(now) == 1
    assert command("queues", "limit", "default", "--json").json is None
    for wrong in (["a b", "1"], ["default", "few"], ["default", "--rate", "0/s"], []):
        assert command("queues", "limit", *wrong).code == 2


def fill(engine: Engine) -> None:
    """Three that wait, one that runs, one that is finished, and one elsewhere."""
    running(engine)
    in_status(engine, Status.COMPLETED)
    engine.insert([new(), new(delay=60.0), new(), new(queue="other")])


def test_purge(command: Command, now: Engine):
    with command.database.app() as app:
        recurring(app)
        fill(now)
        refused = command("queues", "purge", "default")
        assert refused.code == 2
        assert "3 jobs wait in queue 'default'" in refused.err
        assert "--yes" in refused.err
        assert app.jobs.count(status=["pending", "scheduled"]) == 5
        assert command("queues", "purge", "default", "--yes").out == "deleted 3 of 3 jobs\n"
        left = sorted((job.queue, job.status.value) for job in app.jobs.search())
        assert left == [
            *(("default", "completed"), ("default", "running"), ("default", "scheduled")),
            ("other", "pending"),
        ]
        again = command("queues", "purge", "default", "--yes", "--json")
        assert again.json == {"matched": 0, "deleted": 0}
    assert command("queues", "purge", "a b", "--yes").code == 2


def recurring(app: Holdfast) -> None:
    @app.task
    def fetch() -> None: ...

    fetch.using(key="k", every="1h", start=datetime.now(UTC) + timedelta(hours=1)).schedule()


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 2)])
def test_a_purge_asks(command: Command, now: Engine, answer: str, code: int, left: int):
    now.insert([new(), new()])
    asked = command.terminal("queues", "purge", "default", typed=answer)
    assert "2 jobs wait in queue 'default': delete them?" in asked.out
    assert asked.code == code
    assert now.counts(cap=10)[Status.PENDING] == left
