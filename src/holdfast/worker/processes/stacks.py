"""The stacks of running handlers, shown on SIGUSR1 and by the dashboard."""

import asyncio
import io
import logging
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

logger = logging.getLogger("holdfast.worker")
_LONGEST = 200_000  # characters that are stored


def print_stacks(worker: "Worker") -> None:
    """Write the stacks of a worker's runs to stderr."""
    print(render(worker), end="", file=sys.stderr, flush=True)


def store_stacks(worker: "Worker") -> None:
    """Write the stacks of a worker's runs to the database, for the operator who asked for them."""
    if worker.id is None:
        return
    try:
        worker.engine.tell_stacks(worker.id, render(worker)[:_LONGEST].replace("\x00", ""))
    except HoldfastError as problem:
        logger.warning("the stacks of the runs could not be stored: %s", problem)


def render(worker: "Worker") -> str:
    """Return each running job with its stack."""
    text = io.StringIO()
    running = worker.executions()
    print(f"worker {worker.id}: {len(running)} jobs run", file=text)
    frames = sys._current_frames()
    for execution in running:
        age = time.monotonic() - execution.started
        print(f"\njob {execution.job.id} ({execution.job.type}), for {age:.1f} s", file=text)
        where = execution.where
        if isinstance(where, asyncio.Task):
            text.writelines(_stack(where).format())
        elif where in frames:
            text.writelines(traceback.format_stack(frames[where]))
        else:
            print("  in a process of its own", file=text)
    return text.getvalue()


def _stack(task: "asyncio.Task[None]") -> traceback.StackSummary:
    """Return the stack of a coroutine, including the coroutines that it awaits."""
    frames = []
    step: Any = task.get_coro()
    while frame := getattr(step, "cr_frame", None) or getattr(step, "gi_frame", None):
        frames.append((frame, frame.f_lineno))
        step = getattr(step, "cr_await", None) or getattr(step, "gi_yieldfrom", None)
    return traceback.StackSummary.extract(iter(frames))
