"""Durable background jobs in the database you already have: SQLite or PostgreSQL."""

from holdfast.app import Holdfast
from holdfast.context import Context, RunEnd
from holdfast.control import Discard, Retry, Snooze
from holdfast.engine import LimitInfo, QueueInfo
from holdfast.errors import (
    AppClosed,
    BodyNotLoaded,
    DatabaseBusy,
    DatabaseError,
    DatabaseReplaced,
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
from holdfast.events import Event
from holdfast.health import Health
from holdfast.job import Attempt, Job, LogLine, Status
from holdfast.limits import Limit
from holdfast.metrics import Figures
from holdfast.middleware import Middleware
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
    "DatabaseReplaced",
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
