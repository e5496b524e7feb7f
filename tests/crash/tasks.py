"""The application whose workers are killed. It writes down what it does."""

import asyncio
import os
import time
from pathlib import Path

from holdfast import Context, Event, Holdfast
from tests.support.witness import Witness

app = Holdfast(
    os.environ["HOLDFAST_URL"],
    schema=os.environ.get("HOLDFAST_SCHEMA", "holdfast"),
    auto_migrate=True,
    backoff=0.1,
)
witness = Witness(os.environ["HOLDFAST_WITNESS"])
gates = Path(os.environ["HOLDFAST_WITNESS"]).parent


@app.on("completed")
def accepted(event: Event) -> None:
    witness.note("accepted", event.job.id, event.job.claim_no)


@app.task
async def short(ctx: Context, ms: int) -> None:
    witness.note("start", ctx.job.id, ctx.job.claim_no)
    try:
        await asyncio.sleep(ms / 1000)
    finally:
        witness.note("end", ctx.job.id, ctx.job.claim_no)


@app.task
def threaded(ctx: Context, ms: int) -> None:
    witness.note("start", ctx.job.id, ctx.job.claim_no)
    time.sleep(ms / 1000)
    witness.note("end", ctx.job.id, ctx.job.claim_no)


@app.task(timeout=None)
async def gated(ctx: Context) -> int:
    """Goes on when the gate of its claim is opened."""
    witness.note("start", ctx.job.id, ctx.job.claim_no)
    try:
        while not (gates / f"gate-{ctx.job.claim_no}").exists():
            await asyncio.sleep(0.02)
    finally:
        witness.note("end", ctx.job.id, ctx.job.claim_no)
    return ctx.job.claim_no


@app.task(timeout=None)
def gated_thread(ctx: Context) -> int:
    """The same in a thread, which nobody can stop."""
    witness.note("start", ctx.job.id, ctx.job.claim_no)
    while not (gates / f"gate-{ctx.job.claim_no}").exists():
        time.sleep(0.02)
    witness.note("end", ctx.job.id, ctx.job.claim_no)
    return ctx.job.claim_no


@app.task(timeout=None)
async def blocks(ctx: Context, seconds: float) -> None:
    """An async handler that blocks its event loop, as it should not."""
    witness.note("start", ctx.job.id, ctx.job.claim_no)
    time.sleep(seconds)
    witness.note("end", ctx.job.id, ctx.job.claim_no)


@app.task(timeout=None)
async def patient(ctx: Context, seconds: float) -> None:
    witness.note("start", ctx.job.id, ctx.job.claim_no)
    try:
        await asyncio.sleep(seconds)
    finally:
        witness.note("end", ctx.job.id, ctx.job.claim_no)


@app.task(timeout=None)
def stubborn(ctx: Context, seconds: float) -> None:
    """Deaf to every request to stop."""
    witness.note("start", ctx.job.id, ctx.job.claim_no)
    time.sleep(seconds)
    witness.note("end", ctx.job.id, ctx.job.claim_no)


@app.task(max_attempts=1, timeout=1)
def stuck(ctx: Context) -> None:
    witness.note("start", ctx.job.id, ctx.job.claim_no)
    time.sleep(600)


@app.task
async def pill(ctx: Context) -> None:
    """Kills its process."""
    witness.note("start", ctx.job.id, ctx.job.claim_no)
    witness.note("kill")
    os.abort()
