"""Jobs and others as they are shown: without what the caller may not see."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any

from holdfast.jobs.job import Job
from holdfast.jobs.job_json import iso, job_fields
from holdfast.web.security.permissions import Identity, Permission
from holdfast.web.security.redaction import Redaction

_BODIES = ("payload", "result")
_PLAIN = frozenset({str, int, float, bool, type(None)})


def listed(job: Job) -> dict[str, Any]:
    """Without payload and result, which lists do not read."""
    return job_fields(job, bodies=False) | {"cancel_requested": job.cancel_requested}


def shown(job: Job, me: Identity, redact: Redaction) -> dict[str, Any]:
    """A whole job, as this caller may see it."""
    told = listed(job)
    hidden: list[str] = []
    if me.may(Permission.JOBS_PAYLOAD):
        told |= {"payload": redact(job.payload), "result": redact(job.result)}
    else:
        told |= dict.fromkeys(_BODIES)
        hidden = list(_BODIES)
    return told | {"hidden": hidden}


def as_json(value: Any) -> Any:
    """Values as JSON takes them: dataclasses by their fields, moments as text, enums as values."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is datetime:
        return iso(value)
    names = _names(kind)
    if names is not None:
        told = {name: getattr(value, name) for name in names}
        # A day of figures is some ten thousand plain values: no call for each.
        return {name: one if type(one) in _PLAIN else as_json(one) for name, one in told.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(as_json(key)): as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(one) for one in value]
    return value


@lru_cache(maxsize=200)
def _names(kind: Any) -> tuple[str, ...] | None:
    """The fields of a class whose values have some."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return getattr(kind, "_fields", None)
