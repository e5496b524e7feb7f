"""Every exception that Holdfast raises, as one tree.

A message names the thing, the rule and the remedy. A call that raises one of these has changed nothing.
"""

from collections.abc import Sequence
from typing import Any


class HoldfastError(Exception):
    """The root: catch this to catch everything that Holdfast raises."""


class InvalidInput(HoldfastError, ValueError):
    """The caller gave something that breaks a rule; nothing was written."""


class InvalidArguments(InvalidInput):
    """The arguments of a job do not fit its task, or are not JSON. `fields`: the arguments and what is
    wrong with each, if it is known."""

    def __init__(self, message: str, fields: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


class PayloadTooLarge(InvalidArguments):
    """Arguments or a result are over the size limit."""


class InvalidURL(InvalidInput):
    """The database URL cannot be understood."""


class UnknownLimit(InvalidInput):
    """No limit has this name."""


class UnknownToken(HoldfastError, LookupError):
    """No token of the web interface has that id."""


class UnknownTask(HoldfastError, LookupError):
    """No task of that name is registered here."""


class JobNotFound(HoldfastError, LookupError):
    """No job has that id."""


class InvalidTransition(HoldfastError):
    """The job's status does not allow this change."""


class KeyConflict(HoldfastError):
    """An unfinished job of the same task has this key."""


class LostClaim(HoldfastError):
    """This run no longer holds its job: its worker was declared dead, or the job was cancelled or
    deleted."""


class JobFailed(HoldfastError):
    """The job that a caller waited for failed for good or was cancelled, or its run failed without an
    exception of the handler. `job` is the job as it was then, if it was read."""

    def __init__(self, message: str, job: Any = None) -> None:
        super().__init__(message)
        self.job = job


class EventsGone(InvalidInput):
    """The events after this position are not kept any more, or were never written."""


class BodyNotLoaded(HoldfastError, AttributeError):
    """The job was read by a list, and lists leave out payloads and results."""


class TransactionError(HoldfastError):
    """The object given as `tx=` is no open transaction in which jobs can be added."""


class DatabaseError(HoldfastError):
    """The database refused or could not be reached; the driver's error is the cause."""


class DatabaseBusy(DatabaseError):
    """The database did not grant a lock within the timeout."""


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached, or the connection was lost and could not be restored in time."""


class Refused(DatabaseError):
    """A rule of the database itself refused the row: a constraint or a trigger that was added to it."""


class StorageError(DatabaseUnavailable):
    """The database cannot write now: its disk is full, read-only or failing, it has no memory left, or
    it had an internal error. Nothing was written."""


class DatabaseReplaced(DatabaseUnavailable):
    """The SQLite file was deleted, moved or replaced while this process had it open: what it writes
    would be lost. Open a new `Holdfast`, or restart the process."""


class OutcomeUnknown(DatabaseUnavailable):
    """The connection broke while jobs were inserted, and could not be restored in time to find out
    whether they exist. `ids` are their ids, if they exist; `id` is the first."""

    def __init__(self, message: str, ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ids = tuple(ids)

    @property
    def id(self) -> str | None:
        return self.ids[0] if self.ids else None


class UnsafeFilesystem(DatabaseError):
    """The SQLite file is on a filesystem whose file locks are unreliable."""


class SchemaError(DatabaseError):
    """The database's tables do not fit this release."""


class UsedAfterFork(DatabaseError):
    """A connection that was opened before a fork was used after it."""


class AppClosed(HoldfastError):
    """The application object was closed."""
