"""Processes that fork: an application that has opened nothing may be used by every child; one that has
says which call opened it. Each case runs in a program of its own: pytest's process has threads."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Database
from tests.support.jobs import new
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
CHILDREN = 4
EACH = 25  # jobs, as MODULE has it

# `app`, as a module makes it when it is imported.
MODULE = """
import asyncio, json, multiprocessing, os, sys
from holdfast import Holdfast, UsedAfterFork

app = Holdfast(os.environ["FORK_URL"], schema=os.environ["FORK_SCHEMA"])


@app.task
def send(n: int) -> None: ...


def child(answers=None):
    told = []
    try:
        told = [send.enqueue(n=n).id for n in range(EACH)]
        told += [asyncio.run(send.aenqueue(n=n)).id for n in range(3)]
    except UsedAfterFork as problem:
        told = str(problem)
    if answers is None:
        return told
    answers.put(told)


EACH = 25
"""

FORK = """
import shop

PARENT
children = []
for _ in range(CHILDREN):
    reading, writing = shop.os.pipe()
    pid = shop.os.fork()
    if pid == 0:
        shop.os.close(reading)
        with shop.os.fdopen(writing, "w") as out:
            out.write(shop.json.dumps(shop.child()))
        shop.app.close()
        shop.os._exit(0)
    shop.os.close(writing)
    children.append((pid, reading))
told = []
for pid, reading in children:
    with shop.os.fdopen(reading) as answer:
        told.append(shop.json.loads(answer.read()))
    assert shop.os.waitpid(pid, 0)[1] == 0
own = [shop.send.enqueue(n=1).id]
print(shop.json.dumps([told, own]))
shop.app.close()
"""

MULTIPROCESSING = """
import shop

if __name__ == "__main__":
    PARENT
    context = shop.multiprocessing.get_context("METHOD")
    answers = context.Queue()
    children = [context.Process(target=shop.child, args=(answers,)) for _ in range(CHILDREN)]
    for child in children:
        child.start()
    told = [answers.get(timeout=60) for _ in children]
    for child in children:
        child.join(60)
    print(shop.json.dumps([told, [shop.send.enqueue(n=1).id]]))
    shop.app.close()
"""


def environment(database: Database, folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "FORK_URL": database.url,
        "FORK_SCHEMA": database.schema,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")]),
        "PYTHONWARNINGS": "ignore::DeprecationWarning",
        "HOME": str(folder),  # newer versions of gunicorn keep a socket there
    }


def run(database: Database, folder: Path, program: str, **words: str) -> Any:
    (folder / "shop.py").write_text(MODULE)
    for word, text in {"PARENT": "pass", "CHILDREN": str(CHILDREN), **words}.items():
        program = program.replace(word, text)
    (folder / "main.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(folder / "main.py")],
        env=environment(database, folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


PROGRAMS = {
    "os.fork": (FORK, ""),
    "multiprocessing, fork": (MULTIPROCESSING, "fork"),
    "multiprocessing, forkserver": (MULTIPROCESSING, "forkserver"),
}


@pytest.mark.parametrize("how", PROGRAMS)
def test_an_application_without_open_connections_may_be_forked(
    database: Database, tmp_path: Path, how: str
) -> None:
    """Every child and the parent enqueue; no two ids are the same."""
    program, method = PROGRAMS[how]
    told, own = run(database, tmp_path, program, METHOD=method)
    ids = [id for child in told for id in child] + own
    assert len(ids) == CHILDREN * (EACH + 3) + 1
    assert len(set(ids)) == len(ids)
    assert {job.id for job in database.app().jobs.search()} == set(ids)


@pytest.mark.parametrize("call", ["shop.send.enqueue(n=0)", "shop.app.jobs.count()"])
def test_a_forked_application_names_the_call_that_opened_it(
    database: Database, tmp_path: Path, call: str
) -> None:
    """And what the children do does not harm the parent's connections."""
    told, own = run(database, tmp_path, FORK, PARENT=call)
    name = call.rpartition(".")[2].partition("(")[0]
    for text in told:
        assert f"({name}() at {tmp_path}/main.py:4)" in text
        assert "make a new Holdfast in each child" in text
    assert len(own) == 1


def test_a_forked_application_names_an_awaited_call_that_opened_it(
    database: Database, tmp_path: Path
) -> None:
    told, _ = run(database, tmp_path, FORK, PARENT="shop.asyncio.run(shop.send.aenqueue(n=0))")
    assert all("in thread 'holdfast" in text for text in told)


