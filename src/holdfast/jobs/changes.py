"""Cancel, retry, delete and edit jobs: one by its id, or all that match a filter, in batches; and the
reasons why a job was not changed."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Literal
from uuid import UUID

from holdfast.core import validation
from holdfast.core.duration import Duration, seconds
from holdfast.core.ids import parse_id
from holdfast.engine.dialect import Dialect
from holdfast.engine.records import Edit, Filter, Page
from holdfast.engine.script import Script
from holdfast.engine.steps import Steps, read_step, write_step
from holdfast.errors import HoldfastError, InvalidInput, InvalidTransition, JobNotFound, KeyConflict
from holdfast.jobs import commands
from holdfast.jobs.job import FINISHED, Job, Status
from holdfast.jobs.outcome import WEEK
from holdfast.jobs.read import get, search

BATCH = 500  # jobs that one transaction changes

Verb = Literal["cancel", "retry", "delete"]
Notify = Callable[["Changed"], object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """How many jobs matched a filter, were changed, and were skipped."""

    matched: int = 0
    changed: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)  #: numbers by reason

    def plus(self, jobs: Sequence[Job], changed: Collection[str], verb: Verb) -> "Changed":
        """Return the sum with one more batch."""
        done = set(changed)
        reasons = Counter(self.skipped)
        reasons.update(_why_skipped(verb, job) for job in jobs if job.id not in done)
        return Changed(
            matched=self.matched + len(jobs),
            changed=self.changed + len(done),
            skipped=dict(reasons),
        )


class Changes:
    """The methods of `app.jobs` that change jobs, as steps."""

    def __init__(self, dialect: Dialect, keep: Callable[[str], float] = lambda type: WEEK) -> None:
        """`keep`: how many seconds cancelled jobs of a task are kept."""
        self._dialect = dialect
        self._keep = keep

    def one(self, verb: Verb, id: str | UUID) -> Steps[Job]:
        """Change a job, and return it as it is afterwards, or as it was if the change deleted it.
        Raises the reason if it was not changed."""
        known = parse_id(id)

        def script() -> Script[Job]:
            before = only((yield from get(self._dialect, [known])), known)
            changed = yield from self._change(verb, [before], ())
            if changed and verb != "delete":
                return (yield from get(self._dialect, changed))[0]
            if verb == "delete" or (verb == "cancel" and before.status is Status.CANCELLED):
                return before
            raise _refusal(verb, before)

        return write_step(script)

    def edit(self, id: str | UUID, wanted: Edit) -> Steps[Job]:
        """Change a waiting job, and return it. Raises the reason if it was not changed."""
        known = parse_id(id)

        def script() -> Script[Job]:
            changed = yield from commands.edit(self._dialect, known, wanted)
            job = only((yield from get(self._dialect, [known])), known)
            if not changed:
                raise _edit_refusal(job, wanted)
            return job

        return write_step(script)

    def all(self, verb: Verb, filter: Filter, most: int | None, progress: Notify) -> Steps[Changed]:
        """Change at most `most` jobs in batches: each is a short transaction of its own, so that other
        writers do not wait for a million rows. `progress` is called with the sum after each batch."""
        total, after = Changed(), None
        while most is None or total.matched < most:
            size = BATCH if most is None else min(BATCH, most - total.matched)
            batch = partial(self._batch, verb, filter, after, size)
            try:
                page, changed = yield from write_step(batch)
            except KeyConflict:  # an enqueue of the same key raced with a retry
                page, changed = yield from self._one_by_one(verb, filter, after, size)
            total = total.plus(page.jobs, changed, verb)
            if progress is not None:
                progress(total)
            if (after := page.next) is None:
                break
        return total

    def _batch(
        self, verb: Verb, filter: Filter, after: str | None, size: int
    ) -> Script[tuple[Page, list[str]]]:
        page = yield from search(self._dialect, filter, after, size)
        return page, (yield from self._change_found(verb, filter, page.jobs))

    def _one_by_one(
        self, verb: Verb, filter: Filter, after: str | None, size: int
    ) -> Steps[tuple[Page, list[str]]]:
        page = yield from read_step(partial(search, self._dialect, filter, after, size))
        changed: list[str] = []
        for job in page.jobs:
            change = partial(self._change_found, verb, filter, [job])
            with suppress(KeyConflict):
                changed += yield from write_step(change)
        return page, changed

    def _change_found(self, verb: Verb, filter: Filter, jobs: Sequence[Job]) -> Script[list[str]]:
        # Only a filter that names their entity or key retries or deletes recurring jobs.
        if verb != "cancel" and filter.entity is None and filter.key is None:
            jobs = [job for job in jobs if job.schedule is None]
        return (yield from self._change(verb, jobs, filter.status)) if jobs else []

    def _change(
        self, verb: Verb, jobs: Sequence[Job], only: Collection[Status]
    ) -> Script[list[str]]:
        """Change jobs, each only while its status is in `only`; return the ids of the changed jobs."""
        ids = [job.id for job in jobs]
        match verb:
            case "cancel":
                keep = {job.id: self._keep(job.type) for job in jobs}
                return commands.cancel(self._dialect, ids, keep, only)
            case "retry":
                return commands.retry(self._dialect, ids, only)
            case "delete":
                return commands.delete(self._dialect, ids, only)


def only(found: Sequence[Job], id: str) -> Job:
    """Return the job that was found by its id. Raises JobNotFound."""
    if not found:
        raise JobNotFound(f"no job has the id {id}: it was never made, or deleted, or pruned")
    return found[0]


def make_edit(
    priority: int | None,
    run_at: datetime | None,
    delay: Duration | None,
    queue: str | None,
    aging: float | None,
) -> Edit:
    """Check the changes that a caller asks for. Raises InvalidInput."""
    if run_at is not None and delay is not None:
        raise InvalidInput("delay= and run_at= were both given: give one of them")
    if all(given is None for given in (priority, run_at, delay, queue)):
        raise InvalidInput("nothing to edit: give priority=, run_at=, delay= or queue=")
    return Edit(
        priority=None if priority is None else validation.integer(priority, "priority"),
        run_at=None if run_at is None else validation.moment(run_at, "run_at"),
        delay=None if delay is None else seconds(delay, what="delay"),
        queue=None if queue is None else validation.name(queue, "queue"),
        aging=aging,
    )


# Why a job was not changed. `job`: the row before the command, except in `_edit_refusal`.


def _why_skipped(verb: Verb, job: Job) -> str:
    if job.schedule is not None and not (verb == "cancel" and job.status is Status.RUNNING):
        return "recurring"
    if verb == "retry" and job.status in (Status.RUNNING, Status.BLOCKED):
        return job.status.value
    if verb == "retry" and job.key is not None:
        return "key live again"
    if verb == "cancel" and job.status in FINISHED:
        return "finished"
    return "moved on meanwhile"


def _refusal(verb: Verb, job: Job) -> HoldfastError:
    if verb == "cancel" and job.schedule is not None:
        return InvalidTransition(
            f"job {job.id} recurs, and does not run now: app.schedules.disable() or delete() keeps it "
            "from running again"
        )
    if verb == "cancel":
        return InvalidTransition(f"job {job.id} is {job.status}: it is too late to cancel it")
    if job.status is Status.BLOCKED:
        return InvalidTransition(
            f"job {job.id} is blocked: it waits, and runs by itself when it may; app.jobs.why() tells "
            "what for"
        )
    if job.status is Status.RUNNING:
        return InvalidTransition(
            f"job {job.id} is running: cancel it first, or wait until it has ended"
        )
    return KeyConflict(
        f"job {job.id} cannot run again: another live job of task {job.type!r} holds its key "
        f"{json.dumps(job.key)}"
    )


def _edit_refusal(job: Job, wanted: Edit) -> HoldfastError:
    if job.status is Status.RUNNING:
        return InvalidTransition(
            f"job {job.id} is running, and can be edited only while it waits: cancel it, or wait until "
            "it has ended"
        )
    if job.status in FINISHED:
        return InvalidTransition(
            f"job {job.id} is {job.status}, and can be edited only while it waits: retry it, or "
            "enqueue another"
        )
    if job.schedule is not None and (wanted.run_at is not None or wanted.delay is not None):
        return InvalidTransition(
            f"job {job.id} recurs: app.schedules.reschedule() chooses its next run"
        )
    if wanted.priority is not None and wanted.aging is None and job.rank != -job.priority:
        return InvalidInput(
            f"priority={wanted.priority}: job {job.id} ages by a setting that is not known here: edit "
            "it through its application (MODULE:APP), or set HOLDFAST_AGING"
        )
    return InvalidTransition(f"job {job.id} is {job.status}: it moved on meanwhile; try again")
