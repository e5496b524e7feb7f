"""Types and models that several routes share; the others are beside their routes. Models of responses
only describe them: routes build responses from plain values, and tests compare the two."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}$")]
Integer = Annotated[int, Field(ge=-(2**63) + 1, le=2**63 - 1)]
Duration = Annotated[
    float | str, Field(description='Seconds, or a text such as "30m"', examples=["30m", 90])
]
EntityId = int | str


def in_utc(given: datetime) -> datetime:
    """Return a time in UTC; without an offset, it is UTC already."""
    if given.tzinfo is None:
        return given.replace(tzinfo=UTC)
    try:
        return given.astimezone(UTC)
    except OverflowError:
        raise ValueError("give a moment from the year 1 to 9999, in UTC") from None


Moment = Annotated[datetime, AfterValidator(in_utc)]


class Input(BaseModel):
    """What a caller sends. Unknown fields are refused, so that a misspelt one is not ignored."""

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


class Done(BaseModel):
    done: bool = True
