"""The values that describe a job, and the table of its transitions.

`TRANSITIONS` is the one source of the state machine: SQL takes its lists of statuses from it, the
documentation prints it, and the tests try every status against every transition.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from holdfast.core.records import value
from holdfast.errors import BodyNotLoaded

Json = Any  #: a JSON value: None, bool, int, float, str, lists and dicts of these
OnConflict = Literal["existing", "replace", "raise", "debounce"]
OnParentFailure = Literal["cancel", "continue", "hold"]


class Status(StrEnum):
    """The status of a job. It is a string: `job.status == "completed"`."""

    BLOCKED = "blocked"  #: waits for another job, or for capacity under a limit
    SCHEDULED = "scheduled"  #: its `run_at` is in the future
    RETRYING = "retrying"  #: failed; `run_at` says when it is tried again
    PENDING = "pending"  #: due: the next free worker takes it
    RUNNING = "running"  #: a worker holds it
    COMPLETED = "completed"  #: a run of it succeeded
    FAILED = "failed"  #: for good: no attempt is left, or the error is permanent
    CANCELLED = "cancelled"  #: before it began, or while it ran


CALLBACK = "@"  #: begins the names of the callbacks of a workflow

FINISHED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
UNFINISHED = frozenset(Status) - FINISHED
WAITING = UNFINISHED - {Status.RUNNING}


class Transition(NamedTuple):
    sources: frozenset[Status]
    target: Status | None  #: None: the row is gone


TRANSITIONS: Mapping[str, Transition] = {
    # by workers, of any job
    "promote": Transition(frozenset({Status.SCHEDULED, Status.RETRYING}), Status.PENDING),
    "claim": Transition(frozenset({Status.PENDING}), Status.RUNNING),
    "rescue": Transition(frozenset({Status.RUNNING}), Status.PENDING),
    "prune": Transition(FINISHED, None),
    # by the worker that holds the claim: the nine ways to finish a run
    "completed": Transition(frozenset({Status.RUNNING}), Status.COMPLETED),
    "retry_later": Transition(frozenset({Status.RUNNING}), Status.RETRYING),
    "snoozed": Transition(frozenset({Status.RUNNING}), Status.SCHEDULED),
    "failed": Transition(frozenset({Status.RUNNING}), Status.FAILED),
    "stopped": Transition(frozenset({Status.RUNNING}), Status.CANCELLED),
    "released": Transition(frozenset({Status.RUNNING}), Status.PENDING),
    "unreadable": Transition(frozenset({Status.RUNNING}), Status.SCHEDULED),
    "crashed": Transition(frozenset({Status.RUNNING}), Status.RETRYING),
    "recurred": Transition(frozenset({Status.RUNNING}), Status.SCHEDULED),
    # by workers, where a limit with keys is full
    "park": Transition(frozenset({Status.PENDING}), Status.BLOCKED),
    "unpark": Transition(frozenset({Status.BLOCKED}), Status.PENDING),
    # by workers, when the jobs that a job waits for have ended
    "free": Transition(frozenset({Status.BLOCKED}), Status.PENDING),
    "drop": Transition(frozenset({Status.BLOCKED}), Status.CANCELLED),
    # by applications and operators; a running job is asked to stop, and stays until it has
    "cancel": Transition(WAITING, Status.CANCELLED),
    "request_cancel": Transition(frozenset({Status.RUNNING}), Status.RUNNING),
    "retry": Transition(
        FINISHED | {Status.SCHEDULED, Status.RETRYING, Status.PENDING}, Status.PENDING
    ),
    "reopen": Transition(frozenset({Status.FAILED, Status.CANCELLED}), Status.BLOCKED),
    "postpone": Transition(WAITING - {Status.RETRYING}, Status.SCHEDULED),
    "hasten": Transition(WAITING - {Status.BLOCKED}, Status.PENDING),
    "debounce": Transition(WAITING - {Status.BLOCKED}, Status.SCHEDULED),
    "request_rerun": Transition(frozenset({Status.RUNNING}), Status.RUNNING),
    "delete": Transition(frozenset(Status), None),
}


class EventKind(StrEnum):
    """What happened to a job. Whether the job is finished then, its status says."""

    ENQUEUED = "enqueued"  #: it was inserted, edited, retried, or released by its workflow
    STARTED = "started"  #: a worker took it
    PROGRESS = "progress"  #: `ctx.progress(...)`, at most twice a second
    COMPLETED = "completed"  #: a run returned
    RETRYING = "retrying"  #: a run failed, and another follows
    FAILED = "failed"  #: for good
    CANCELLED = "cancelled"  #: it was cancelled, or one run of a recurring job was
    SNOOZED = "snoozed"  #: its run asked to run again later
    RELEASED = "released"  #: given back by a worker that is stopping, or cannot read its payload
    RESCUED = "rescued"  #: taken back from a worker that died


class Body(NamedTuple):
    """Payload and result as stored: JSON text, decoded at each use."""

    payload: str
    result: str | None = None


@value
class Job:
    """One row. The field names are the same in Python, REST and the command's `--json`."""

    id: str  #: UUIDv7
    type: str  #: the name of its task
    queue: str
    status: Status
    priority: int = 0  #: a higher number runs first
    rank: int = 0  #: the order of running, ascending: -priority, unless aging moved it
    key: str | None = None  #: unique among the unfinished jobs of its task
    entity_type: str | None = None
    entity_id: Json = None  #: what the job is about, with its JSON type kept
    attempts: int = 0  #: runs so far; snooze, release, rescue and unreadable payloads give one back
    max_attempts: int
    crashes: int = 0  #: times that its process died by its doing, with no other job in it
    claim_no: int = 0  #: bumped by every claim, never reused: the fence against stale workers
    worker_id: str | None = None
    timeout: float | None = None  #: of one attempt, in seconds; None: its task's; 0: none
    created_at: datetime
    updated_at: datetime
    run_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None  #: set in every final status
    keep_until: datetime | None = None  #: when a finished job may be pruned
    error: str | None = None  #: "Type: message" of the last failure
    progress: float | None = None
    message: str | None = None
    cancel_requested: bool = False
    verdict: str | None = None  #: how its last run ended, if its worker could not record it
    expires_at: datetime | None = None  #: it is cancelled if it has not begun by then
    limit_key: str | None = None  #: of a limit with keys: what it counts under, or waits for
    limited: bool = False  #: a limit counts it while it runs
    schedule: str | None = None  #: of a recurring job, as JSON
    enabled: bool = True
    disabled_because: str | None = None  #: the reason, unless an operator disabled it
    due_at: datetime | None = None  #: the moment of its schedule that `run_at` stands for
    last_run_at: datetime | None = None
    last_error: str | None = None
    consecutive_failures: int = 0
    workflow_id: str | None = None
    node: str | None = None  #: its name in the workflow
    prune_error: str | None = None  #: why it could not be deleted, although its time is over
    idempotency_key: str | None = None  #: at most one job of its task has this value
    deaths: int = 0  #: processes that died while it ran in them, since a run of it last ended
    unreadable_since: datetime | None = None  #: when a worker first could not read its payload
    body: Body | None = None  #: absent in lists
    created: bool = False  #: for the enqueuer: True: inserted; False: the job existed already

    @property
    def payload(self) -> dict[str, Json]:
        """The arguments as JSON values."""
        arguments: dict[str, Json] = json.loads(self._loaded().payload)
        return arguments

    @property
    def result(self) -> Json:
        """What the handler returned, as a JSON value; None until the job has completed."""
        text = self._loaded().result
        return None if text is None else json.loads(text)

    @property
    def entity(self) -> tuple[str, Json] | None:
        return None if self.entity_type is None else (self.entity_type, self.entity_id)

    @property
    def claim(self) -> "Claim":
        return Claim(self.id, self.claim_no)

    def _loaded(self) -> Body:
        if self.body is None:
            raise BodyNotLoaded(
                f"the payload and result of job {self.id} were not read: lists leave them out; "
                "use app.jobs.get(job.id)"
            )
        return self.body


