"""`holdfast queues`, `stats` and `workers`."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Seen
from holdfast.jobs.job import Status
from holdfast.monitoring.metrics import Rollup, minute_of
from tests.cli.command import Command
from tests.support.jobs import in_status, insert

INFO = {
    "host": "alpha",
    "pid": 42,
    "queues": ["default", "media"],
    "slots": 12,
    "running": 2,
    "draining": False,
    "tasks": ["send"],
    "jobs": [
        {"id": "01", "type": "send", "stuck": False},
        {"id": "02", "type": "scan", "stuck": True},
    ],
}


def test_queues(command: Command, now: Engine):
    for _ in range(3):
        insert(now, queue="media")
    assert command("queues", "list", "--json").json == [
        {"name": "media", "depth": 3, "paused_at": None, "resume_at": None}
    ]
    assert command("queues", "pause", "media", "mail").out == "paused media\npaused mail\n"
    [mail, media] = command("queues", "list", "--json").json
    assert (mail["name"], mail["depth"], media["name"], media["depth"]) == ("mail", 0, "media", 3)
    assert datetime.fromisoformat(media["paused_at"]).utcoffset() == timedelta(0)
    header, *rows = command("queues", "list").out.splitlines()
    assert header.split() == ["QUEUE", "PENDING", "PAUSED", "SINCE", "RESUMES"]
    assert rows[1].split() == ["media", "3", media["paused_at"], "-"]
    [resumed] = command("queues", "resume", "media", "--json").json
    assert (resumed["name"], resumed["paused_at"]) == ("media", None)
    assert command("queues", "pause", "a b").code == 2


def test_stats(command: Command, now: Engine):
    in_status(now, Status.FAILED)
    insert(now)
    in_status(now, Status.SCHEDULED, queue="media")
    told = command("stats", "--json").json
    assert list(told) == [
        *("jobs", "queues", "workers", "cap", "oldest_pending", "waiting", "window", "figures"),
        *("by_task", "by_queue", "series"),
    ]
    assert list(told["jobs"]) == [status.value for status in Status]
    assert (told["jobs"]["pending"], told["jobs"]["failed"], told["jobs"]["scheduled"]) == (1, 1, 1)
    assert [(queue["name"], queue["depth"]) for queue in told["queues"]] == [("default", 1)]
    assert told["workers"] == 1  # who failed the job
    text = command("stats").out
    assert ["failed", "1"] in [line.split() for line in text.splitlines()]
    assert text.endswith("workers: 1\n")


def test_figures(command: Command, now: Engine):
    minute = minute_of(datetime.now(UTC))
    done = Rollup(minute, "send", "default", "w", completed=19, failed=1, wait=2.0, run=40.0)
    for _ in range(20):
        done.waits.add(0.1)
        done.runs.add(2.0)
    now.roll_up([done])
    told = command("stats", "--json", "--window", "5m").json
    assert told["figures"] == told["by_task"]["send"] == told["by_queue"]["default"]
    assert (told["figures"]["finished"], told["figures"]["failure_rate"]) == (20, 0.05)
    assert (told["figures"]["per_minute"], told["window"]) == (4.0, 300.0)
    assert told["figures"]["run"]["average"] == 2.0
    assert len(told["series"]) == 5
    assert sum(point["completed"] for point in told["series"]) == 19
    [line] = [line for line in command("stats").out.splitlines() if line.startswith("send")]
    words = line.split()
    assert (words[:6], words[-1]) == (["send", "19", "1", "0", "5.0%", "0.3"], "1.9s")
    assert command("stats", "--window", "25h").code == 2


def workers(command: Command, *options: str) -> list[Any]:
    listed: list[Any] = command("workers", "--json", *options).json
    return listed


def test_workers(command: Command, now: Engine):
    now.beat("alpha-42-x", json.dumps(INFO))
    [told] = workers(command)
    assert list(told) == [
        *("id", "state", "host", "pid", "queues", "tasks", "slots", "running", "jobs"),
        *("started_at", "beat_at", "beat_age", "left_at", "died_at", "version", "app_version"),
        *("memory", "silent_for", "overdue", "unreadable", "cannot_write_for"),
    ]
    assert (told["id"], told["state"], told["host"], told["pid"]) == (
        *("alpha-42-x", "live", "alpha", 42),
    )
    assert told["jobs"] == INFO["jobs"]
    assert 0 <= told["beat_age"] < 60
    text = command("workers").out
    assert text.splitlines()[0].split()[:4] == ["WORKER", "STATE", "HOST", "PID"]
    for part in ("alpha-42-x", "live", "default,media", "2/12", "send scan(stuck)"):
        assert part in text
    assert "stuck in alpha-42-x: job 02 (scan)" in text


def test_dead_workers_only_when_asked_for(command: Command, now: Engine):
    for name in ("alive", "dead", "gone"):
        now.beat(name, "{}")
    now.leave("gone")
    now.sweep([Seen("dead", None), Seen("gone", None)], limit=10)
    past = command.database.engine(FakeClock(datetime.now(UTC) - timedelta(minutes=1)))
    past.beat("silent", "{}")
    assert [(one["id"], one["state"]) for one in workers(command)] == [
        ("alive", "live"),
        ("silent", "silent"),
    ]
    assert [(one["id"], one["state"]) for one in workers(command, "--all")] == [
        ("alive", "live"),
        ("dead", "dead"),
        ("gone", "left"),
        ("silent", "silent"),
    ]
