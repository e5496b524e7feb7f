"""`app.jobs.wait_for(...)`: wait until a job has ended, and return its result.

One thread of the process follows events for all callers that wait. Each caller also reads the job's row
at growing intervals: another process writes events only from a second after the first follower came.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from pydantic import ValidationError

from holdfast.engine.engine import Engine
from holdfast.engine.steps import Runner
from holdfast.errors import InvalidArguments, InvalidInput, JobFailed, JobNotFound
from holdfast.events.event import JobEvent
from holdfast.events.feed import Feed
from holdfast.jobs.job import FINISHED, Job, Status
from holdfast.tasks.task import Task

logger = logging.getLogger("holdfast")

FIRST, LONGEST, GROWTH = 0.05, 1.0, 1.5  # seconds between two reads of the row
_LINGER = 5.0  # seconds that the thread stays after the last caller has left

Wake = Callable[[JobEvent], None]


class Waiters:
    """The callers in this process that wait for jobs, and the thread that wakes them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Wake]] = {}
        self._thread: threading.Thread | None = None
        self._feed: Feed | None = None
        self._closed = False

    @contextmanager
    def waiting(self, id: str, wake: Wake) -> Iterator[None]:
        """Inside the block, `wake` is called from another thread when the job has ended."""
        with self._lock:
            self._waiting.setdefault(id, []).append(wake)
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(
                    target=self._follow, name="holdfast-results", daemon=True
                )
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._waiting[id].remove(wake)
                if not self._waiting[id]:
                    del self._waiting[id]

    def _follow(self) -> None:
        try:
            feed = Feed(self._engine, None, None, lambda event: event.status in FINISHED)
            with self._lock:
                self._feed = feed
            try:
                while not self._closed:
                    events = feed.take(_LINGER)
                    with self._lock:
                        if not events and not self._waiting:
                            self._thread = None
                            return
                        calls = [
                            (wake, event)
                            for event in events
                            for wake in self._waiting.get(event.job_id, ())
                        ]
                    for wake, event in calls:
                        wake(event)
            finally:
                with self._lock:
                    if self._feed is feed:  # a thread that began meanwhile has one of its own
                        self._feed = None
                feed.close()
        except Exception as problem:  # callers that wait read their rows anyway
            logger.debug("events cannot be followed: %s", problem)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            feed, thread = self._feed, self._thread
        if feed is not None:
            feed.stop()
        if thread is not None:
            thread.join(timeout=10.0)


class ResultWaiter:
    """Waits for jobs and decodes their results."""

    def __init__(self, runner: Runner, tasks: Mapping[str, Task[Any, Any]]) -> None:
        self._runner = runner
        self._tasks = tasks
        self._waiters = Waiters(runner.engine)
        runner.at_close(self._waiters.close)

    def wait_for(self, id: str, timeout: float | None) -> Any:
        """Wait for a job and return its result, as `app.jobs.wait_for` does, which has checked the
        parameters."""
        woken = threading.Event()
        wait = _Wait(id, timeout, woken.set)
        if wait.is_over(self._look(id)):
            return self._answer(wait)
        with self._waiters.waiting(id, wait.ended):
            while not wait.is_over(self._look(id)):
                woken.wait(wait.pause())
                woken.clear()
        return self._answer(wait)

    async def await_for(self, id: str, timeout: float | None) -> Any:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        wait = _Wait(id, timeout, wake)
        look = partial(self._runner.hop, partial(self._look, id))
        if wait.is_over(await look()):
            return self._answer(wait)
        with self._waiters.waiting(id, wait.ended):
            while not wait.is_over(await look()):
                pause = wait.pause()
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), pause)
                woken.clear()
        return self._answer(wait)

    def _look(self, id: str) -> Job | None:
        return next(iter(self._runner.engine.get([id])), None)

    def _answer(self, wait: "_Wait") -> Any:
        job, event = wait.job, wait.event
        ended = job or event
        if ended is None:
            raise AssertionError("is_over() was not true")
        if ended.status is not Status.COMPLETED:
            how = "failed" if ended.status is Status.FAILED else "was cancelled"
            because = f": {ended.error}" if ended.error else ""
            raise JobFailed(f"job {wait.id} ({ended.type}) {how}{because}", job)
        if job is not None:
            text = job.body.result if job.body is not None else None
        else:
            text = json.dumps(ended.result)
        if text is None:
            return None
        task = self._tasks.get(ended.type)
        if task is None:
            return json.loads(text)
        try:
            return task.result.decode(text)
        except ValidationError as problem:
            raise InvalidArguments(
                f"the result of job {wait.id} does not fit what task {ended.type!r} returns now "
                f"({problem}); app.jobs.get(id).result has it as JSON"
            ) from None


class _Wait:
    """The state of one call of `wait_for`: decides when the call returns, and does no I/O."""

    def __init__(self, id: str, timeout: float | None, wake: Callable[[], object]) -> None:
        self.id = id
        self.job: Job | None = None
        self.event: JobEvent | None = None  #: its last event, if that came first
        self._wake = wake
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._pause = FIRST

    def ended(self, event: JobEvent) -> None:
        self.event = event
        self._wake()

    def is_over(self, job: Job | None) -> bool:
        self.job = job
        if job is None:
            if self.event is not None:  # it ended, and was removed since
                return True
            raise JobNotFound(
                f"no job has the id {self.id}: it was never made, or deleted, or pruned"
            )
        if job.schedule is not None:
            raise InvalidInput(
                f"job {self.id} recurs, and never ends: follow its runs with "
                f"app.events(job={self.id!r})"
            )
        return job.status in FINISHED

    def pause(self) -> float:
        """Return the seconds until the row is read again, unless an event comes first. Raises
        TimeoutError."""
        pause, self._pause = self._pause, min(LONGEST, GROWTH * self._pause)
        if self._deadline is None:
            return pause
        left = self._deadline - time.monotonic()
        if left <= 0:
            status = "" if self.job is None else f", and is {self.job.status}"
            raise TimeoutError(f"job {self.id} has not ended within {self._timeout:g} s{status}")
        return min(pause, left)
