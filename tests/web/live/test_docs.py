"""docs/guides/live.md: its program follows a real server, mounted; its page follows a real link."""

import re
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from holdfast import Context, Holdfast
from holdfast.access import Access
from holdfast.web import dashboard, follow_link
from holdfast.web.live.frames import NAMES
from tests.conftest import Database
from tests.support.waiting import until
from tests.web.serving import PATIENCE, Sse
from tests.worker.conftest import quick

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "live.md").read_text()


def block(kind: str) -> str:
    [found] = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


class Stop(Exception):
    pass


def follow(app: Holdfast, host: str) -> list[tuple[Any, ...]]:
    """What the program of the page prints, until a job is complete."""
    printed: list[tuple[Any, ...]] = []

    def note(*words: Any) -> None:
        printed.append(words)
        if words[1] == "hello":
            app.enqueue("export", {"user": 7})
        if words[1] == "job:complete":
            raise Stop

    code = block("py").replace("wss://ops.example.com", f"ws://{host}")
    names = {"TOKEN": Access(app).create("x", "viewer")[1], "print": note}
    try:
        exec(compile(code, "live.md", "exec"), names)
    except Stop:
        return printed
    raise AssertionError("it ended by itself")


def test_the_program_and_the_page_follow_a_mounted_server(
    database: Database, tmp_path: Path
) -> None:
    app = quick(database, tmp_path)

    @app.task(name="export")
    def export(ctx: Context, user: int) -> str:
        ctx.progress(50, "half")
        return "x"

    app.migrate()
    mounted, host = dashboard(app), FastAPI()
    host.mount("/jobs", mounted)
    with socket.create_server(("127.0.0.1", 0)) as listening, app.worker():
        name = f"127.0.0.1:{listening.getsockname()[1]}"
        runner = uvicorn.Server(uvicorn.Config(host, log_level="warning"))
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            until(lambda: runner.started)
            printed = follow(app, name)
            assert printed[-1][2]["result"] == "x"
            job = app.enqueue("export", {"user": 7})
            link = follow_link(app, job, base="/jobs")
            with httpx.stream("GET", f"http://{name}{link}", timeout=PATIENCE) as response:
                frames = Sse(response).rest()
        finally:
            mounted.state.web.close()
            runner.should_exit = True
            thread.join(PATIENCE)
    heard = set(re.findall(r'on\("([^"]+)"', block("js")))
    assert heard <= set(NAMES.values())
    assert frames[-1]["event"] == "job:complete"
    assert {"job:progress", "job:complete", "job:failed", "job:cancelled"} == heard


def test_the_page_obeys_its_own_policy() -> None:
    page, script = block("html"), block("js")
    assert "'unsafe" not in page
    assert re.findall(r"<script([^>]*)>(.*?)</script>", page) == [(' src="follow.js" defer', "")]
    assert not re.search(r"\son\w+=|<style|style=|javascript:", page)
    assert "innerHTML" not in script
    assert len((page + script).splitlines()) <= 20
