"""Durable background jobs in the database you already have: SQLite or PostgreSQL."""

from holdfast.app import Holdfast
from holdfast.context import Context, RunEnd
from holdfast.engine import LimitInfo, QueueInfo
from holdfast.errors import (
    AppClosed,
    BodyNotLoaded,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    HoldfastError,
    InvalidArguments,
    InvalidInput,
    InvalidTransition,
    InvalidURL,
    JobFailed,
    JobNotFound,
    KeyConflict,
    LostClaim,
    PayloadTooLarge,
    SchemaError,
    TransactionError,
    UnknownLimit,
    UnknownTask,
    UnsafeFilesystem,
    UsedAfterFork,
)
from holdfast.events import Event
from holdfast.health import Health
from holdfast.job import Attempt, Job, LogLine, Status
from holdfast.limits import Limit
from holdfast.metrics import Figures
from holdfast.middleware import Middleware
from holdfast.outcome import Discard, Retry, Snooze
from holdfast.retry import Backoff
from holdfast.stats import Stats
from holdfast.task import Task

__all__ = [
    "AppClosed",
    "Attempt",
    "Backoff",
    "BodyNotLoaded",
    "Context",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseUnavailable",
    "Discard",
    "Event",
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
    "PayloadTooLarge",
    "QueueInfo",
    "Retry",
    "RunEnd",
    "SchemaError",
    "Snooze",
    "Stats",
    "Status",
    "Task",
    "TransactionError",
    "UnknownLimit",
    "UnknownTask",
    "UnsafeFilesystem",
    "UsedAfterFork",
]
