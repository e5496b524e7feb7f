"""Many plain jobs at once: COPY is three times as quick as an INSERT."""

from datetime import datetime
from typing import Any

from holdfast.jobs.job import NewJob

COPY_FROM = 50  # jobs, from which on COPY is quicker than one JSON parameter
COPY = (
    "COPY {schema}.jobs (id, type, queue, status, priority, rank, entity_type, entity_id,"
    " max_attempts, timeout, created_at, updated_at, run_at, payload) FROM STDIN"
)


def is_plain(job: NewJob) -> bool:
    return job.key is None and job.run_at is None and not job.delay and not job.special


def copy_row(job: NewJob, now: datetime) -> tuple[Any, ...]:
    return (
        job.id,
        job.type,
        job.queue,
        "pending",
        job.priority,
        -job.priority,
        job.entity_type,
        job.entity_id,
        job.max_attempts,
        job.timeout,
        now,
        now,
        now,
        job.payload,
    )
