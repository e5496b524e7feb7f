"""Jobs and attempts as JSON: the same names in the command, in archives and in the API."""

import json
from datetime import datetime
from typing import Any

from holdfast.jobs.job import Attempt, Job

FIELDS = (
    *("id", "type", "payload", "status", "priority", "queue", "key", "entity_type", "entity_id"),
    *("attempts", "max_attempts", "worker_id", "created_at", "updated_at", "run_at", "started_at"),
    *("completed_at", "result", "error", "progress", "message", "crashes", "expires_at"),
    *("limit_key", "prune_error", "idempotency_key", "deaths", "unreadable_since"),
)
LISTED = tuple(name for name in FIELDS if name not in ("payload", "result"))
RECURRING = (  #: fields that only recurring jobs have
    *("schedule", "enabled", "disabled_because", "due_at", "last_run_at", "last_error"),
    "consecutive_failures",
)
WORKFLOW = ("workflow_id", "node")  #: fields that only jobs of a workflow have


def iso(moment: datetime | None) -> str | None:
    """Return a moment in ISO 8601, UTC, always of the same length."""
    if moment is None:
        return None
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def job_fields(job: Job, *, bodies: bool = True) -> dict[str, Any]:
    """Return the fields of a job; `bodies`: with its payload and result."""
    fields = {name: plain(getattr(job, name)) for name in (FIELDS if bodies else LISTED)}
    if job.schedule is not None:
        fields |= {name: plain(getattr(job, name)) for name in RECURRING}
        fields["schedule"] = json.loads(job.schedule)
    if job.workflow_id is not None:
        fields |= {name: plain(getattr(job, name)) for name in WORKFLOW}
    return fields


def attempt_fields(attempt: Attempt) -> dict[str, Any]:
    names = ("attempt", "status", "worker_id", "started_at", "finished_at", "error", "trace")
    return {name: plain(getattr(attempt, name)) for name in names}


def plain(value: Any) -> Any:
    return iso(value) if isinstance(value, datetime) else value