class Claim(NamedTuple):
    """One worker's hold on one job."""

    id: str
    claim_no: int


class Edge(NamedTuple):
    """A job waits for another."""

    parent: str  #: its id
    policy: OnParentFailure = "cancel"


@value
class NewJob:
    """A job to insert, checked and encoded."""

    id: str
    type: str
    payload: str  #: JSON text
    queue: str = "default"
    priority: int = 0
    key: str | None = None
    on_conflict: OnConflict = "existing"
    entity_type: str | None = None
    entity_id: str | None = None  #: JSON text
    max_attempts: int = 3
    timeout: float | None = None
    delay: float = 0.0  #: seconds from now, by the database's clock
    run_at: datetime | None = None  #: if given, `delay` does not count
    schedule: str | None = None  #: JSON text: it is a recurring job
    expires: float | None = None  #: seconds from now: it is cancelled if it has not begun by then
    aging: float | None = None  #: seconds of waiting that count as much as one step of priority
    workflow_id: str | None = None
    node: str | None = None  #: its name in the workflow
    after: tuple[Edge, ...] = ()  #: the jobs that it waits for
    idempotency_key: str | None = None  #: at most one job of its task has this value

    @property
    def special(self) -> bool:
        """Whether the job needs the optional columns of the insert, as few jobs do."""
        return not (
            self.schedule is None
            and self.expires is None
            and self.aging is None
            and self.workflow_id is None
            and self.idempotency_key is None
        )

    @property
    def waits(self) -> bool:
        """Whether the job is blocked until its workflow releases it."""
        return bool(self.after) or (self.node is not None and self.node.startswith(CALLBACK))

    def copy(self, *, id: str, payload: str) -> "NewJob":
        """Return the same job with another id and payload. (`dataclasses.replace` takes four times as
        long.)"""
        return NewJob(
            id=id,
            type=self.type,
            payload=payload,
            queue=self.queue,
            priority=self.priority,
            key=self.key,
            on_conflict=self.on_conflict,
            entity_type=self.entity_type,
            entity_id=self.entity_id,
            max_attempts=self.max_attempts,
            timeout=self.timeout,
            delay=self.delay,
            run_at=self.run_at,
            schedule=self.schedule,
            expires=self.expires,
            aging=self.aging,
            idempotency_key=self.idempotency_key,
        )

    @property
    def unique(self) -> bool:
        """Whether the insert may return an existing job instead of this one."""
        return self.key is not None or self.idempotency_key is not None

    def repeats(self, job: Job) -> bool:
        """Return whether the insert added nothing and returned `job`, which has the same idempotency
        key."""
        known = self.idempotency_key
        return known is not None and not job.created and job.idempotency_key == known


@value
class Attempt:
    """A failed run, or any run of a recurring job; kept with its job."""

    job_id: str
    claim_no: int
    attempt: int
    worker_id: str | None
    started_at: datetime | None
    finished_at: datetime
    status: Status  #: what the run led to
    error: str | None
    trace: str | None


@value
class LogLine:
    """A line that a handler wrote with `ctx.log`; kept with its job."""

    job_id: str
    claim_no: int  #: of the run
    attempt: int
    line_no: int  #: from 1 in each run
    at: datetime
    level: str  #: "info", "warning", "error" or "critical"
    text: str

    @property
    def cursor(self) -> str:
        """Its place in the log of its job, for `after`."""
        return f"{self.claim_no}.{self.line_no}"
