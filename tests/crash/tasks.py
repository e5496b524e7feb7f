"""The application whose workers are killed. It writes a history of its runs."""

import asyncio
import os
import time
from pathlib import Path

from holdfast import Context, Event, Holdfast
from tests.support.history import HistoryWriter

app = Holdfast(
    os.environ["HOLDFAST_URL"],
    schema=os.environ.get("HOLDFAST_SCHEMA", "holdfast"),
    auto_migrate=True,
    backoff=0.1,
)
history = HistoryWriter(os.environ["HOLDFAST_TEST_HISTORY"])
gates = Path(os.environ["HOLDFAST_TEST_HISTORY"]).parent


@app.on("completed")
def accepted(event: Event) -> None:
    history.note("accepted", event.job.id, event.job.claim_no)


@app.task
async def short(ctx: Context, ms: int) -> None:
    history.note("start", ctx.job.id, ctx.job.claim_no)
    try:
        await asyncio.sleep(ms / 1000)
    finally:
        history.note("end", ctx.job.id, ctx.job.claim_no)


@app.task
def threaded(ctx: Context, ms: int) -> None:
    history.note("start", ctx.job.id, ctx.job.claim_no)
    time.sleep(ms / 1000)
    history.note("end", ctx.job.id, ctx.job.claim_no)


@app.task(timeout=None)
async def gated(ctx: Context) -> int:
    """Continues when the gate of its claim is opened."""
    history.note("start", ctx.job.id, ctx.job.claim_no)
    try:
        while not (gates / f"gate-{ctx.job.claim_no}").exists():
            await asyncio.sleep(0.02)
    finally:
        history.note("end", ctx.job.id, ctx.job.claim_no)
    return ctx.job.claim_no


@app.task(timeout=None)
def gated_thread(ctx: Context) -> int:
    """The same in a thread, which cannot be stopped."""
    history.note("start", ctx.job.id, ctx.job.claim_no)
    while not (gates / f"gate-{ctx.job.claim_no}").exists():
        time.sleep(0.02)
    history.note("end", ctx.job.id, ctx.job.claim_no)
    return ctx.job.claim_no


@app.task(timeout=None)
async def blocks(ctx: Context, seconds: float) -> None:
    """An async handler that blocks its event loop, as it should not."""
    history.note("start", ctx.job.id, ctx.job.claim_no)
    time.sleep(seconds)
    history.note("end", ctx.job.id, ctx.job.claim_no)


@app.task(timeout=None)
async def patient(ctx: Context, seconds: float) -> None:
    history.note("start", ctx.job.id, ctx.job.claim_no)
    try:
        await asyncio.sleep(seconds)
    finally:
        history.note("end", ctx.job.id, ctx.job.claim_no)


@app.task(timeout=None)
def stubborn(ctx: Context, seconds: float) -> None:
    """Ignores every request to stop."""
    history.note("start", ctx.job.id, ctx.job.claim_no)
    time.sleep(seconds)
    history.note("end", ctx.job.id, ctx.job.claim_no)


@app.task(max_attempts=1, timeout=1)
def stuck(ctx: Context) -> None:
    history.note("start", ctx.job.id, ctx.job.claim_no)
    time.sleep(600)


@app.task
async def poison(ctx: Context) -> None:
    """Kills its process."""
    history.note("start", ctx.job.id, ctx.job.claim_no)
    history.note("kill")
    os.abort()
