"""What goes through the seam beside jobs: small frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from holdfast.jobs.job import FINISHED, Claim, Job, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What to search for; everything given must hold."""

    status: frozenset[Status] = frozenset()
    type: str | None = None
    prefix: str | None = None  #: of the type
    queue: str | None = None
    key: str | None = None
    worker_id: str | None = None
    entity: tuple[str, str] | None = None  #: type, and id as JSON text
    since: datetime | None = None  #: made at or after
    until: datetime | None = None  #: made before
    id: tuple[str, str] | None = None  #: not below the first, and below the second
    lowest: int | None = None  #: its priority is at least this...
    highest: int | None = None  #: ... and at most this
    text: tuple[str, ...] = ()  #: each is in its error, message, type or key; in lower case, A to Z
    error: tuple[str, ...] = ()  #: each is in its error; the same
    payload: tuple["Wanted", ...] = ()


class Wanted(NamedTuple):
    """What a payload has to hold."""

    path: tuple[str, ...]  #: keys, and numbers of places in lists
    texts: tuple[str, ...]  #: as JSON, of which one is to be there


class Page(NamedTuple):
    jobs: list[Job]
    next: str | None  #: give it as `after` for the next page; None: that was all


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitInfo:
    """A limit, what it allows, and what it holds up."""

    name: str
    concurrency: int | None  #: as many may run at once
    rate: str | None  #: as many may start in a time: "100/m"
    keyed: bool  #: for each key
    fair: bool
    tasks: list[str]
    running: int  #: under all of its keys, counted up to a cap
    waiting: int  #: parked until a key has room, counted up to a cap
    changed: bool  #: an operator has set it otherwise than the code


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change of a job that waits; None: no change."""

    priority: int | None = None
    queue: str | None = None
    run_at: datetime | None = None  #: wins over `delay`
    delay: float | None = None  #: seconds from now
    aging: float | None = None  #: as the application is set; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which finished jobs are to go."""

    keep: Mapping[Status, float]  #: seconds since they were made, before which none is looked at
    hooks: frozenset[str] = frozenset()  #: types whose hooks the caller can run
    archived: bool = False  #: all are leased, so that they can be written down first
    older_than: float | None = (
        None  #: seconds since they finished, instead of the time that is theirs
    )


class Lease(NamedTuple):
    """One pruner's hold on a finished job."""

    id: str
    prunings: int  #: counts the leases: the fence
    claim_no: int  #: and this tells whether it has run again


class PutOff(NamedTuple):
    """A leased job that is kept, and tried again later."""

    lease: Lease
    delay: float
    error: str


class Pruned(NamedTuple):
    gone: int
    leased: list[Lease]
    more: bool  #: the look has not come to the end yet


class Held(NamedTuple):
    id: str
    claim_no: int
    cancel_requested: bool


class Beat(NamedTuple):
    alive: bool
    held: list[Held]
    asked: bool = False  #: the stacks of its runs are asked for


class Stacks(NamedTuple):
    """Where the runs of a worker stood."""

    asked_at: datetime | None
    at: datetime | None  #: None: it has not answered yet
    text: str | None


class Seen(NamedTuple):
    """A worker as it was seen; its `beat_no` None: dead for certain (its process was waited for)."""

    id: str
    beat_no: int | None
    begun: tuple[Claim, ...] | None = None  #: the runs that had begun in it; None: not known
    crash: str | None = None  #: how it died, if that was its own doing: "its process died: SIGSEGV"


class Suspects(NamedTuple):
    """Pending jobs of one queue, type and level whose process died under them."""

    queue: str
    type: str
    level: int  #: deaths on record, from 1 to 3 or more
    waiting: int


class Report(NamedTuple):
    """How far a run has come."""

    id: str
    claim_no: int
    progress: float | None
    message: str | None


class Fetched(NamedTuple):
    """What a worker got when it asked for jobs."""

    jobs: list[Job]
    more: bool  #: there may be more: ask again
    due: float | None = None  #: seconds until a rate lets more start


class Promoted(NamedTuple):
    moved: int
    queues: frozenset[str]
    next_due: float | None  #: seconds until the next job is due; None: none waits


class Swept(NamedTuple):
    buried: list[str]
    rescued: list[Job]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    id: str
    info: str  #: JSON text
    beat_no: int
    started_at: datetime
    beat_at: datetime
    left_at: datetime | None  #: it went in good order
    died_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue, what waits in it, and whether it is paused."""

    name: str
    depth: int  #: pending jobs, counted up to a cap
    paused_at: datetime | None  #: nothing of it is claimed since then
    resume_at: datetime | None = None  #: when the pause ends by itself


class Finding(NamedTuple):
    """What an examination of the database found."""

    level: str  #: "ok", "warn" or "fail"
    subject: str
    text: str  #: what it is, and what to do about it

    @classmethod
    def judge(
        cls, fine: bool, subject: str, well: str, problem: str, level: str = "warn"
    ) -> "Finding":
        """What is fine, or a problem of this level, each with its text."""
        return cls("ok", subject, well) if fine else cls(level, subject, problem)


class Sizes(NamedTuple):
    """Bytes. What is not cheap to measure is None or empty."""

    database: int
    log: int | None  #: what is not yet part of the database's file
    free: int | None  #: inside the file, for what is to come
    tables: dict[str, int]  #: with their indexes


class Measures(NamedTuple):
    """How large the database is, and which tables it has."""

    version: str  #: of the server, or of the library
    sizes: Sizes
    migrations: list[tuple[str, datetime]]  #: by name, with the time of each


class Doctor(Protocol):
    """Checks how a database is set up."""

    def diagnose(self) -> list[Finding]:
        """Return what is set up well and what is not, with remedies. Changes nothing; a database that
        cannot be reached is a finding, and not an error."""

    def measure(self) -> Measures:
        """Return the database's size, as far as that is quick to read, and its migrations."""


class Parent(NamedTuple):
    """A job that another waits for, or waited for."""

    id: str
    policy: str
    outcome: str | None  #: None: it is still waited for
    node: str | None
    type: str | None  #: None: its row is gone
    status: str | None
    result: Any = None  #: JSON text, where it was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInfo:
    """A workflow: jobs that wait for other jobs."""

    id: str
    name: str
    status: Status  #: running, completed, failed or cancelled
    created_at: datetime
    finished_at: datetime | None
    counts: dict[Status, int]  #: of its jobs, callbacks left out

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def progress(self) -> float:
        """How much of it is finished, from 0 to 100."""
        done = sum(number for status, number in self.counts.items() if status in FINISHED)
        return 100.0 * done / self.total if self.total else 0.0
