"""Tasks under limits, and one that recurs: the application of `limits.py` and of `recurring.py`."""

import asyncio

from holdfast import Context, Limit
from tests.crash.tasks import app, history

API = Limit(4, name="api")


async def recorded(ctx: Context, tags: str, ms: int) -> None:
    job = ctx.job
    worker = job.worker_id or "-"
    history.note("start", job.id, job.claim_no, worker=worker, tags=tags)
    try:
        await asyncio.sleep(ms / 1000)
    finally:
        history.note("end", job.id, job.claim_no, worker=worker, tags=tags)


@app.task(concurrency=Limit(1, per="key"))
async def one(ctx: Context, key: int, ms: int) -> None:
    await recorded(ctx, f"one={key}", ms)


@app.task(concurrency=Limit(3, per="key"))
async def three(ctx: Context, key: int, ms: int) -> None:
    await recorded(ctx, f"three={key}", ms)


@app.task(concurrency=Limit(17, per="key"))
async def seventeen(ctx: Context, key: int, ms: int) -> None:
    await recorded(ctx, f"seventeen={key}", ms)


@app.task(concurrency=5)
async def whole(ctx: Context, key: int, ms: int) -> None:
    await recorded(ctx, "whole", ms)


@app.task(concurrency=API)
async def reads(ctx: Context, key: int, ms: int) -> None:
    await recorded(ctx, "api", ms)


@app.task(concurrency=[API, Limit(2, per="key")])
async def writes(ctx: Context, key: int, ms: int) -> None:
    """Under both kinds of limits."""
    await recorded(ctx, f"api,writes={key}", ms)


@app.task
async def recurs(ctx: Context, ms: int) -> None:
    """Writes the due time of each run to the history."""
    due = ctx.job.due_at
    assert due is not None
    await recorded(ctx, f"{due.timestamp():.6f}", ms)
