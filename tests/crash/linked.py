"""The application of chains and workflows whose workers are killed."""

import asyncio
from typing import Any

from holdfast import Context, Discard, Job
from tests.crash.tasks import app, witness

LINKS = 5

__all__ = ["app"]


@app.task
async def link(ctx: Context, chain: int, number: int) -> None:
    """A chain by hand."""
    witness.note("start", ctx.job.id, ctx.job.claim_no)
    if number + 1 < LINKS:
        ctx.enqueue(link, chain=chain, number=number + 1)
    await asyncio.sleep(0.002)
    witness.note("end", ctx.job.id, ctx.job.claim_no)


def next_link(job: Job, result: int) -> Any:
    given = job.payload
    return bound.call(chain=given["chain"], number=result) if result < LINKS else None


@app.task(then=next_link)
def bound(ctx: Context, chain: int, number: int) -> int:
    """A chain by `then=`."""
    witness.note("start", ctx.job.id, ctx.job.claim_no)
    witness.note("end", ctx.job.id, ctx.job.claim_no)
    return number + 1


@app.task(max_attempts=1)
async def node(ctx: Context, fails: bool) -> str:
    """Of a workflow; it must find what came before it."""
    witness.note("start", ctx.job.id, ctx.job.claim_no)
    for name, result in (await ctx.aresults()).items():
        if result not in (name, None):
            raise Discard(f"{name} gave {result!r}")
    await asyncio.sleep(0.002)
    witness.note("end", ctx.job.id, ctx.job.claim_no)
    if fails:
        raise Discard("as planned")
    return str(ctx.job.node)
