"""The results of cancel, retry, delete and edit, and their errors, from jobs as they were before and
after. Pure."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from holdfast.core import validation
from holdfast.core.duration import Duration, seconds
from holdfast.engine.records import Edit
from holdfast.errors import InvalidInput, InvalidTransition, JobNotFound, KeyConflict
from holdfast.jobs.job import FINISHED, Job, Status

Verb = Literal["retry", "cancel", "delete"]
MOVED = "moved on meanwhile"


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
        reasons.update(why_not(verb, job) for job in jobs if job.id not in done)
        return Changed(
            matched=self.matched + len(jobs),
            changed=self.changed + len(done),
            skipped=dict(reasons),
        )


def why_not(verb: Verb, job: Job) -> str:
    """Return why a command did not change a job, judged by the row before it."""
    if job.schedule is not None and not (verb == "cancel" and job.status is Status.RUNNING):
        return "recurring"
    if verb == "retry" and job.status in (Status.RUNNING, Status.BLOCKED):
        return job.status.value
    if verb == "retry" and job.key is not None:
        return "key live again"
    if verb == "cancel" and job.status in FINISHED:
        return "finished"
    return MOVED


def settle_cancel(before: Job, after: Job | None, changed: bool) -> Job:
    """Return the job after a cancel, or raise the reason why it was not cancelled."""
    if changed and after is not None:
        return after
    if before.status is Status.CANCELLED:
        return before
    if before.schedule is not None:
        raise InvalidTransition(
            f"job {before.id} recurs, and does not run now: app.schedules.disable() or delete() keeps "
            "it from running again"
        )
    raise InvalidTransition(f"job {before.id} is {before.status}: it is too late to cancel it")


def settle_retry(before: Job, after: Job | None, changed: bool) -> Job:
    """Return the job after a retry, or raise the reason why it does not run again."""
    if changed and after is not None:
        return after
    if before.status is Status.BLOCKED:
        raise InvalidTransition(
            f"job {before.id} is blocked: it waits, and runs by itself when it may; app.jobs.why() "
            "tells what for"
        )
    if before.status is Status.RUNNING:
        raise InvalidTransition(
            f"job {before.id} is running: cancel it first, or wait until it has ended"
        )
    raise KeyConflict(
        f"job {before.id} cannot run again: another live job of task {before.type!r} holds its key "
        f"{json.dumps(before.key)}"
    )


def settle_delete(before: Job, after: Job | None, changed: bool) -> Job:
    """Return the deleted job."""
    return before


def settle_edit(before: Job, after: Job | None, changed: bool, wanted: Edit) -> Job:
    """Return the job after an edit, or raise the reason why it was not changed."""
    if after is None:
        raise JobNotFound(f"job {before.id} was deleted meanwhile")
    if changed:
        return after
    if after.status is Status.RUNNING:
        raise InvalidTransition(
            f"job {after.id} is running, and can be edited only while it waits: cancel it, or wait "
            "until it has ended"
        )
    if after.status in FINISHED:
        raise InvalidTransition(
            f"job {after.id} is {after.status}, and can be edited only while it waits: retry it, or "
            "enqueue another"
        )
    if after.schedule is not None and (wanted.run_at is not None or wanted.delay is not None):
        raise InvalidTransition(
            f"job {after.id} recurs: app.schedules.reschedule() chooses its next run"
        )
    if wanted.priority is not None and wanted.aging is None and after.rank != -after.priority:
        raise InvalidInput(
            f"priority={wanted.priority}: job {after.id} ages by a setting that is not known here: "
            "edit it through its application (MODULE:APP), or set HOLDFAST_AGING"
        )
    raise InvalidTransition(f"job {after.id} is {after.status}: it {MOVED}; try again")


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
