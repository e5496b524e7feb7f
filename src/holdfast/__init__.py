"""Durable background jobs in the database you already have: SQLite or PostgreSQL."""

from holdfast.app import Holdfast
from holdfast.engine.records import LimitInfo, QueueInfo
from holdfast.errors import (
    AppClosed,
    BodyNotLoaded,
    DatabaseBusy,
    DatabaseError,
    DatabaseReplaced,
    DatabaseUnavailable,
    EventsGone,
    HoldfastError,
    InvalidArguments,
    InvalidInput,
    InvalidTransition,
    InvalidURL,
    JobFailed,
    JobNotFound,
    KeyConflict,
    LostClaim,
    OutcomeUnknown,
    PayloadTooLarge,
    SchemaError,
    StorageError,
    TransactionError,
    UnknownLimit,
    UnknownTask,
    UnsafeFilesystem,
    UsedAfterFork,
)
from holdfast.events.event import Event
from holdfast.jobs.backoff import Backoff
from holdfast.jobs.job import Attempt, Job, LogLine, Status
from holdfast.limits.limit import Limit
from holdfast.monitoring.health import Health
from holdfast.monitoring.metrics import Figures
from holdfast.monitoring.stats import Stats
from holdfast.tasks.context import Context, RunEnd
from holdfast.tasks.control import Discard, Retry, Snooze
from holdfast.tasks.middleware import Middleware
from holdfast.tasks.task import Task

__all__ = [
    "AppClosed",
    "Attempt",
    "Backoff",
    "BodyNotLoaded",
    "Context",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseReplaced",
    "DatabaseUnavailable",
    "Discard",
    "Event",
    "EventsGone",
    "Figures",
    "Health",
    "Holdfast",
    "HoldfastError",
    "InvalidArguments",
    "InvalidInput",
    "InvalidTransition",
    "InvalidURL",
    "Job",
    "JobFailed",
    "JobNotFound",
    "KeyConflict",
    "Limit",
    "LimitInfo",
    "LogLine",
    "LostClaim",
    "Middleware",
    "OutcomeUnknown",
    "PayloadTooLarge",
    "QueueInfo",
    "Retry",
    "RunEnd",
    "SchemaError",
    "Snooze",
    "Stats",
    "Status",
    "StorageError",
    "Task",
    "TransactionError",
    "UnknownLimit",
    "UnknownTask",
    "UnsafeFilesystem",
    "UsedAfterFork",
]
