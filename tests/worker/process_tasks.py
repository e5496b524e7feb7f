"""Tasks with a process of their own. Workers and their child processes import this module; the
environment says where the database is."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Context, Discard, Holdfast, Middleware, RunEnd, Snooze

URL = os.environ["HOLDFAST_TEST_URL"]
FOLDER = Path(os.environ["HOLDFAST_TEST_FOLDER"])
SCHEMA = os.environ["HOLDFAST_TEST_SCHEMA"]
TABLE = "own" if URL.startswith("sqlite") else f"{SCHEMA}.own"  # the application's


class Stamp(Middleware):
    """Only jobs that ask for it are changed."""

    def run(self, ctx: Context, proceed: Any) -> Any:
        result = proceed()
        return {"wrapped": result, "pid": os.getpid()} if ctx.job.type == "wrapped" else result


app = Holdfast(
    URL,
    schema=SCHEMA,
    backoff=0.05,
    poll_interval=0.2,
    workdir=FOLDER / "work",
    middleware=[Stamp()],
)
ends: list[RunEnd] = []  # the arguments of hooks, which run in the worker's own process


@dataclass
class Size:
    width: int
    pause: timedelta = timedelta(seconds=1)


@app.task(process=True)
def where(size: Size) -> dict[str, Any]:
    return {"pid": os.getpid(), "doubled": size.width * 2, "pause": size.pause.total_seconds()}


@app.task(process=True)
def wrapped() -> str:
    return "inside"


@app.task
def after(n: int) -> int:
    return n


@app.task(process=True)
def speaks(ctx: Context) -> None:
    ctx.log.debug("not kept")
    ctx.log.info("hello %d", 7)
    ctx.log.error("a \ud800 surrogate")


@app.task(process=True, max_attempts=1)
def speaks_and_dies(ctx: Context) -> None:
    ctx.log.info("last words")
    os._exit(3)


@app.task(process=True)
def busy_context(ctx: Context, n: int) -> dict[str, Any]:
    (ctx.workdir / "scratch").write_text("x")
    ctx.progress(100 * n / 4, f"step {n}")
    ctx.enqueue(after, n=n)
    return {"workdir": str(ctx.workdir), "token": ctx.token, "attempt": ctx.attempt}


@app.task(process=True, max_attempts=2)
def fails(ctx: Context) -> None:
    ctx.enqueue(after, n=0)
    raise ValueError(f"attempt {ctx.attempt}")


@app.task(process=True)
def discards() -> None:
    raise Discard("no use")


@app.task(process=True)
def snoozes(ctx: Context) -> int:
    if ctx.job.claim_no == 1:
        raise Snooze("50ms")
    return ctx.attempt


@app.task(process=True)
def returns_no_json() -> Any:
    return object()


@app.task(process=True, max_attempts=1)
def exits() -> None:
    sys.exit(3)


@app.task(process=True, on_failure=ends.append)
def crashes() -> None:
    os._exit(9)


@app.task(process=True)
def crashes_once(ctx: Context) -> str:
    (ctx.workdir / "left").write_text("x")
    if ctx.job.crashes == 0:
        os._exit(9)
    return "done"


@app.task(process=True, max_attempts=1)
def starts_children(ctx: Context) -> None:
    """Starts two processes, one of which ignores SIGTERM, writes all three ids, and never returns."""
    pids = [os.getpid()]
    for trap in ("", "trap '' TERM; "):
        command = ["sh", "-c", f"{trap}echo ready; exec sleep 600"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()  # its signals are set
        pids.append(child.pid)
    (ctx.workdir / "scratch").write_text("x")
    _write_file("pids", " ".join(map(str, pids)))
    try:
        time.sleep(600)
    finally:
        _write_file("cleaned-up", "yes")


@app.task(process=True, max_attempts=1)
def stubborn(ctx: Context) -> None:
    """Ignores every request to end."""
    (ctx.workdir / "scratch").write_text("x")
    _write_file("pids", str(os.getpid()))
    while True:
        with suppress(BaseException):
            time.sleep(600)


@app.task(process=True, max_attempts=1)
def closes_descriptors(then: str) -> None:
    """Closes all descriptors, among them the connection to the worker."""
    os.closerange(3, 4096)
    if then == "raise":
        raise ValueError("after that")
    if then == "reopen":  # files get the numbers that are free
        for _ in range(20):
            os.open(FOLDER / "any", os.O_RDWR | os.O_CREAT)
    while then == "go on":
        time.sleep(600)


@app.task(process=True, max_attempts=1)
def dies_with_a_survivor() -> None:
    """A process that it forked, outside of its group, keeps its connection open."""
    if os.fork() == 0:
        os.setsid()
        with (FOLDER / "survivors").open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(600)
        os._exit(0)
    os._exit(3)


def _write_file(name: str, text: str) -> None:
    """Write a file for the test atomically."""
    (FOLDER / "draft").write_text(text)
    (FOLDER / "draft").rename(FOLDER / name)


@app.task(process=True, on_success=ends.append, on_failure=ends.append)
def completes(ctx: Context, commits_at: int, linger: float = 0.0) -> str:
    """Writes a row of its own and this job's end on one transaction."""
    if URL.startswith("sqlite"):
        mine: Any = sqlite3.connect(URL.removeprefix("sqlite:///"), timeout=30)
    else:
        mine = psycopg.connect(URL)
    mine.execute(f"INSERT INTO {TABLE} VALUES ('mine')")
    ctx.enqueue(after, n=5)
    ctx.complete("by the transaction", tx=mine)
    if ctx.attempt >= commits_at:
        mine.commit()
    mine.close()
    time.sleep(linger)
    return "ignored"


# Tasks without a process of their own, which get one when their workers have died.


@app.task
def plain(n: int) -> int:
    return os.getpid()


@app.task
async def asynchronous(n: int) -> int:
    await asyncio.sleep(0)
    return os.getpid()


@app.task
def plain_poison(n: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@app.task
async def asynchronous_poison(n: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@app.task
async def asynchronous_sleep(n: int) -> None:
    await asyncio.sleep(600)


@app.task(process=True)
def patient(ctx: Context) -> None:
    """Creates a file when it has begun, and waits for another."""
    (FOLDER / f"pid-{ctx.job.claim_no}").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.02)
