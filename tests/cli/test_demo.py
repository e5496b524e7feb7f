"""`holdfast demo`: every kind of job is seen to its end, and whoever leaves is let go."""

import os
import signal
import socket
import tempfile
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from holdfast import Holdfast
from holdfast.cli.demo_view import Board, Record
from holdfast.core.clock import FakeClock
from holdfast.demo import tasks
from holdfast.events.event import Event
from holdfast.jobs.job import EventKind, Status
from tests.cli.command import Command, process
from tests.conftest import Database
from tests.support.jobs import in_status, running

TASKS = set(tasks.app.tasks)


def test_every_kind_of_job_reaches_its_end(database: Database, tmp_path: Path):
    options = ["--seconds", "5", "--url", database.url, "--schema", database.schema]
    done = process("demo", *options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    app = database.app()
    jobs = list(app.jobs.search())
    assert {job.status for job in jobs} == {Status.COMPLETED, Status.FAILED}
    assert {job.type for job in jobs} == TASKS - {"refresh_trends"}  # that one would wait for ever
    for job in jobs:
        if job.type not in ("sync_partner", "read_subtitles"):  # these fail now and then
            assert (job.status is Status.FAILED) is (job.type == "parse_upload")
    assert any(job.attempts > 1 for job in jobs if job.type == "call_flaky_api")
    assert all(job.run_at > job.created_at for job in jobs if job.type == "send_reminder")
    assert all(job.progress == 100 for job in jobs if job.type == "transcode_video")
    assert {flow.status for flow in app.workflows.list()} == {"completed"}
    dashboard, token, first, *rest = done.stdout.splitlines()
    assert dashboard.startswith("dashboard: http://127.0.0.1:")
    assert token.startswith("token: hf_")
    assert first.startswith("00:0")
    assert any("completed" in line for line in rest)
    for task in TASKS:
        assert f"\n{task} " in done.stdout


def test_its_dashboard_can_be_looked_at(local: Command):
    with local.started("demo", "--url", f"sqlite:///{local.cwd}/demo.db") as demo:
        assert demo.stdout is not None
        address = demo.stdout.readline().split()[-1]
        token = demo.stdout.readline().split()[-1]
        assert httpx.get(address).headers["content-type"].startswith("text/html")
        known = {"Authorization": f"Bearer {token}"}
        told = httpx.get(f"{address}api/v1/session", headers=known).json()
        assert (told["role"], told["title"]) == ("admin", "Holdfast demo")
        for line in demo.stdout:
            if "completed" in line:
                break
        found = httpx.get(f"{address}api/v1/jobs", headers=known).json()
        assert found["stats"]["completed"] > 0
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(60) == 0


def test_a_port_that_is_taken(local: Command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = local.process("demo", "--seconds", "0", "--port", port)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


def test_the_environments_database_is_left_alone(tmp_path: Path):
    mine = f"sqlite:///{tmp_path}/mine.db"
    done = process("demo", "--seconds", "0", cwd=tmp_path, HOLDFAST_URL=mine, TMPDIR=str(tmp_path))
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []  # nor is anything else left


def test_the_temporary_folder_can_be_kept(tmp_path: Path):
    options = ["demo", "--seconds", "0", "--keep"]
    done = process(*options, cwd=tmp_path, TMPDIR=str(tmp_path))
    [folder] = tmp_path.iterdir()
    assert f"kept in sqlite:///{folder}/jobs.db" in done.stdout
    assert (folder / "jobs.db").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_when_it_is_told_to(local: Command, number: signal.Signals):
    url = f"sqlite:///{local.cwd}/demo.db"
    with local.started("demo", "--url", url) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "completed" in line:
                break
        demo.send_signal(number)
        rest = demo.stdout.read()
        assert demo.wait(60) == 0
        assert "jobs completed" in rest
        assert demo.stderr is not None
        assert demo.stderr.read() == ""
    with Holdfast(url) as app:
        assert app.stats().workers == 0, app.engine.workers()
        assert app.stats().jobs[Status.RUNNING] == 0


def test_a_database_out_of_reach(tmp_path: Path):
    away = process("demo", "--url", "postgresql://127.0.0.1:1/x", cwd=tmp_path)
    assert away.returncode == 3
    assert "Traceback" not in away.stderr


def test_on_a_terminal(local: Command):
    shown = local.terminal(
        "demo", "--no-open", "--seconds", "1", columns=200, TMPDIR=str(local.cwd)
    )
    assert shown.code == 0
    for text in ("Holdfast demo", "holdfast jobs list --url sqlite:", "running", "just ended"):
        assert text in shown.out
    assert "jobs completed" in shown.out


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 30), (60, 20)])
def test_the_picture_fits(database: Database, clock: FakeClock, columns: int, rows: int):
    app = database.app(clock=clock)
    jobs = [running(app.engine, type="transcode_video") for _ in range(40)]
    failed = in_status(app.engine, Status.FAILED)
    record = Record()
    for job in jobs:
        record.add(Event(kind=EventKind.STARTED, job=job))
        record.add(Event(kind=EventKind.COMPLETED, job=job, result='{"entries":[1,2]}'))
    record.add(Event(kind=EventKind.FAILED, job=failed, error="E: \x1b[2J" + "long " * 50))
    record.add(Event(kind=EventKind.RETRYING, job=failed, error="E: no", retry_in=1.5))
    url = f"sqlite:///{tempfile.gettempdir()}/holdfast-demo-abcdefgh/jobs.db"
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        out = Console(
            file=nowhere, record=True, width=columns, height=rows, force_terminal=True, markup=False
        )
        out.print(Board(out, url, record).picture(app.stats(), jobs, clock.now()))
        lines = out.export_text().splitlines()
    assert len(lines) <= rows
    assert max(len(line) for line in lines) <= columns
    text = "\n".join(lines)
    assert "again in 1.5 s" in text
    assert "\x1b" not in text