def test_a_failed_connection_does_not_count_as_opened(database: Database, tmp_path: Path) -> None:
    """Threads of the asynchronous calls, which the children do not have, are made anew there."""
    parent = textwrap.dedent(
        """
        engine = shop.app.engine
        if hasattr(engine, "path"):
            place, name = engine, "path"
            nowhere = engine.path.parent / "nowhere" / "jobs.db"
        else:
            place, name = engine._connector, "_url"
            nowhere = "postgresql://127.0.0.1:9/nowhere"
        there = getattr(place, name)
        setattr(place, name, nowhere)
        for call in (lambda: shop.send.enqueue(n=0), lambda: shop.asyncio.run(shop.send.aenqueue(n=0))):
            try:
                call()
            except Exception as problem:
                assert type(problem).__name__ == "DatabaseUnavailable", problem
            else:
                raise AssertionError("it was opened")
        setattr(place, name, there)
        """
    )
    told, _ = run(database, tmp_path, FORK, PARENT=parent)
    assert [len(ids) for ids in told] == [EACH + 3] * CHILDREN


# gunicorn --preload

SERVER = """
import os
from holdfast import Holdfast, HoldfastError

app = Holdfast(os.environ["FORK_URL"], schema=os.environ["FORK_SCHEMA"])


@app.task
def send(n: int) -> None: ...


PRELOADED = 1
if os.environ.get("FORK_EARLY"):
    app.jobs.count()


def serve(environ, start_response):
    try:
        body = f"{os.getpid()} {send.enqueue(n=1).id}"
        start_response("200 OK", [("Content-Type", "text/plain")])
    except HoldfastError as problem:
        body = f"{type(problem).__name__}: {problem}"
        start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
    return [body.encode()]
"""


@contextmanager
def gunicorn(database: Database, folder: Path, *options: str, **more: str) -> Iterator[Path]:
    (folder / "server.py").write_text(SERVER)
    at = folder / "s"
    command = [
        *(sys.executable, "-m", "gunicorn", "--preload", "--workers", "3"),
        *("--bind", f"unix:{at}", *options, "server:serve"),
    ]
    with (folder / "gunicorn.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment(database, folder) | more, cwd=folder, stdout=log, stderr=log
        )
    try:
        until(lambda: process.poll() is not None or _answers(at), "gunicorn", patience=60)
        assert process.poll() is None, (folder / "gunicorn.log").read_text()
        yield at
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _answers(at: Path) -> bool:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(at))
        return True
    return False


def ask(at: Path) -> tuple[int, str]:
    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(60)
    connection.sock.connect(str(at))
    try:
        connection.request("GET", "/", headers={"Connection": "close"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("threads", [(), ("--threads", "4")])
def test_gunicorn_preload_works(
    database: Database, tmp_path: Path, threads: tuple[str, ...]
) -> None:
    pids: set[str] = set()
    ids: list[str] = []
    with gunicorn(database, tmp_path, *threads) as at:
        deadline = time.monotonic() + 60
        while (len(pids) < 2 or len(ids) < 60) and time.monotonic() < deadline:
            status, body = ask(at)
            assert status == 200, body
            pids.add(body.split()[0])
            ids.append(body.split()[1])
    assert len(pids) >= 2
    assert len(set(ids)) == len(ids)
    assert {job.id for job in database.app().jobs.search()} == set(ids)


def test_gunicorn_preload_of_a_module_that_uses_the_database_is_refused(
    database: Database, tmp_path: Path
) -> None:
    with gunicorn(database, tmp_path, FORK_EARLY="yes") as at:
        status, body = ask(at)
    line = SERVER.splitlines().index("    app.jobs.count()") + 1
    assert status == 503
    assert f"(count() at {tmp_path}/server.py:{line})" in body


ORPHAN = """
import os, sys, time
from holdfast import Holdfast

app = Holdfast(sys.argv[1])
app.enqueue("t")
turns = app.engine._open().turns
if os.fork() == 0:
    os.write(1, b"%d\\n" % os.getpid())  # in one step: two processes write to this pipe
    time.sleep(600)
with turns:
    os.write(1, b"taken\\n")
    time.sleep(600)
"""


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_forked_child_does_not_keep_the_write_turn_of_a_killed_parent(
    database: Database,
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, database.url], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    told = sorted(parent.stdout.readline().strip() for _ in range(2))
    child = int(told[0])
    assert told[1] == "taken"
    parent.kill()
    parent.wait()
    try:
        assert database.engine().insert([new()])[0].created
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()
