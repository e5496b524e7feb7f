"""Procrastinate on psycopg, with as many jobs at a time as its connections carry."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]

from bench.peers import script

CONCURRENCY, CONNECTIONS = 100, 20


async def noop() -> None:
    pass


async def note(sent: int) -> None:
    script.note(sent)


def opened(act: Callable[..., Awaitable[None]]) -> script.Command:
    """Run a command with an open application."""

    async def run(*numbers: int) -> None:
        connector = PsycopgConnector(conninfo=script.url(), min_size=2, max_size=CONNECTIONS)
        app = App(connector=connector)
        app.task(name="noop")(noop)
        app.task(name="note")(note)
        async with app.open_async():
            await act(app, *numbers)

    return lambda *numbers: asyncio.run(run(*numbers))


async def setup(app: Any) -> None:
    await app.schema_manager.apply_schema_async()


async def work(app: Any) -> None:
    await app.run_worker_async(concurrency=CONCURRENCY)


async def fill(app: Any, count: int) -> None:
    async with await psycopg.AsyncConnection.connect(script.url()) as connection:
        deferred = app.tasks["noop"].configure(connection=connection)
        ids = await deferred.batch_defer_async(*[{}] * count)
        script.ready(max(ids))
        await connection.commit()


async def send(app: Any, count: int, seed: int) -> None:
    await app.tasks["noop"].defer_async()
    for _ in script.pauses(count, seed):
        sent = time.time_ns()
        await app.tasks["note"].defer_async(sent=sent)
        script.acked(sent)


if __name__ == "__main__":
    script.run(setup=opened(setup), work=opened(work), fill=opened(fill), send=opened(send))
