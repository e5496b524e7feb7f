"""Holdfast's part of the worker comparisons: the application of `holdfast worker`, and the commands of
bench/peers/script.py."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.peers import script
from holdfast import Holdfast
from holdfast.worker.housekeeping.pruning import Pruner

MANY = 1000  # jobs of one enqueue_many

if switch := os.environ.get("BENCH_PRUNE_WHILE"):  # a file: the worker prunes while it exists
    prune = Pruner.tick
    setattr(Pruner, "tick", lambda own: prune(own) if Path(switch).exists() else 0.05)  # noqa: B010

app = Holdfast()  # $HOLDFAST_URL


@app.task
async def noop() -> None:
    pass


@app.task
async def note(sent: int) -> None:
    script.note(sent)


def setup() -> None:
    app.migrate()


def fill(count: int) -> None:
    """Enqueue into a paused queue, and resume it when a line is read from stdin."""
    app.queues.pause("default")
    for begin in range(0, count, MANY):
        jobs = noop.enqueue_many([{}] * min(MANY, count - begin))
    script.ready(jobs[-1].id)
    app.queues.resume("default")


def recur(count: int) -> None:
    """Insert recurring jobs, none of which is due today."""
    start = datetime.now(UTC) + timedelta(days=1)
    for begin in range(0, count, MANY):
        rows = [
            noop.using(key=str(number), every="1d", start=start).recurring((), {})
            for number in range(begin, begin + MANY)
        ]
        app.engine.insert(rows, notify=False)


def send(count: int, seed: int) -> None:
    noop.enqueue()
    for _ in script.pauses(count, seed):
        sent = time.time_ns()
        note.enqueue(sent=sent)
        script.acked(sent)


if __name__ == "__main__":
    with app:
        script.run(setup=setup, fill=fill, send=send, recur=recur)
