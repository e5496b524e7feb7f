"""Permissions, the roles that consist of them, and the identity of a caller. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from holdfast.core.records import value


class Permission(StrEnum):
    """A permission in the web interface; every route names the one that it needs."""

    JOBS_READ = "jobs.read"
    JOBS_PAYLOAD = "jobs.payload"  #: arguments, results, tracebacks
    JOBS_ENQUEUE = "jobs.enqueue"
    JOBS_OPERATE = "jobs.operate"  #: retry, cancel, edit, run now, duplicate, release
    JOBS_DELETE = "jobs.delete"
    QUEUES_OPERATE = "queues.operate"
    QUEUES_PURGE = "queues.purge"
    LIMITS_OPERATE = "limits.operate"
    SCHEDULES_OPERATE = "schedules.operate"
    WORKFLOWS_OPERATE = "workflows.operate"
    WORKERS_OPERATE = "workers.operate"
    EVENTS_READ = "events.read"
    METRICS_READ = "metrics.read"
    SYSTEM_READ = "system.read"
    AUDIT_READ = "audit.read"
    TOKENS_MANAGE = "tokens.manage"


PUBLIC = "public"  #: declared by routes that anyone may call; never the default
KNOWN = "known"  #: declared by routes that any authenticated caller may call

_VIEWER = frozenset(
    {
        Permission.JOBS_READ,
        Permission.JOBS_PAYLOAD,
        Permission.EVENTS_READ,
        Permission.METRICS_READ,
        Permission.SYSTEM_READ,
    }
)
_OPERATOR = _VIEWER | {
    Permission.JOBS_ENQUEUE,
    Permission.JOBS_OPERATE,
    Permission.JOBS_DELETE,
    Permission.QUEUES_OPERATE,
    Permission.LIMITS_OPERATE,
    Permission.SCHEDULES_OPERATE,
    Permission.WORKFLOWS_OPERATE,
    Permission.WORKERS_OPERATE,
    Permission.AUDIT_READ,
}
ROLES: Mapping[str, frozenset[Permission]] = {
    "viewer": _VIEWER,
    "operator": _OPERATOR,
    "admin": frozenset(Permission),
    "enqueue": frozenset({Permission.JOBS_ENQUEUE}),
}
#: The permissions that a role keeps in read-only mode.
READING = _VIEWER | {Permission.AUDIT_READ}

Via = Literal["token", "session", "host", "link"]


@value
class Identity:
    """An authenticated caller, and its permissions."""

    who: str
    role: str
    permissions: frozenset[Permission]
    via: Via
    tasks: frozenset[str] = frozenset()  #: tasks that it may enqueue; empty: all
    queues: frozenset[str] = frozenset()
    job: str | None = None  #: with a link: the only job that it may follow
    result: bool = False  #: with a link: it also sees the job's result and error

    def may(self, wanted: str) -> bool:
        return wanted in (PUBLIC, KNOWN) or wanted in self.permissions
