"""Per-task hooks: `on_success` and `on_failure`, run before the finish is written, at least once.

A hook may write the finish on its own transaction. If `on_success` fails, the run has failed; if
`on_failure` fails, it is tried again a few times, and then the failure is written without it.
"""

import asyncio
import inspect
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.engine.steps import Runner
from holdfast.errors import HoldfastError
from holdfast.jobs.job import Job
from holdfast.jobs.outcome import Ended, Finish, Outcome, Raised, Returned, decide, judge
from holdfast.tasks.context import RunEnd
from holdfast.tasks.task import Hook
from holdfast.worker.running.execution import Execution
from holdfast.worker.running.thread_pool import Threads

logger = logging.getLogger("holdfast.worker")

FAILURES = frozenset({Outcome.FAILED, Outcome.RETRY_LATER, Outcome.CRASHED})
_PAUSES = (0.2, 1.0)  # seconds before a failing hook of a failed run is tried again


def hook_of(execution: Execution, finish: Finish) -> Hook | None:
    conduct = execution.task.conduct
    recurred = finish.is_run_of_recurring and not (finish.recur and finish.recur.stopped)
    if finish.outcome is Outcome.COMPLETED or (recurred and finish.error is None):
        return conduct.on_success
    if recurred:
        return conduct.on_failure
    return conduct.on_failure if finish.outcome in FAILURES else None


def decided(execution: Execution, ended: Ended) -> Finish:
    return decide(execution.job, ended, execution.task.policy, execution.now())


class Hooks:
    """Runs hooks in threads, asynchronous ones on the loop; then hands the finish on."""

    def __init__(
        self,
        runner: Runner,
        loop: Callable[[], asyncio.AbstractEventLoop],
        threads: Threads,
        put: Callable[[Execution, Finish], None],
    ) -> None:
        self._runner = runner
        self._loop = loop
        self._threads = threads
        self._put = put

    def run(self, execution: Execution, finish: Finish, value: Any) -> None:
        execution.enter_hook()
        self._threads.submit(lambda: self._run(execution, finish, value))

    def confirm(self, execution: Execution, ended: Ended, completion: Finish) -> None:
        """The handler wrote its completion on a transaction of its own: was that committed?"""
        execution.enter_hook()
        self._threads.submit(lambda: self._confirm(execution, ended, completion))

    def _confirm(self, execution: Execution, ended: Ended, completion: Finish) -> None:
        try:
            committed = self._committed(execution.job)
        except HoldfastError:
            committed = False  # then what is written below changes nothing
        if committed:
            execution.leave()
            self._put(execution, completion)
            return
        if isinstance(ended, Returned):
            ended = Raised(
                "RolledBack: the transaction given to ctx.complete() was not committed", None
            )
        self._run(execution, decided(execution, ended), None)

    def _run(self, execution: Execution, finish: Finish, value: Any) -> None:
        try:
            final = self._settled(execution, finish, value)
        except BaseException:
            logger.exception("job %s: its hook could not be run", execution.job.id)
            final = finish
        execution.leave()
        self._put(execution, final)

    def _settled(self, execution: Execution, finish: Finish, value: Any) -> Finish:
        """The finish to write, after the hook has seen it."""
        hook = hook_of(execution, finish)
        if hook is None:
            return finish
        if finish.error is None:
            problem = self._call(hook, self._end(execution, finish, value))
            if problem is None:
                return finish
            ended = judge(problem, execution.task.policy)
            return self._settled(execution, decided(execution, ended), None)
        for pause in (*_PAUSES, None):
            problem = self._call(hook, self._end(execution, finish))
            if problem is None:
                return finish
            if pause is not None:
                time.sleep(pause)
        logger.error(
            "job %s: on_failure failed %d times and was given up: %r",
            execution.job.id,
            len(_PAUSES) + 1,
            problem,
        )
        return finish

    def _end(self, execution: Execution, finish: Finish, value: Any = None) -> RunEnd:
        return RunEnd(execution.job, finish, self._runner, value, execution.news)

    def _call(self, hook: Hook, end: RunEnd) -> BaseException | None:
        try:
            answer = hook(end)
            if inspect.isawaitable(answer):
                self.wait_for(answer)
            if end.finished and not self._committed(end.job):
                raise RuntimeError("the transaction that the hook gave to finish() was rolled back")
        except BaseException as problem:
            logger.warning("job %s: its hook failed: %r", end.job.id, problem)
            if end.finished and self._committed(end.job):
                return None  # too late to change anything
            return problem
        return None

    def wait_for(self, answer: Awaitable[Any]) -> None:
        """Wait for what an asynchronous hook returned; called in a thread."""
        asyncio.run_coroutine_threadsafe(await_hook(answer), self._loop()).result()

    def _committed(self, job: Job) -> bool:
        """Is a finish of this claim in the database?"""
        found = self._runner.engine.get([job.id])
        return not found or (found[0].claim_no, found[0].status) != (job.claim_no, "running")


async def await_hook(answer: Any, name: str = "the hook") -> Any:
    try:
        return await answer
    except (KeyboardInterrupt, SystemExit) as problem:  # they would end the loop
        raise RuntimeError(f"{name} raised {problem!r}") from problem


def python_value(text: str | None) -> Any:
    """A result that came from another process."""
    return None if text is None else json.loads(text)
