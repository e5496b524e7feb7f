"""An application whose handlers freeze their whole process: they hold Python's interpreter lock (GIL),
so that no other thread of it can act."""

import asyncio
import ctypes
import fcntl
import os
import sqlite3
import sys
import time

from holdfast import Context, Holdfast, RunEnd
from tests.support.history import HistoryWriter

app = Holdfast(
    os.environ["HOLDFAST_URL"],
    schema=os.environ.get("HOLDFAST_SCHEMA", "holdfast"),
    auto_migrate=True,
    backoff=0.1,
    heartbeat=float(os.environ.get("HOLDFAST_HEARTBEAT", "1")),
)
history = HistoryWriter(os.environ["HOLDFAST_TEST_HISTORY"])


def hold_the_interpreter_lock() -> None:
    """Sleep for ten minutes with the lock: a call through PyDLL, unlike CDLL, keeps it."""
    ctypes.PyDLL(None).sleep(600)


def is_first_run(ctx: Context) -> bool:
    """Return whether this is the first run of its job, whose process a test kills."""
    return ctx.job.claim_no == 1


def failed(end: RunEnd) -> None:
    history.note("hook", end.job.id, end.job.claim_no)


def freeze_without_turn() -> None:
    """Freeze while no other thread of the process writes to SQLite: it would hold the turn to write,
    and the process would be killed for that."""
    if app.url.startswith("sqlite:"):
        file = os.open(path() + "-turn", os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        sys.setswitchinterval(600)  # from here on no other thread runs
        ctypes.PyDLL(None).flock(file, fcntl.LOCK_UN)
    hold_the_interpreter_lock()


@app.task(timeout=2, on_failure=failed)
def freeze(ctx: Context) -> None:
    history.note("start", ctx.job.id, ctx.job.claim_no)
    freeze_without_turn()


@app.task(timeout=2, on_failure=failed)
async def freeze_loop(ctx: Context) -> None:
    history.note("start", ctx.job.id, ctx.job.claim_no)
    freeze_without_turn()


def path() -> str:
    return os.environ["HOLDFAST_URL"].removeprefix("sqlite:///").partition("?")[0]


@app.task(timeout=None)
def freeze_with_turn(ctx: Context) -> None:
    """Freezes the first time while its process holds the turn to write."""
    file = os.open(path() + "-turn", os.O_RDWR)
    if ctx.job.claim_no == 1:
        fcntl.flock(file, fcntl.LOCK_EX)
    history.note("start", ctx.job.id, ctx.job.claim_no)
    if ctx.job.claim_no == 1:
        hold_the_interpreter_lock()


@app.task(timeout=None)
async def freeze_with_write_lock(ctx: Context) -> None:
    """Freezes the first time while its process holds SQLite's own write lock."""
    connection = sqlite3.connect(path(), timeout=60, isolation_level=None)
    if ctx.job.claim_no == 1:
        connection.execute("BEGIN IMMEDIATE")
    history.note("start", ctx.job.id, ctx.job.claim_no)
    if ctx.job.claim_no == 1:
        hold_the_interpreter_lock()


@app.task(timeout=None)
def wait_with_turn(ctx: Context) -> None:
    """Holds the turn the first time, and can be stopped from outside meanwhile."""
    file = os.open(path() + "-turn", os.O_RDWR)
    if ctx.job.claim_no == 1:
        fcntl.flock(file, fcntl.LOCK_EX)
    history.note("start", ctx.job.id, ctx.job.claim_no)
    if ctx.job.claim_no == 1:
        time.sleep(600)


@app.task(timeout=None)
def freeze_for_good(ctx: Context) -> None:
    """Freezes every process that it runs in, and never times out."""
    history.note("start", ctx.job.id, ctx.job.claim_no)
    hold_the_interpreter_lock()


@app.task(timeout=None)
def freeze_again(ctx: Context) -> None:
    """Waits to be killed the first time, and freezes the process in which it runs then."""
    history.note("start", ctx.job.id, ctx.job.claim_no)
    if is_first_run(ctx):
        time.sleep(600)
    hold_the_interpreter_lock()


@app.task(timeout=None)
def wait_once(ctx: Context) -> None:
    """Waits to be killed the first time, and ends the next time."""
    history.note("start", ctx.job.id, ctx.job.claim_no)
    if is_first_run(ctx):
        time.sleep(600)


@app.task(timeout=2)
async def wait_beside(ctx: Context) -> None:
    history.note("start", ctx.job.id, ctx.job.claim_no)
    await asyncio.sleep(600)


@app.task
def quick(ctx: Context) -> None:
    history.note("start", ctx.job.id, ctx.job.claim_no)


@app.task(timeout=None)
async def slow(ctx: Context, seconds: float) -> None:
    """Runs beside the freezing job, and has no deadline."""
    history.note("start", ctx.job.id, ctx.job.claim_no)
    await asyncio.sleep(seconds)


@app.task(timeout=None)
def wait_in_thread(ctx: Context, seconds: float) -> None:
    history.note("start", ctx.job.id, ctx.job.claim_no)
    time.sleep(seconds)
