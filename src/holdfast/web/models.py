"""What is asked and answered, as OpenAPI describes it. Answers are made from plain values and only
described here; the tests hold them to it."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}$")]
Integer = Annotated[int, Field(ge=-(2**63) + 1, le=2**63 - 1)]
Duration = Annotated[
    float | str, Field(description='Seconds, or a text such as "30m"', examples=["30m", 90])
]
EntityId = int | str


def in_utc(given: datetime) -> datetime:
    """Without an offset it is UTC."""
    if given.tzinfo is None:
        return given.replace(tzinfo=UTC)
    try:
        return given.astimezone(UTC)
    except OverflowError:
        raise ValueError("give a moment from the year 1 to 9999, in UTC") from None


Moment = Annotated[datetime, AfterValidator(in_utc)]


class Asked(BaseModel):
    """Unknown fields are refused: a misspelt one must not be taken for nothing."""

    model_config = ConfigDict(extra="forbid")


class Job(BaseModel):
    id: str
    type: str
    status: str
    priority: int
    queue: str
    key: str | None
    entity_type: str | None
    entity_id: EntityId | None
    attempts: int
    max_attempts: int
    worker_id: str | None
    created_at: datetime
    updated_at: datetime
    run_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    error: str | None
    progress: float | None
    message: str | None
    crashes: int
    expires_at: datetime | None
    limit_key: str | None
    prune_error: str | None
    idempotency_key: str | None
    deaths: int
    unreadable_since: datetime | None
    cancel_requested: bool
    schedule: dict[str, Any] | None = None
    enabled: bool = True
    disabled_because: str | None = None
    due_at: datetime | None = None
    last_run_at: datetime | None = None
    last_error: str | None = None
    consecutive_failures: int = 0
    workflow_id: str | None = None
    node: str | None = None


class WholeJob(Job):
    payload: dict[str, Any] | None
    result: Any
    hidden: list[str] = Field(description="Fields that this caller may not see")


class MadeJob(WholeJob):
    created: bool = Field(
        description="False: a job was there already, by its key or Idempotency-Key"
    )


class JobPage(BaseModel):
    jobs: list[Job]
    next: str | None = Field(description="Give it as `after` for the next page")
    stats: dict[str, int] = Field(description="Jobs in each status, each counted up to `cap`")
    cap: int


class NewJob(Asked):
    type: Name
    payload: dict[str, Any] = {}
    priority: Integer | None = None
    queue: Name | None = None
    key: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    on_conflict: Literal["existing", "replace", "raise", "debounce"] = "existing"
    delay: Duration | None = None
    run_at: Moment | None = None
    expires: Duration | None = None
    max_attempts: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    timeout: Duration | None = None
    entity: tuple[Name, EntityId] | None = None
    entity_type: Name | None = None
    entity_id: EntityId | None = None


class JobEdit(Asked):
    priority: Integer | None = None
    run_at: Moment | None = None
    delay: Duration | None = None
    queue: Name | None = None


class Duplicate(Asked):
    payload: dict[str, Any] | None = None


class Attempt(BaseModel):
    attempt: int
    status: str
    worker_id: str | None
    started_at: datetime | None
    finished_at: datetime
    error: str | None
    trace: str | None


class Attempts(BaseModel):
    attempts: list[Attempt]


class LogLine(BaseModel):
    claim_no: int
    attempt: int
    line_no: int
    at: datetime
    level: str = Field(examples=["info", "warning", "error", "critical"])
    text: str


class LogLines(BaseModel):
    lines: list[LogLine]
    next: str | None = Field(
        description="Of the last line; as `after`, it gives what comes behind it, now or later"
    )


class Why(BaseModel):
    reasons: list[str]


class Parent(BaseModel):
    id: str
    type: str | None
    node: str | None
    status: str | None
    outcome: str | None
    policy: str


class Parents(BaseModel):
    parents: list[Parent]


class Matched(BaseModel):
    matched: int
    capped: bool = Field(description="There are at least so many")


class Operation(BaseModel):
    id: str
    action: str
    state: Literal["running", "done", "stopped", "failed"]
    seen: int
    changed: int
    skipped: dict[str, int]
    matched: int | None
    error: str | None


class Times(BaseModel):
    count: int
    average: float | None
    p50: float | None
    p95: float | None


class Figures(BaseModel):
    completed: int
    failed: int
    cancelled: int
    retried: int
    finished: int
    failure_rate: float
    per_minute: float
    wait: Times
    run: Times


class Point(BaseModel):
    at: datetime
    completed: int
    failed: int
    cancelled: int
    retried: int
    wait: float | None
    run: float | None


class Series(BaseModel):
    series: list[Point]


class Queue(BaseModel):
    name: str
    pending: int
    cap: int
    running: int
    oldest: float | None
    paused_at: datetime | None
    resume_at: datetime | None
    concurrency: int | None
    rate: str | None
    per_minute: float
    drain: float | None = Field(description="Seconds until nothing waits, at the present rate")
    figures: Figures
    workers: int
    series: list[Point]


class Queues(BaseModel):
    queues: list[Queue]


class Pause(Asked):
    for_: Duration | None = Field(None, alias="for")
    until: Moment | None = None


class LimitNumbers(Asked):
    concurrency: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    rate: Annotated[str, Field(max_length=40, examples=["100/m"])] | None = None


class Purge(Asked):
    confirm: str = Field(description="The queue's name, typed again")


class Deleted(BaseModel):
    deleted: int


class Done(BaseModel):
    done: bool = True


class Limit(BaseModel):
    name: str
    concurrency: int | None
    rate: str | None
    keyed: bool
    fair: bool
    tasks: list[str]
    set: bool = Field(description="An operator has set other numbers than the code's")
    running: int
    waiting: int
    cap: int


class Limits(BaseModel):
    limits: list[Limit]
