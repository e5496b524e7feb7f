"""Tasks that write a row of the application in the transaction that ends their job, and whose process
is killed at a named point the first time."""

import os
import signal
import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg

from holdfast import Context, Job, RunEnd
from tests.crash.tasks import app, gates, history


def connect() -> Any:
    if app.url.startswith("sqlite:"):
        path = app.url.removeprefix("sqlite:///").partition("?")[0]
        return sqlite3.connect(path, timeout=30, isolation_level=None)
    return psycopg.connect(app.url, autocommit=True)


def write(job: Job, status: str, point: str, finish: Callable[[Any], None]) -> None:
    """Write the application's row and what `finish` writes in one transaction."""

    def reached(here: str) -> None:
        if here == point and not (gates / f"died-{job.id}").exists():
            (gates / f"died-{job.id}").touch()
            history.note("kill", job.id, job.claim_no)
            os.kill(os.getpid(), signal.SIGKILL)

    connection = connect()
    try:
        connection.execute("BEGIN IMMEDIATE" if app.url.startswith("sqlite:") else "BEGIN")
        reached("before the write")
        row = f"INSERT INTO ledger VALUES ('{job.id}', {job.claim_no}, '{status}')"
        connection.execute(row)
        reached("before the finish")
        finish(connection)
        reached("before the commit")
        connection.execute("COMMIT")
        reached("after the commit")
    finally:
        connection.close()


@app.task
def completes(ctx: Context, point: str) -> None:
    history.note("start", ctx.job.id, ctx.job.claim_no)
    write(ctx.job, "completed", point, lambda connection: ctx.complete(tx=connection))


def on_success(end: RunEnd) -> None:
    write(end.job, "completed", end.job.payload["point"], lambda c: end.finish(tx=c))


@app.task(on_success=on_success)
def succeeds(ctx: Context, point: str) -> None:
    history.note("start", ctx.job.id, ctx.job.claim_no)


def on_failure(end: RunEnd) -> None:
    write(end.job, "failed", end.job.payload["point"], lambda c: end.finish(tx=c))


@app.task(on_failure=on_failure)
def fails(ctx: Context, point: str) -> None:
    history.note("start", ctx.job.id, ctx.job.claim_no)
    raise ValueError("as it must")
