"""Middleware: code around every enqueue and every run. Subclass, override what you need.

    class Timing(Middleware):
        def run(self, ctx, proceed):
            begin = time.monotonic()
            try:
                return proceed()
            finally:
                ctx.log.info("took %.3f s", time.monotonic() - begin)

        async def arun(self, ctx, proceed): ...      # the same, for `async def` handlers

    app = Holdfast(middleware=[Timing()])

The first middleware of the list is the outermost. Its exceptions count as those of the handler.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.jobs.job import Job, NewJob

if TYPE_CHECKING:
    from holdfast.tasks.context import Context

Insert = Callable[[Sequence[NewJob]], list[Job]]


class Middleware:
    """The base class, whose methods only call `proceed`."""

    def enqueue(self, jobs: Sequence[NewJob], proceed: Insert) -> list[Job]:
        """Wrap the insert of jobs, except in a caller's asynchronous transaction."""
        return proceed(jobs)

    def run(self, ctx: "Context", proceed: Callable[[], Any]) -> Any:
        """Wrap the run of a `def` handler."""
        return proceed()

    async def arun(self, ctx: "Context", proceed: Callable[[], Awaitable[Any]]) -> Any:
        """Wrap the run of an `async def` handler."""
        return await proceed()


def wrap_run(
    middleware: Sequence[Middleware], ctx: "Context", call: Callable[[], Any]
) -> Callable[[], Any]:
    for one in reversed(middleware):
        call = partial(one.run, ctx, call)
    return call


def wrap_arun(
    middleware: Sequence[Middleware], ctx: "Context", call: Callable[[], Awaitable[Any]]
) -> Callable[[], Awaitable[Any]]:
    for one in reversed(middleware):
        call = partial(one.arun, ctx, call)
    return call


def wrap_enqueue(middleware: Sequence[Middleware], insert: Insert) -> Insert:
    def around(one: Middleware, proceed: Insert) -> Insert:
        return lambda jobs: one.enqueue(jobs, proceed)

    for one in reversed(middleware):
        insert = around(one, insert)
    return insert
