"""The scripts of `app.jobs` and `app.queues`, run on an engine without an application."""

from collections.abc import Sequence
from functools import partial

from holdfast.engine.engine import Engine
from holdfast.engine.postgres.claimer import PostgresClaimer
from holdfast.errors import KeyConflict
from holdfast.jobs import commands, log_lines
from holdfast.jobs import read as read_scripts
from holdfast.jobs.job import Attempt, Job, LogLine
from holdfast.jobs.rows import order_of_running


def claim_as(
    engine: Engine, queue: str, limit: int, *, worker: str, types: Sequence[str]
) -> list[Job]:
    """Claim like a worker, which repeats a claim while there may be more jobs."""
    fetch = partial(engine.claimer.fetch, queue, worker=worker, types=types)
    jobs, _, _ = fetch(limit)
    if len(jobs) < limit:
        if isinstance(engine.claimer, PostgresClaimer):
            engine.claimer.cursor.forget()  # it may put off a look at everything, by the clock
        jobs = sorted([*jobs, *fetch(limit - len(jobs)).jobs], key=order_of_running)
    return jobs


def cancel(engine: Engine, ids: Sequence[str], *, keep: float) -> list[str]:
    return engine.run(lambda: commands.cancel(engine.dialect, ids, keep), write=True)


def retry(engine: Engine, ids: Sequence[str]) -> list[str]:
    """Retry jobs, one by one if the batch conflicts with a concurrent enqueue of the same key."""
    try:
        return engine.run(lambda: commands.retry(engine.dialect, ids), write=True)
    except KeyConflict:
        if len(ids) == 1:
            return []
        return [done for id in ids for done in retry(engine, [id])]


def delete(engine: Engine, ids: Sequence[str]) -> list[str]:
    return engine.run(lambda: commands.delete(engine.dialect, ids), write=True)


def pause(engine: Engine, queue: str, paused: bool) -> None:
    engine.run(lambda: commands.pause(engine.dialect, queue, paused), write=True)


def attempts(engine: Engine, id: str) -> list[Attempt]:
    return engine.run(lambda: read_scripts.attempts(engine.dialect, id), write=False)


def logs(
    engine: Engine,
    id: str,
    *,
    after: log_lines.Place | None = None,
    limit: int = 1000,
    newest: bool = False,
) -> list[LogLine]:
    return engine.run(lambda: log_lines.logs(engine.dialect, id, after, limit, newest), write=False)
