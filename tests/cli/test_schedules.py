"""`holdfast schedules`, and what `jobs` tells of recurring jobs."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.jobs.job import Job, Status
from holdfast.jobs.job_json import FIELDS, RECURRING
from holdfast.schedules.next_run import CODE
from holdfast.testing import drain
from tests.cli.command import Command
from tests.support.engine_commands import claim_as

LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def app(command: Command) -> Iterator[Holdfast]:
    """Two feeds, one of them overdue, and a schedule that is written at its task."""
    with command.database.app() as app:

        @app.task
        def fetch(feed: int) -> int:
            if feed == 1:
                raise ValueError("no\nfeed")
            return feed

        @app.task(cron="0 3 * * *", timezone="Europe/Paris")
        def nightly() -> None: ...

        fetch.using(key="feed:1", every="30m").schedule(feed=1)
        fetch.using(key="feed:2", every="30m", start=LATER).schedule(feed=2)
        plan = {"cron": "0 3 * * *", "timezone": "Europe/Paris", "start": LATER}
        nightly.using(key=CODE, **plan).schedule()
        yield app


def listed(command: Command, *options: str) -> list[tuple[str, str]]:
    told = command("schedules", "list", "--json", *options)
    assert told.code == 0, told.err
    return [(job["type"], job["key"]) for job in told.json]


def row(app: Holdfast, task: str = "fetch", key: str = "feed:2") -> Job:
    return app.schedules.get(task, key)


def test_list(command: Command, app: Holdfast):
    drain(app, raise_errors=False)
    header, first, second, third = command("schedules", "list").out.splitlines()
    assert header.split() == [
        *("TASK", "KEY", "SCHEDULE", "ENABLED", "NEXT", "AT", "LAST", "FAILED", "ERROR"),
    ]
    assert first.startswith("fetch    feed:1  every 30 minutes")
    assert first.endswith("1  ValueError: no feed")
    assert second.split()[:7] == ["fetch", "feed:2", "every", "30", "minutes", "yes", "in"]
    assert "2100-01-01T00:00:00.000000Z" in second
    assert third.startswith("nightly  -       at 03:00 every day (Europe/Paris)  yes ")


def test_json(command: Command, app: Holdfast):
    told = command("schedules", "list", "--json").json
    assert [(job["type"], job["key"]) for job in told] == [
        *(("fetch", "feed:1"), ("fetch", "feed:2"), ("nightly", "@code")),
    ]
    assert list(told[0]) == [*FIELDS, *RECURRING]
    assert (told[0]["schedule"], told[0]["enabled"]) == ({"every": 1800}, True)
    assert (told[0]["payload"], told[0]["due_at"]) == ({"feed": 1}, told[0]["run_at"])
    assert told[2]["schedule"] == {"cron": "0 3 * * *", "timezone": "Europe/Paris"}
    [plain] = command("jobs", "list", "--json", "--type", "nightly").json
    assert plain == told[2]
    assert command("jobs", "show", told[0]["id"], "--json").json["last_error"] is None


def test_jobs_that_do_not_recur_have_no_such_fields(command: Command, app: Holdfast):
    job = app.tasks["fetch"].using(expires="1h").enqueue(feed=3)
    told = command("jobs", "show", job.id, "--json").json
    assert list(told) == [*FIELDS, "waits", "failures"]
    assert datetime.fromisoformat(told["expires_at"]) == job.created_at + timedelta(hours=1)
    assert f"expires_at: {told['expires_at']} (in " in command("jobs", "show", job.id).out


def test_filters(command: Command, app: Holdfast):
    drain(app, raise_errors=False)
    app.schedules.disable("fetch", "feed:2")
    assert listed(command, "--limit", "2") == [("fetch", "feed:1"), ("fetch", "feed:2")]
    assert listed(command, "--type", "nightly") == listed(command, "--type", "ni*")
    assert listed(command, "--failing") == [("fetch", "feed:1")]
    assert listed(command, "--disabled") == [("fetch", "feed:2")]
    assert listed(command, "--type", "nothing") == []
    assert len(command("schedules", "list", "--limit", "1").out.splitlines()) == 2


def test_more_than_a_page(command: Command, app: Holdfast, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.schedules.client.PAGE", 7)
    for number in range(20):
        app.tasks["fetch"].using(key=f"many:{number:02}", every=60).schedule(feed=number)
    assert len(listed(command)) == 23
    assert len(command("schedules", "list").out.splitlines()) == 24


def test_a_disabled_one_and_why(command: Command, app: Holdfast):
    from holdfast.schedules import scripts as schedule_scripts

    job = row(app, "nightly", CODE)
    gone = "gone from the code"
    app.engine.run(
        lambda: schedule_scripts.set_enabled(app.engine.dialect, job, False, gone), write=True
    )
    line = command("schedules", "list", "--disabled").out.splitlines()[1]
    assert "no (gone from the code)  " in line
    assert "    -  2100-01-01T00:00:00.000000Z" in line
    assert "enabled: no (gone from the code)\n" in command("schedules", "show", "nightly").out


def test_show(command: Command, app: Holdfast):
    drain(app, raise_errors=False)
    shown = command("schedules", "show", "fetch", "feed:1").out
    for text in (
        *(
            "key: feed:1\n",
            "schedule: every 30 minutes\n",
            "enabled: yes\n",
            "failures: 1 in a row\n",
        ),
        *("last_run_at: 20", "due_at: 20", "Traceback", "run: 20", "then scheduled\n"),
    ):
        assert text in shown
    told = command("schedules", "show", "fetch", "feed:1", "--json").json
    assert told["consecutive_failures"] == len(told["failures"]) == len(told["runs"]) == 1
    app.schedules.run_now("fetch", "feed:2")
    drain(app, raise_errors=False)
    well = command("schedules", "show", "fetch", "feed:2", "--json").json
    assert (well["failures"], [run["error"] for run in well["runs"]]) == ([], [None])
    shown = command("schedules", "show", "fetch", "feed:2").out
    assert "without an error" in shown
    assert "None" not in shown


def test_show_tells_the_newest_runs(command: Command, app: Holdfast):
    for _ in range(12):
        app.schedules.run_now("fetch", "feed:2")
        drain(app, raise_errors=False)
    shown = command("schedules", "show", "fetch", "feed:2").out
    assert shown.count("without an error") == 10
    assert "and 2 runs before" in shown or "and 3 runs before" in shown


def test_disable_and_enable(command: Command, app: Holdfast):
    done = command("schedules", "disable", "fetch", "feed:2")
    assert done.out.startswith("disabled fetch feed:2 (next run 2100-01-01T00:00:00.000000Z, in ")
    assert done.out.endswith("once it is enabled)\n")
    assert row(app).enabled is False
    enabled = command("schedules", "enable", "fetch", "feed:2")
    assert enabled.out.startswith("enabled fetch feed:2 (next run 2100-01-01T00:00:00.000000Z, in ")
    assert row(app).enabled is True
    told = command("schedules", "disable", "fetch", "feed:1", "--json").json
    assert (told["enabled"], told["status"], told["payload"]) == (False, "scheduled", {"feed": 1})
    assert "due now" in command("schedules", "enable", "fetch", "feed:1").out


@pytest.mark.parametrize("key", [[], ["-"], ["@code"]])
def test_without_a_key_the_one_that_is_written_at_the_task(
    command: Command, app: Holdfast, key: list[str]
):
    assert command("schedules", "disable", "nightly", *key).out.startswith("disabled nightly (")
    assert row(app, "nightly", CODE).enabled is False


def test_run_now(command: Command, app: Holdfast):
    command("schedules", "disable", "fetch", "feed:2")
    done = command("schedules", "run-now", "fetch", "feed:2")
    assert done.out == "asked for a run of fetch feed:2 (due now)\n"
    assert row(app).status is Status.PENDING
    app.engine.beat("w", "{}")
    claim_as(app.engine, "default", 5, worker="w", types=["fetch"])
    again = command("schedules", "run-now", "fetch", "feed:2")
    assert again.out.endswith("(it is running; this is about the run after that)\n")
    assert [job.split()[6] for job in command("schedules", "list").out.splitlines()[1:3]] == [
        *("running", "running"),
    ]


def test_reschedule(command: Command, app: Holdfast):
    moved = command("schedules", "reschedule", "fetch", "feed:2", "--at", "2101-01-01T02:00+02:00")
    assert moved.out.startswith("moved fetch feed:2 (next run 2101-01-01T00:00:00.000000Z, in ")
    assert row(app).run_at == LATER.replace(year=2101)
    told = command("schedules", "reschedule", "nightly", "--after", "10m", "--json").json
    left = datetime.fromisoformat(told["run_at"]) - datetime.now(UTC)
    assert timedelta(minutes=9) < left <= timedelta(minutes=10)


def test_delete(command: Command, app: Holdfast):
    refused = command("schedules", "delete", "fetch", "feed:2")
    assert refused.code == 2
    assert "fetch feed:2, every 30 minutes" in refused.err
    assert "--yes" in refused.err
    told = command("schedules", "delete", "fetch", "feed:2", "--yes", "--json").json
    assert (told["key"], told["payload"]) == ("feed:2", {"feed": 2})
    assert command("schedules", "delete", "nightly", "--yes").out == "deleted nightly\n"
    assert listed(command) == [("fetch", "feed:1")]


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 2), ("n\n", 1, 3)])
def test_delete_asks(command: Command, app: Holdfast, answer: str, code: int, left: int):
    asked = command.terminal("schedules", "delete", "nightly", typed=answer)
    assert "delete the recurring job nightly, at 03:00 every day (Europe/Paris)?" in asked.out
    assert asked.code == code
    assert len(listed(command)) == left


@pytest.mark.parametrize("verb", ["show", "enable", "disable", "run-now", "delete", "reschedule"])
def test_what_is_not_there(command: Command, app: Holdfast, verb: str):
    options = {"reschedule": ["--after", "1m"], "delete": ["--yes"]}.get(verb, [])
    refused = command("schedules", verb, "fetch", "feed:9", *options)
    assert (refused.code, refused.out) == (4, "")
    assert "'holdfast schedules list --type fetch'" in refused.err
    assert "written at it" in command("schedules", verb, "fetch", *options).err


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["reschedule", "fetch", "feed:2"], "--at"),
        (["reschedule", "fetch", "feed:2", "--at", "2100-01-01", "--after", "1m"], "one of them"),
        (["reschedule", "fetch", "feed:2", "--at", "10m"], "--after takes"),
        (["reschedule", "fetch", "feed:2", "--after", "soon"], "'90s'"),
        (["enable"], "TASK"),
        (["enable", "a b"], "letters"),
        (["list", "--limit", "-1"], "0"),
    ],
)
def test_wrong_calls(command: Command, app: Holdfast, words: list[str], remedy: str):
    refused = command("schedules", *words)
    assert (refused.code, refused.out) == (2, "")
    assert remedy in refused.err
    assert row(app).run_at == LATER


def test_nothing_recurs(command: Command):
    assert command("schedules", "list", "--json").json == []
    told: Any = command.terminal("schedules", "list")
    assert "nothing recurs" in told.out
