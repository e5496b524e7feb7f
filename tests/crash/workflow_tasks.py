"""The application of chains and workflows whose workers are killed."""

import asyncio
from typing import Any

from holdfast import Context, Discard, Job
from tests.crash.tasks import app, history

LINKS = 5

__all__ = ["app"]


@app.task
async def link(ctx: Context, chain: int, number: int) -> None:
    """A chain made by ctx.enqueue."""
    history.note("start", ctx.job.id, ctx.job.claim_no)
    if number + 1 < LINKS:
        ctx.enqueue(link, chain=chain, number=number + 1)
    await asyncio.sleep(0.002)
    history.note("end", ctx.job.id, ctx.job.claim_no)


def next_link(job: Job, result: int) -> Any:
    given = job.payload
    return chained.call(chain=given["chain"], number=result) if result < LINKS else None


@app.task(then=next_link)
def chained(ctx: Context, chain: int, number: int) -> int:
    """A chain made by `then=`."""
    history.note("start", ctx.job.id, ctx.job.claim_no)
    history.note("end", ctx.job.id, ctx.job.claim_no)
    return number + 1


@app.task(max_attempts=1)
async def node(ctx: Context, fails: bool) -> str:
    """A job of a workflow, which must find the results of its parents."""
    history.note("start", ctx.job.id, ctx.job.claim_no)
    for name, result in (await ctx.aresults()).items():
        if result not in (name, None):
            raise Discard(f"{name} gave {result!r}")
    await asyncio.sleep(0.002)
    history.note("end", ctx.job.id, ctx.job.claim_no)
    if fails:
        raise Discard("as planned")
    return str(ctx.job.node)
