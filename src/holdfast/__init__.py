"""Durable background jobs in the database you already have: SQLite or PostgreSQL."""

from holdfast.app import Holdfast
from holdfast.engine import QueueInfo
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
    JobNotFound,
    KeyConflict,
    PayloadTooLarge,
    SchemaError,
    TransactionError,
    UnknownTask,
    UnsafeFilesystem,
    UsedAfterFork,
)
from holdfast.job import Attempt, Job, Status
from holdfast.queues import Stats
from holdfast.task import Task

__all__ = [
    "AppClosed",
    "Attempt",
    "BodyNotLoaded",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseUnavailable",
    "Holdfast",
    "HoldfastError",
    "InvalidArguments",
    "InvalidInput",
    "InvalidTransition",
    "InvalidURL",
    "Job",
    "JobNotFound",
    "KeyConflict",
    "PayloadTooLarge",
    "QueueInfo",
    "SchemaError",
    "Stats",
    "Status",
    "Task",
    "TransactionError",
    "UnknownTask",
    "UnsafeFilesystem",
    "UsedAfterFork",
]
