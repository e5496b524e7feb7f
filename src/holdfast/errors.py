"""Every exception that Holdfast raises, as one tree.

A message names the thing, the rule and the remedy. Whatever raises one of these has changed nothing.
"""

from collections.abc import Sequence
from typing import Any


class HoldfastError(Exception):
    """The root: catch this to catch everything that Holdfast raises."""


class InvalidInput(HoldfastError, ValueError):
    """The caller gave something that breaks a rule; nothing was written."""


class InvalidArguments(InvalidInput):
    """The arguments of a job do not fit its task, or are not JSON. `fields`: which, and why, where it
    can be told."""

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
    """The job's status does not allow this verb."""


class KeyConflict(HoldfastError):
    """A live job holds the same key (of the same task)."""


class LostClaim(HoldfastError):
    """This run no longer holds its job: it was declared dead, cancelled or deleted meanwhile."""


class JobFailed(HoldfastError):
    """A job that somebody waited for failed for good or was cancelled, or a run of it went wrong
    without an exception of its handler. `job` is how it was found, if it was looked at."""

    def __init__(self, message: str, job: Any = None) -> None:
        super().__init__(message)
        self.job = job


class EventsGone(InvalidInput):
    """The events after this position are not kept any more, or were never written."""


class BodyNotLoaded(HoldfastError, AttributeError):
    """The job came from a list, and lists do not read payloads and results."""


class TransactionError(HoldfastError):
    """What was given as `tx=` cannot carry a job."""


class DatabaseError(HoldfastError):
    """The database refused or could not be reached; the driver's error is the cause."""


class DatabaseBusy(DatabaseError):
    """A lock was not granted within the bound."""


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached, or went away and did not come back in time."""


class Refused(DatabaseError):
    """A rule of the database itself refused the row: a constraint or a trigger that was added to it."""


class StorageError(DatabaseUnavailable):
    """The database answered that it cannot do this now: its disk is full, read-only or failing, it has
    no memory left, or it failed inside. Nothing was written."""


class DatabaseReplaced(DatabaseUnavailable):
    """The SQLite file was deleted, moved or replaced while this process had it open: what it writes
    would be lost. Open a new `Holdfast`, or restart the process."""


class OutcomeUnknown(DatabaseUnavailable):
    """The connection broke while jobs were written, and the database did not come back in time to tell
    whether they are there. `ids` are the ids that they have if they are; `id` is the first."""

    def __init__(self, message: str, ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ids = tuple(ids)

    @property
    def id(self) -> str | None:
        return self.ids[0] if self.ids else None


class UnsafeFilesystem(DatabaseError):
    """The SQLite file lies where file locks cannot be trusted."""


class SchemaError(DatabaseError):
    """The database's tables and this release do not fit together."""


class UsedAfterFork(DatabaseError):
    """A connection that was opened before a fork was used after it."""


class AppClosed(HoldfastError):
    """The application object was closed."""
