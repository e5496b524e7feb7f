"""What runs, and where it stands: for SIGUSR1."""

import asyncio
import io
import sys
import time
import traceback
from typing import Any

from holdfast.worker.worker import Worker


def print_stacks(worker: Worker) -> None:
    """To stderr: each running job with its stack."""
    text = io.StringIO()
    running = worker.executions()
    print(f"worker {worker.id}: {len(running)} jobs run", file=text)
    frames = sys._current_frames()
    for execution in running:
        age = time.monotonic() - execution.started
        print(f"\njob {execution.job.id} ({execution.job.type}), for {age:.1f} s", file=text)
        where = execution.where
        if isinstance(where, asyncio.Task):
            for line in traceback.format_list(_extract(where)):
                text.write(line)
        elif where in frames:
            text.write("".join(traceback.format_stack(frames[where])))
        else:
            print("  in a process of its own", file=text)
    sys.stderr.write(text.getvalue())
    sys.stderr.flush()


def _extract(task: "asyncio.Task[None]") -> traceback.StackSummary:
    """A coroutine's stack goes on in what it awaits."""
    frames = []
    step: Any = task.get_coro()
    while step is not None:
        frame = getattr(step, "cr_frame", None) or getattr(step, "gi_frame", None)
        if frame is None:
            break
        frames.append((frame, frame.f_lineno))
        step = getattr(step, "cr_await", None) or getattr(step, "gi_yieldfrom", None)
    return traceback.StackSummary.extract(iter(frames))
