"""More of what is answered: of schedules, workers, workflows, tasks, errors, figures, the system."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from holdfast.web.models import Asked, Duration, Figures, Job, Moment, Name, Point


class Run(BaseModel):
    finished_at: datetime
    status: str
    seconds: float | None
    error: str | None


class Schedule(Job):
    words: str
    timezone: str | None
    next_runs: list[datetime]
    history: list[Run]


class Schedules(BaseModel):
    schedules: list[Schedule]
    next: str | None


class Reschedule(Asked):
    run_at: Moment | None = None
    delay: Duration | None = None


class WorkerJob(BaseModel):
    id: str
    type: str
    stuck: bool


class UnreadableTask(BaseModel):
    task: str
    error: str
    seconds: float


class Worker(BaseModel):
    id: str
    state: Literal["live", "draining", "silent", "left", "dead"]
    host: str | None
    pid: int | None
    queues: list[str]
    tasks: list[str] | None
    slots: int | None
    running: int | None
    jobs: list[WorkerJob]
    started_at: datetime
    beat_at: datetime
    beat_age: float
    left_at: datetime | None
    died_at: datetime | None
    version: str | None
    app_version: str | None
    memory: int | None = None
    silent_for: float | None = None
    overdue: list[str] = []
    unreadable: list[UnreadableTask] = []
    cannot_write_for: float | None = None


class Stacks(BaseModel):
    asked_at: datetime | None
    at: datetime | None
    text: str | None


class Workers(BaseModel):
    workers: list[Worker]


class Workflow(BaseModel):
    id: str
    name: str
    status: str
    created_at: datetime
    finished_at: datetime | None
    counts: dict[str, int]


class Workflows(BaseModel):
    workflows: list[Workflow]
    next: str | None


class Edge(BaseModel):
    child: str
    parent: str
    policy: str
    outcome: str | None


class WholeWorkflow(BaseModel):
    workflow: Workflow
    jobs: list[Job]
    edges: list[Edge]


class Changed(BaseModel):
    changed: int


class Task(BaseModel):
    name: str
    queue: str | None
    priority: int | None
    max_attempts: int | None
    timeout: float | None
    schedule: str | None
    concurrency: int | None
    rate: str | None
    doc: str | None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")]
    registered: bool
    workers: int
    figures: Figures


class ListedTask(Task):
    lately: list[int] = Field(description="Finished in each minute of the last hour; or empty")


class Tasks(BaseModel):
    tasks: list[ListedTask]


class Bar(BaseModel):
    from_: Annotated[float, Field(alias="from")]
    to: float
    count: int


class Histograms(BaseModel):
    wait: list[Bar]
    run: list[Bar]


class WholeTask(Task):
    series: list[Point]
    histograms: Histograms


class ErrorGroup(BaseModel):
    id: str
    exception: str
    message: str
    frame: str | None
    types: list[str]
    statuses: dict[str, int]
    count: int
    first_at: datetime
    last_at: datetime
    sample_ids: list[str]
    sample_error: str
    sparkline: list[int]


class ErrorGroups(BaseModel):
    groups: list[ErrorGroup]
    looked_at: int
    complete: bool
    since: datetime | None


class QueueDepth(BaseModel):
    name: str
    depth: int
    paused_at: datetime | None
    resume_at: datetime | None


class Stats(BaseModel):
    jobs: dict[str, int]
    queues: list[QueueDepth]
    workers: int
    cap: int
    oldest_pending: float | None
    waiting: dict[str, float]
    window: float
    figures: Figures
    by_task: dict[str, Figures]
    by_queue: dict[str, Figures]
    series: list[Point]


class Check(BaseModel):
    name: str
    ok: bool
    warning: bool
    detail: str


class Health(BaseModel):
    ok: bool
    problems: list[str]
    warnings: list[str]
    checks: list[Check]
    jobs: dict[str, int]
    workers: int
    oldest_pending: float | None
    unknown_types: list[str]
    paused_queues: list[str]
    stuck_jobs: list[str]
    silent_workers: list[str]


class Alive(BaseModel):
    ok: bool


class Finding(BaseModel):
    level: Literal["ok", "warn", "fail"]
    subject: str
    text: str


class Sizes(BaseModel):
    database: int
    log: int | None
    free: int | None
    tables: dict[str, int]


class Migration(BaseModel):
    name: str
    applied_at: datetime


class Schema(BaseModel):
    version: int
    migrations: list[Migration]


class System(BaseModel):
    engine: str
    database: str
    server_version: str
    version: str
    python: str
    findings: list[Finding]
    sizes: Sizes = Field(description="Bytes")
    schema_: Annotated[Schema, Field(alias="schema")]
    retention: dict[str, float]
    settings: dict[str, Any]


class Session(BaseModel):
    who: str
    role: str
    permissions: list[str]
    auth: Literal["token", "host"] = Field(description="Who said who it is")
    read_only: bool
    title: str
    version: str


class Login(Asked):
    token: Annotated[str, Field(max_length=200)]


class Token(BaseModel):
    id: str
    name: str
    role: str
    tasks: list[str]
    queues: list[str]
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class MadeToken(Token):
    token: str = Field(description="Shown this once")


class Tokens(BaseModel):
    tokens: list[Token]


class NewToken(Asked):
    name: Annotated[str, Field(min_length=1, max_length=100)]
    role: Literal["viewer", "operator", "admin", "enqueue"]
    tasks: Annotated[list[Name], Field(max_length=100, default_factory=list)]
    queues: Annotated[list[Name], Field(max_length=100, default_factory=list)]
    expires: Duration | None = None


class AuditEntry(BaseModel):
    id: str
    at: datetime
    actor: str
    role: str
    action: str
    target: str
    detail: dict[str, Any]
    address: str | None
    request_id: str | None


class Audit(BaseModel):
    entries: list[AuditEntry]
    next: str | None
